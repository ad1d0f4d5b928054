"""The BiLSTM on frozen features: the layers that it reads, padding, gradients and the saved folder."""

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForTokenClassification, BertConfig

import modeling_bert_repro
from modeling_bert_repro.lstm_heads import BertBiLSTMForTokenClassification, BertFeatureTagger
from tests.helpers.lstm_networks import assert_lstm_without_autocast, assert_padding_changes_nothing, padded_batch


@pytest.fixture
def config() -> BertConfig:
    sizes = {"hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(vocab_size=40, max_position_embeddings=24, num_labels=3, **sizes)
    config.feature_based, config.lstm_size = "concat_last_four", 6
    return config


def tagger(config, choice: str = "concat_last_four", encoder_class=modeling_bert_repro.BertModel):
    torch.manual_seed(0)
    config.feature_based = choice
    return BertFeatureTagger(config, encoder_class).freeze().eval()


@pytest.mark.parametrize(
    ("choice", "layers"),
    [("embeddings", [0]), ("second_to_last", [4]), ("last", [5]), ("concat_last_four", [2, 3, 4, 5]),
     ("weighted_sum_last_four", [2, 3, 4, 5]), ("weighted_sum_all", [1, 2, 3, 4, 5])],
)  # fmt: skip
def test_features_are_those_layers_of_transformers_bert(config, choice, layers):
    model = tagger(config, choice)
    stock = transformers.BertModel(config, add_pooling_layer=False).eval()
    stock.load_state_dict(model.bert.state_dict())
    states = stock(**padded_batch(), output_hidden_states=True).hidden_states
    wanted = torch.cat([states[layer] for layer in layers], dim=-1)
    if "sum" in choice:
        with torch.no_grad():
            model.weights += torch.arange(len(layers))
        shares = torch.arange(len(layers)).exp() / torch.arange(len(layers)).exp().sum()
        wanted = sum(share * states[layer] for share, layer in zip(shares, layers))
    real = padded_batch()["attention_mask"].bool()
    torch.testing.assert_close(model.features(**padded_batch())[real], wanted[real], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("choice", ["weighted_sum_all", "last"])
def test_the_lstm_computes_in_float32_under_autocast(config, choice):
    assert_lstm_without_autocast(tagger(config, choice))


def test_padding_changes_nothing(config):
    assert_padding_changes_nothing(tagger(config))


@torch.no_grad()
def test_loss_is_divided_by_the_items_of_the_step(config):
    model, both = tagger(config), padded_batch()
    labels = torch.tensor([[0, 1, -100, 2, -100, -100], [1, -100, 2, -100, -100, -100]])
    outputs = model(**both, labels=labels)
    log_probabilities = outputs.logits.log_softmax(-1)
    places = (labels != -100).nonzero().tolist()
    total = -sum(log_probabilities[row, place, labels[row, place]] for row, place in places)
    assert float(outputs.loss) == pytest.approx(float(total) / 5, rel=1e-6)
    assert float(model(**both, labels=labels, num_items_in_batch=20).loss) == pytest.approx(float(total) / 20, rel=1e-6)


def test_bert_is_neither_trained_nor_dropped_out(config):
    model = tagger(config, "weighted_sum_all").train()
    assert torch.equal(model.features(**padded_batch()), model.features(**padded_batch()))
    model(**padded_batch(), labels=torch.ones(2, 6, dtype=torch.long)).loss.backward()
    touched = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert touched == {name for name, _ in model.named_parameters() if not name.startswith("bert.")}
    assert model.weights.grad.abs().sum() > 0
    assert not any(parameter.requires_grad for parameter in model.bert.parameters())


@pytest.mark.parametrize("encoder_class", [modeling_bert_repro.BertModel, transformers.BertModel])
def test_it_starts_from_a_checkpoint_and_opens_again(config, tmp_path, encoder_class):
    torch.manual_seed(1)
    pretrained = modeling_bert_repro.BertForPreTraining(config)
    pretrained.save_pretrained(tmp_path / "bert")
    vars(config).pop("auto_map", None)
    options = {"config": config, "encoder_class": encoder_class, "output_loading_info": True}
    model, info = BertFeatureTagger.from_pretrained(tmp_path / "bert", **options)
    assert {key.split(".")[0] for key in info["missing_keys"]} == {"lstm", "classifier"}
    word = pretrained.bert.embeddings.word_embeddings.weight
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, word)
    # torch initialises an LSTM uniformly within 1 / sqrt(units).
    for parameter in model.lstm.state_dict().values():
        assert 0 < parameter.abs().max() <= 6**-0.5
        assert parameter.std().item() == pytest.approx(6**-0.5 / 3**0.5, rel=0.3)
    model.eval().save_pretrained(tmp_path / "tagger")
    assert sorted(path.name for path in (tmp_path / "tagger").glob("*.py")) == ["losses.py", "lstm_heads.py"]
    assert len(load_file(tmp_path / "tagger" / "model.safetensors")) == len(model.state_dict())
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "tagger", trust_remote_code=True).eval()
    torch.testing.assert_close(again(**padded_batch()).logits, model(**padded_batch()).logits, atol=1e-6, rtol=1e-5)
    bert = AutoModel.from_pretrained(tmp_path / "tagger", add_pooling_layer=False)
    assert type(bert) is transformers.BertModel and torch.equal(bert.embeddings.word_embeddings.weight, word)


def test_gradient_checkpointing_changes_no_gradient(config):
    found = []
    ids = torch.randint(5, 40, (2, 7), generator=torch.Generator().manual_seed(1))
    for checkpointing in (False, True):
        torch.manual_seed(0)
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
        model = BertBiLSTMForTokenClassification(config).train()
        if checkpointing:
            enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
            enable()
        model(ids, labels=ids % 3).loss.backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
    torch.testing.assert_close(found[0], found[1])

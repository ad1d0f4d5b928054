"""The network in the hands of other libraries: Trainer, pipelines, NEFTune, per-sample gradients, unusual devices."""

import pytest
import torch
import transformers
from transformers import Trainer, TrainingArguments, pipeline

from modeling_bert_repro import BertForPreTraining, BertForSequenceClassification
from tests.helpers.bert_pairs import every_class, make_inputs, make_labels, ours, pair, tiny_config

VOCAB = "[PAD] [UNK] [CLS] [SEP] [MASK] the red house".split()


@pytest.mark.parametrize(
    "labels, problem, probabilities",
    [
        (torch.tensor([0, 1]), "single_label_classification", lambda x: x.softmax(-1)),
        (torch.tensor([[1.0, 1.0], [0.0, 1.0]]), "multi_label_classification", torch.sigmoid),
        (torch.tensor([1.5, 0.25]), "regression", lambda x: x),
    ],
)
def test_a_pipeline_scores_as_the_model_was_trained(labels, problem, probabilities, tmp_path):
    """The first call with labels decides the kind of problem, as in transformers' class, and saving keeps it. The
    pipeline then applies softmax or sigmoid, or gives the plain score.
    """
    num_labels = 1 if problem == "regression" else 2
    config = tiny_config(num_labels=num_labels, vocab_size=len(VOCAB), initializer_range=2.0)
    torch.manual_seed(0)
    model = BertForSequenceClassification(config)
    ids = torch.tensor([[2, 5, 3], [2, 6, 3]])
    assert model.config.problem_type is None
    model(ids, labels=labels)
    reference = transformers.BertForSequenceClassification(tiny_config(num_labels=num_labels, vocab_size=len(VOCAB)))
    reference(ids, labels=labels)
    assert model.config.problem_type == reference.config.problem_type == problem
    model.eval().save_pretrained(tmp_path)
    tokenizer = transformers.BertTokenizer(vocab={piece: number for number, piece in enumerate(VOCAB)})
    for own in (False, True):
        opened = model if own else transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
        (scores,) = pipeline("text-classification", model=opened, tokenizer=tokenizer, top_k=None)(["the red house"])
        expected = probabilities(model(**tokenizer("the red house", return_tensors="pt")).logits[0])
        torch.testing.assert_close(
            torch.tensor([entry["score"] for entry in sorted(scores, key=lambda entry: entry["label"])]), expected
        )


def test_trainer_hands_compute_metrics_two_predictions(tmp_path):
    model = BertForPreTraining(tiny_config())
    inputs = make_inputs("BertForPreTraining")
    rows = inputs | make_labels("BertForPreTraining", inputs)
    data = [{name: column[i] for name, column in rows.items()} for i in range(4)]
    seen = []
    args = TrainingArguments(tmp_path, report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model, args, eval_dataset=data, compute_metrics=lambda result: seen.append(result) or {})
    trainer.evaluate()
    (result,) = seen
    assert [p.shape for p in result.predictions] == [(4, 9, 61), (4, 2)]
    assert [p.shape for p in result.label_ids] == [(4, 9), (4,)]
    model.save_pretrained(tmp_path / "saved")
    assert "keys_to_ignore" not in (tmp_path / "saved" / "config.json").read_text()


def test_embedding_noise_has_the_size_that_transformers_gives_it():
    """NEFTune scales its noise by the length and width of the embeddings, which its hook reads from their output."""
    own, reference = pair("BertForSequenceClassification")
    inputs, shapes = make_inputs("BertForSequenceClassification"), []
    inputs["attention_mask"][0, 4:] = 0
    for model in (own.train(), reference.train()):
        model.get_input_embeddings().register_forward_hook(lambda _, args, out: shapes.append(tuple(out.shape)))
        model(**inputs)
    assert shapes == [(4, 9, 24)] * 2


@every_class
def test_per_sample_gradients_by_hooks(name):
    """Opacus multiplies the input of a layer by the gradient of its output, row by row. Therefore both must have one
    row for each sequence.
    """
    model = ours(name)
    inputs = make_inputs(name)
    inputs["attention_mask"][0, ..., 4:] = 0
    sequences = inputs["input_ids"].shape[:-1].numel()
    dense = (model if name == "BertModel" else model.bert).encoder.layer[-1].intermediate.dense
    seen = {}
    dense.register_forward_hook(lambda _, args, out: seen.update(given=args[0]))
    dense.register_full_backward_hook(lambda _, grad_in, grad_out: seen.update(slope=grad_out[0]))
    model(**inputs, **make_labels(name, inputs))[0].sum().backward()
    assert seen["given"].shape[:2] == seen["slope"].shape[:2] == (sequences, 9)
    each = torch.einsum("bli,blo->boi", seen["given"], seen["slope"])
    torch.testing.assert_close(each.sum(0), dense.weight.grad)


@pytest.mark.parametrize("part", ["layer", "attention"])
def test_a_strange_layer_computes_all_positions_or_says_so(part):
    """A layer of transformers in the middle of a model works. It would attend across sequences that lie end to end."""

    class Layer(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, states, mask, **kwargs):
            found = self.layer(states, mask, **kwargs)
            return found[0] if part == "layer" and isinstance(found, tuple) else found

    own, reference = pair("BertModel", "sdpa")
    if part == "layer":
        own.encoder.layer[0] = Layer(reference.encoder.layer[0])
    else:
        own.encoder.layer[0].attention.self = Layer(reference.encoder.layer[0].attention.self)
    inputs = make_inputs("BertModel")
    inputs["attention_mask"][0, 4:] = 0
    expected = reference(**inputs).last_hidden_state
    torch.testing.assert_close(own(**inputs).last_hidden_state, expected, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="a layer of this model was replaced by one that computes all positions"):
        own(**inputs, unpad_inputs=True)


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction"])
def test_hooks_on_the_heads_of_pre_training_are_called_as_in_transformers(name):
    found = []
    for model in pair(name, "sdpa"):
        seen: list = []
        model.cls.register_forward_hook(lambda _module, args, output, seen=seen: seen.append((args, output)))
        model(torch.arange(10).view(2, 5))
        found.append(seen)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-9)
    assert len(found[0]) == 1

"""Left-to-right networks read the label from the last token, or get a BiLSTM on top (section 5.1 of the paper)."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification, BertConfig

import modeling_bert_repro
import run_glue
import run_squad
from bert_training.engine.batches import IGNORED, Features
from bert_training.tasks.classification.evaluation import with_labels_at_the_end
from modeling_bert_repro.lstm_heads import BertBiLSTMForQuestionAnswering, BertBiLSTMForTokenClassification
from tests.helpers.lstm_networks import assert_lstm_without_autocast, assert_padding_changes_nothing, padded_batch

TWO = [BertBiLSTMForTokenClassification, BertBiLSTMForQuestionAnswering]


@pytest.fixture
def config() -> BertConfig:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return BertConfig(vocab_size=40, max_position_embeddings=24, num_labels=2, **sizes)


def network(cls: type, config: BertConfig):
    torch.manual_seed(0)
    return cls(config, modeling_bert_repro.BertModel).eval()


@pytest.mark.parametrize("cls", TWO)
def test_padding_changes_nothing(cls, config):
    assert_padding_changes_nothing(network(cls, config))


@pytest.mark.parametrize("cls", TWO)
def test_the_lstm_computes_in_float32_under_autocast(cls, config):
    model = network(cls, config)
    assert_lstm_without_autocast(model)
    outputs = model.to(torch.bfloat16)(**padded_batch())
    assert all(value.dtype == torch.bfloat16 for value in outputs.values())


@pytest.mark.parametrize("cls", TWO)
def test_everything_is_trained_and_the_bilstm_sees_both_sides(cls, config):
    config.is_decoder = True
    model, inputs = network(cls, config), padded_batch()
    labels = {"labels": torch.ones(2, 6, dtype=torch.long)}
    if cls is BertBiLSTMForQuestionAnswering:
        labels = {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([2, 3])}
    model(**inputs, **labels).loss.backward()
    slopes = {name: 0 if p.grad is None else p.grad.abs().sum() for name, p in model.named_parameters()}
    # These shift all scores of a softmax alike, so that their gradient is 0, or what rounding leaves.
    shifts = ("key.bias", "qa_outputs.bias")
    assert all(slope > 1e-7 for name, slope in slopes.items() if not name.endswith(shifts)), slopes
    other = inputs | {"input_ids": inputs["input_ids"].clone()}
    other["input_ids"][0, 5] = 30
    first, second = (next(iter(model(**one).values()))[0, 1] for one in (inputs, other))
    assert not torch.allclose(first, second)  # With the BiLSTM, the second token has seen the last one.
    hidden = [model.bert(**one).last_hidden_state[0, 1] for one in (inputs, other)]
    torch.testing.assert_close(*hidden)  # Without it, the second token has not.


@pytest.mark.parametrize(
    ("cls", "auto", "stock"),
    [
        (TWO[0], AutoModelForTokenClassification, transformers.BertForTokenClassification),
        (TWO[1], AutoModelForQuestionAnswering, transformers.BertForQuestionAnswering),
    ],
)
def test_a_saved_folder_opens_with_its_code_and_is_refused_without(cls, auto, stock, config, tmp_path):
    model = network(cls, config)
    model.save_pretrained(tmp_path / "model")
    again = auto.from_pretrained(tmp_path / "model", trust_remote_code=True).eval()
    for one, other in zip(model(**padded_batch()).values(), again(**padded_batch()).values(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    transformers.logging.set_verbosity_error()
    with pytest.raises(RuntimeError, match="mismatched"):
        stock.from_pretrained(tmp_path / "model")


def test_labels_may_be_read_at_the_end():
    columns = {"input_ids": [[2, 5, 3], [2, 3]], "token_type_ids": [[0, 0, 0], [0, 0]], "labels": [1, 0]}
    rows = with_labels_at_the_end(Features(columns, pad_token_id=0))
    assert rows.collate([0, 1])["labels"].tolist() == [[IGNORED, IGNORED, 1], [IGNORED, 0, IGNORED]]


@pytest.fixture
def left_to_right(tmp_path, pretrained) -> Path:
    """A copy of the checkpoint of the tests whose configuration says that it attends left to right."""
    shutil.copytree(pretrained, tmp_path / "ltr")
    config = json.loads((tmp_path / "ltr/config.json").read_text()) | {"is_decoder": True}
    (tmp_path / "ltr/config.json").write_text(json.dumps(config))
    return tmp_path / "ltr"


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("token", [pytest.param("last", marks=pytest.mark.slow), "bilstm"])
def test_run_glue_reads_the_last_token(left_to_right, tmp_path, token):
    # Only the last word decides the label, and [CLS] of a left-to-right network cannot see it.
    rows = [f"the old {word},{label}\n" for word, label in (("house", "x"), ("river", "y"))] * 8
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(rows))
    file, out = str(tmp_path / "a.csv"), tmp_path / "out"
    flags = ["--model_name_or_path", str(left_to_right), "--train_file", file, "--validation_file", file]
    flags += ["--output_dir", str(out), "--max_seq_length", "16", "--label_token", token, "--max_steps", "30"]
    flags += ["--learning_rate", "1e-2", "--per_device_train_batch_size", "16", "--save_steps", "0"]
    run_glue.main(flags)
    results = json.loads((out / "all_results.json").read_text())
    assert results["eval_accuracy"] == 1
    assert "AutoModelForTokenClassification" in (out / "README.md").read_text()
    assert ("trust_remote_code" in (out / "README.md").read_text()) == (token == "bilstm")
    again = ["--model_name_or_path", str(out), "--validation_file", file, "--output_dir", str(tmp_path / "again")]
    run_glue.main([*again, "--max_seq_length", "16", "--label_token", token])
    repeated = json.loads((tmp_path / "again/all_results.json").read_text())
    assert repeated["eval_loss"] == pytest.approx(results["eval_loss"], rel=1e-6)


@pytest.mark.usefixtures("no_pictures")
def test_run_squad_puts_a_bilstm_on_top(left_to_right, tmp_path):
    qas = [{"id": f"q{i}", "question": "house ?", "answers": [{"text": "house", "answer_start": 8}]} for i in range(8)]
    squad = {"data": [{"title": "t", "paragraphs": [{"context": "the old house by the river .", "qas": qas}]}]}
    (tmp_path / "a.json").write_text(json.dumps(squad))
    flags = ["--model_name_or_path", str(left_to_right), "--train_file", str(tmp_path / "a.json"), "--bilstm_on_top"]
    flags += ["--validation_file", str(tmp_path / "a.json"), "--output_dir", str(tmp_path / "out"), "--max_steps", "2"]
    run_squad.main([*flags, "--max_seq_length", "24", "--max_query_length", "8", "--doc_stride", "6"])
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert config["architectures"] == ["BertBiLSTMForQuestionAnswering"] and config["is_decoder"]
    assert config["auto_map"] == {"AutoModelForQuestionAnswering": "lstm_heads.BertBiLSTMForQuestionAnswering"}
    assert (tmp_path / "out/lstm_heads.py").is_file()

"""bert-repro convert: checkpoints of TensorFlow and older programs become folders of current transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer, pipeline

import modeling_bert_repro
from bert_tools.convert import convert, main
from bert_tools.old_checkpoints import read_old_checkpoint
from tests.bert_tools.written import state_and_config, write_sentence_transformers
from tests.helpers.embedders import add_modules, check_carried
from tests.helpers.old_checkpoints import WRITTEN, edit_config, nvidia_names, saved_as

pytest.importorskip("google_crc32c")


@pytest.fixture
def pretrained(tmp_path) -> Path:
    folder = tmp_path / "source"
    shutil.copytree(WRITTEN / "pretrained", folder)
    return folder


@pytest.mark.parametrize("package", [transformers, modeling_bert_repro])
def test_outputs_are_those_of_tensorflow(tmp_path, capsys, package):
    """TensorFlow 2.21 computed the outputs from the variables that it has written, with the formulas of the paper."""
    main([str(WRITTEN / "pretrained"), str(tmp_path / "new")])
    recorded = json.loads((WRITTEN / "expected.json").read_text())
    model = package.BertForPreTraining.from_pretrained(tmp_path / "new").eval()
    inputs = {name: torch.tensor(rows) for name, rows in recorded["inputs"].items()}
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
        encoded = model.bert(**inputs)
    outputs_of = {"last_hidden_state": encoded.last_hidden_state, "pooler_output": encoded.pooler_output}
    outputs_of |= {name: getattr(outputs, name) for name in ("prediction_logits", "seq_relationship_logits")}
    for name, expected in recorded["outputs"].items():
        real = np.array(recorded["inputs"]["attention_mask"], bool)
        theirs, ours = np.array(expected), outputs_of[name].numpy()
        if theirs.ndim == 3:
            theirs, ours = theirs[real], ours[real]
        np.testing.assert_allclose(ours, theirs, atol=2e-5, err_msg=name)
    assert "BertForPreTraining" in capsys.readouterr().out


def test_the_folder_opens_everywhere(tmp_path):
    main([str(WRITTEN / "pretrained" / "bert_model.ckpt"), str(tmp_path / "new")])
    fill_mask = pipeline("fill-mask", model=str(tmp_path / "new"))
    assert len(fill_mask("a [MASK] b")) == 5
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert tokenizer.tokenize("ABa") == ["a", "##b", "##a"] and tokenizer.model_max_length == 12
    card = (tmp_path / "new" / "README.md").read_text()
    assert "`bert_model.ckpt.index` " in card and "do_lower_case true" in card
    assert (tmp_path / "new" / "vocab.txt").read_bytes() == (WRITTEN / "pretrained" / "vocab.txt").read_bytes()


@pytest.mark.parametrize(
    ("folder", "head", "cls"),
    [
        ("classifier", None, "BertForSequenceClassification"),
        ("classifier", "token", "BertForTokenClassification"),
        ("squad", None, "BertForQuestionAnswering"),
        ("pretrained", None, "BertForPreTraining"),
    ],
)
def test_the_class_has_the_heads_of_the_checkpoint(folder, head, cls):
    old = read_old_checkpoint(WRITTEN / folder)
    converted = convert(old, head=head)
    assert type(converted.model) is getattr(transformers, cls)
    state = converted.model.state_dict()
    for name, tensor in old.tensors.items():
        if not name.startswith("bert.pooler.") or cls.endswith(("SequenceClassification", "PreTraining")):
            assert torch.equal(state[name], tensor), name
    assert converted.model.config.num_labels == (3 if folder == "classifier" else 2)
    assert ("left out: the pooler" in " ".join(converted.notes)) == (cls.endswith(("TokenClassification", "Answering")))


def test_another_vocabulary_than_the_one_beside_the_weights_is_refused(pretrained, tmp_path):
    rows = (pretrained / "vocab.txt").read_text().splitlines()
    (tmp_path / "other.txt").write_text("\n".join([*rows[:-2], rows[-1], rows[-2]]))
    flags = [str(pretrained), str(tmp_path / "new"), "--vocab_file", str(tmp_path / "other.txt")]
    with pytest.raises(ValueError, match=rf"^--vocab_file .*: '{rows[-1]}' has the id 18, but for the weights of"):
        main(flags)
    assert not (tmp_path / "new").exists()
    (tmp_path / "other.txt").write_text("\n".join(rows))
    main(flags)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "new")) == 20


def test_a_head_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="expected the heads of one class of BERT, with --head a classifier; found"):
        convert(read_old_checkpoint(WRITTEN / "pretrained"), head="token")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": 3}, r"missing: bert\.encoder\.layer\.2"),
        ({"num_hidden_layers": 1}, r"not known to BertForPreTraining: bert\.encoder\.layer\.1"),
        (
            {"intermediate_size": 32},
            r"dense\.weight has the shape \(24, 16\), the config asks for \(32, 16\)",
        ),
        ({"vocab_size": 19, "hidden_size": 32}, "has the shape"),
        ({"num_attention_heads": None}, "expected the sizes of a BERT, it lacks num_attention_heads"),
        ({"model_type": "albert"}, "expected a BERT with model_type bert, got 'albert'"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(pretrained, fields, message):
    edit_config(pretrained, **fields)
    with pytest.raises(ValueError, match=message):
        convert(read_old_checkpoint(pretrained))


def test_no_file_is_overwritten(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "thesis.txt").write_text("work of years")
    with pytest.raises(ValueError, match="new is not an empty folder"):
        main([str(WRITTEN / "squad"), str(tmp_path / "new")])
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "thesis.txt"]


def test_a_file_of_nvidia_in_half_precision_with_padded_rows_is_converted(tmp_path):
    state, _ = state_and_config()
    state = dict(state)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        state[name] = torch.nn.functional.pad(state[name], (0, 0, 0, 4) if state[name].ndim == 2 else (0, 4))
    stored = {
        "model": {nvidia_names(name): tensor.half() for name, tensor in state.items()},
        "optimizer": {"state": {}},
        "epoch": 3,
    }
    folder = saved_as(tmp_path / "old", stored, "ckpt_8601.pt")
    converted = convert(read_old_checkpoint(folder / "ckpt_8601.pt"))
    assert converted.model.config.vocab_size == 24 and converted.model.dtype == torch.float32
    assert all(torch.equal(converted.model.state_dict()[name], tensor.half().float()) for name, tensor in state.items())
    assert "vocab_size is 24, the rows of the embeddings; the config said 20" in converted.notes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("cls.predictions.bias"), r"missing: cls\.predictions\.bias"),
        (lambda state: state.update({"bert.extra": torch.ones(1)}), r"not known to BertForPreTraining: bert\.extra"),
        (
            lambda state: state.update({"module.cls.predictions.bias": torch.ones(20)}),
            "two tensors have the same meaning",
        ),
        (
            lambda state: state.update({"cls.predictions.decoder.weight": torch.ones(20, 16)}),
            "with which BERT shares it",
        ),
        (
            lambda state: state.update({"qa_outputs.bias": torch.ones(2)}),
            "expected the heads of one class of BERT; found",
        ),
        (lambda state: state.update({"step": 3}), r"it also holds \['step'\]"),
    ],
)
def test_every_tensor_is_used_once(tmp_path, change, message):
    state = dict(state_and_config()[0])
    change(state)
    with pytest.raises(ValueError, match=message):
        convert(read_old_checkpoint(saved_as(tmp_path / "old", state)))


def test_the_rules_of_the_vocabulary_land_in_the_tokenizers_files(pretrained, tmp_path):
    """Chinese: every ideograph is a word, unless the settings beside the vocabulary say otherwise."""
    path = pretrained / "vocab.txt"
    path.write_text(path.read_text().replace("\ni\n", "\n中\n").replace("\nj\n", "\n国\n"), encoding="utf-8")
    main([str(pretrained), str(tmp_path / "new")])
    normalizer = json.loads((tmp_path / "new" / "tokenizer.json").read_text())["normalizer"]
    assert (normalizer["lowercase"], normalizer["handle_chinese_chars"]) == (True, True)
    assert AutoTokenizer.from_pretrained(tmp_path / "new").tokenize("A中国") == ["a", "中", "国"]
    stored = {"do_lower_case": False, "tokenize_chinese_chars": False, "strip_accents": True}
    (pretrained / "tokenizer_config.json").write_text(json.dumps(stored))
    main([str(pretrained), str(tmp_path / "other")])
    normalizer = json.loads((tmp_path / "other" / "tokenizer.json").read_text())["normalizer"]
    assert (normalizer["lowercase"], normalizer["handle_chinese_chars"]) == (False, False)
    assert normalizer["strip_accents"] is True
    assert AutoTokenizer.from_pretrained(tmp_path / "other").tokenize("中国 á") == ["[UNK]", "a"]


def test_an_old_folder_of_sentence_transformers_keeps_its_modules(tmp_path):
    tensors, _ = state_and_config()
    encoder = {name.removeprefix("bert."): tensor for name, tensor in tensors.items() if name.startswith("bert.")}
    folder = write_sentence_transformers(tmp_path / "old", encoder)
    add_modules(folder, "Pooling", "Dense", "Normalize", encoder="0_Transformer")
    main([str(folder), str(tmp_path / "new")])
    check_carried(folder, tmp_path / "new")


def test_data_files_of_two_checkpoints_are_refused(tmp_path):
    """The second of the three files is that of another checkpoint of the same shapes."""
    folder = tmp_path / "mixed"
    shutil.copytree(WRITTEN / "several_files", folder)
    path = folder / "bert_model.ckpt.data-00001-of-00003"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(ValueError, match=r"data-00001-of-00003: damaged or cut short \(the checksum of .* differs\)"):
        convert(read_old_checkpoint(folder))
    path.unlink()
    with pytest.raises(OSError, match=r"No such file or directory: .*data-00001-of-00003"):
        convert(read_old_checkpoint(folder))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: None, "expected a folder, a TensorFlow checkpoint with an .index file"),
        (lambda folder: folder.mkdir(), r"expected model\.safetensors, .* found none"),
        (lambda folder: folder.write_text("x"), "expected a folder, a TensorFlow checkpoint with an .index file, or"),
    ],
)
def test_a_wrong_folder_is_one_clear_error(tmp_path, prepare, message):
    prepare(tmp_path / "source")
    with pytest.raises(ValueError, match=message):
        main([str(tmp_path / "source"), str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()

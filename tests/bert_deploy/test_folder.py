"""bert_deploy/folder.py: what a folder's head can do, and folders that are wrong or hostile."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import modeling_bert_repro
from bert_deploy.folder import open_folder
from bert_training.inputs.flags.scripts import HEADS
from tests.helpers.model_folders import edit_json, save_model

ABILITIES = {
    "BertModel": (),
    "BertForPreTraining": ("masked words", "next sentence"),
    "BertForMaskedLM": ("masked words",),
    "BertForNextSentencePrediction": ("next sentence",),
    "BertForSequenceClassification": ("classification",),
    "BertForQuestionAnswering": ("question answering",),
    "BertForTokenClassification": ("names",),
    "BertForMultipleChoice": ("multiple choice",),
}


@pytest.fixture
def folder(tmp_path, pretrained):
    """A pre-trained folder to damage."""
    return shutil.copytree(pretrained, tmp_path / "model")


@pytest.mark.parametrize("name", ABILITIES)
def test_a_folder_offers_what_its_head_can_do(tmp_path, pretrained, name):
    folder = save_model(tmp_path / "m", pretrained, name)
    edit_json(folder / "config.json", attn_implementation="eager")
    opened = open_folder(str(folder))
    assert opened.abilities == ABILITIES[name]
    assert type(opened.model) is getattr(modeling_bert_repro, name) and not opened.model.training
    assert (opened.name, opened.longest, opened.texts) == ("m", 64, None)
    assert (opened.model.config.unpad_inputs, opened.model.config._attn_implementation) == ("auto", "sdpa")


@pytest.mark.parametrize(
    ("fields", "head"),
    [
        ({"feature_based": "last", "lstm_size": 8}, "BertFeatureTagger"),
        ({}, "BertBiLSTMForTokenClassification"),
        ({}, "BertBiLSTMForQuestionAnswering"),
    ],
)
def test_networks_of_this_project_are_opened_without_the_code_in_the_folder(tmp_path, pretrained, fields, head):
    """The copy of their code that the folder holds would leave a file behind."""
    from modeling_bert_repro import lstm_heads

    folder = save_model(tmp_path / "m", pretrained, head, lstm_heads, **fields)
    for path in folder.glob("*.py"):
        path.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n" + path.read_text())
    assert open_folder(str(folder)).abilities == HEADS[head].abilities and not (tmp_path / "executed").exists()


def test_code_in_a_folder_is_not_executed(folder, tmp_path):
    assert list(folder.glob("*.py"))
    for path in folder.glob("*.py"):
        path.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\nraise RuntimeError('executed')\n")
    assert open_folder(str(folder)).abilities
    assert not (tmp_path / "executed").exists()


# --- bad input -------------------------------------------------------------------------------------------


def refused(folder) -> str:
    with pytest.raises(ValueError) as error:
        open_folder(str(folder))
    assert len(str(error.value)) < 900
    return str(error.value)


def test_what_is_no_folder_of_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    for absent in (tmp_path / "absent", "./absent", f"{tmp_path.name}/absent"):
        assert "there is no such folder" in refused(absent)
    assert "it has no config.json" in refused(tmp_path)
    (tmp_path / "export.json").write_text("{}")
    assert "serve opens it with --backend onnx" in refused(tmp_path)


@pytest.mark.parametrize("names", [None, [], ["RobertaForMaskedLM"], [7], "BertModel"])
def test_a_network_that_is_not_known(folder, names):
    edit_json(folder / "config.json", architectures=names)
    assert "'architectures' must name the network, one of BertModel," in refused(folder)


def test_damaged_and_other_weights(folder):
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    assert "its weights cannot be loaded" in refused(folder)
    weights.unlink()
    torch.save({"anything": torch.zeros(1)}, folder / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        open_folder(str(folder))


def test_weights_in_parts_stay_in_the_folder(folder, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    for part, own in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({name: tensors[name] for name in own}, folder / part, metadata={"format": "pt"})
    index = {
        "metadata": {},
        "weight_map": {name: "ab"[number % 2] + ".safetensors" for number, name in enumerate(names)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert open_folder(str(folder)).abilities
    (folder / "b.safetensors").rename(tmp_path / "b.safetensors")
    index["weight_map"] = {name: part.replace("b.", "../b.") for name, part in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "nothing outside its folder is read" in refused(folder)


def test_a_path_in_the_config_of_the_tokenizer_is_not_followed(folder, tmp_path):
    from tokenization import build_tokenizer

    other = tmp_path / "other"
    build_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "secret"]).save_pretrained(other)
    paths = {"tokenizer_file": str(other / "tokenizer.json"), "vocab_file": str(other / "vocab.txt")}
    edit_json(folder / "tokenizer_config.json", **paths)
    assert "secret" not in open_folder(str(folder)).tokenizer.get_vocab()
    (folder / "tokenizer.json").unlink()
    assert "secret" not in open_folder(str(folder)).tokenizer.get_vocab()
    (folder / "vocab.txt").unlink()
    assert "expected a folder with a tokenizer.json or a vocab.txt" in refused(folder)


def test_a_model_with_several_scores_is_refused_when_it_is_opened(tmp_path, pretrained):
    fields = {"id2label": {0: "valence", 1: "arousal"}, "problem_type": "regression"}
    folder = save_model(tmp_path / "scores", pretrained, "BertForSequenceClassification", **fields)
    with pytest.raises(ValueError, match="gives 2 scores"):
        open_folder(str(folder))


def test_what_the_objective_of_the_run_did_not_teach_is_not_offered(folder):
    (folder / "run.json").write_text(json.dumps({"flags": {"objective": "mlm_sop"}}))
    assert open_folder(str(folder)).abilities == ("masked words",)

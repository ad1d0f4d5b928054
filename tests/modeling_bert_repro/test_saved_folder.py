"""A saved folder opens for every reader: plain transformers, our classes from its own code, and pipelines.

Readers that cannot import this project are forks of tests/programs/clean_forks.py.
"""

import ast
import json
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import BertTokenizer
from transformers.dynamic_module_utils import get_relative_imports

import modeling_bert_repro
from modeling_bert_repro.pretrained import AUTO_MAP, CODE_FILES
from tests.helpers.bert_pairs import CLASSES, every_class, make_inputs, ours, tiny_config
from tests.helpers.clean_process import run_clean
from tests.helpers.old_names import names_in, stored_as

PACKAGE = Path(modeling_bert_repro.__file__).parent


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A pre-training checkpoint with float64 weights and a tokenizer. The outputs that it must give lie beside it."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    model = ours("BertForPreTraining", "sdpa")
    model.config.update({"sparse_prediction": True, "unpad_inputs": False, "fast_dropout": True})
    model.save_pretrained(folder)
    assert model.config.sparse_prediction is True
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(56))]
    BertTokenizer({word: i for i, word in enumerate(words)}, model_max_length=12).save_pretrained(folder)
    inputs = make_inputs("BertForPreTraining")
    with torch.no_grad():
        outputs = model(**inputs)
        hidden = model.bert(**inputs)
    expected = {
        "logits": outputs.prediction_logits,
        "nsp": outputs.seq_relationship_logits,
        "hidden": hidden.last_hidden_state,
        "pooled": hidden.pooler_output,
    }
    torch.save({"inputs": inputs, "expected": expected}, folder.parent / "expected.pt")
    return folder


def test_config_names_the_whole_family_and_no_switch(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["auto_map"] == AUTO_MAP
    assert not {"sparse_prediction", "unpad_inputs", "fast_dropout"} & set(config)
    assert {f"BertFor{name.removeprefix('AutoModelFor')}" for name in AUTO_MAP if name != "AutoModel"} == set(
        CLASSES[1:]
    )
    for name in CODE_FILES:
        assert (checkpoint / name).read_bytes() == (PACKAGE / name).read_bytes()


def test_plain_transformers_opens_the_folder(checkpoint):
    """It opens without trust_remote_code and without a question to the user (stdin is closed), also in a pipeline, and
    gives the same numbers.
    """
    output = run_clean(
        """
        import torch
        from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer, pipeline

        folder = sys.argv[1]
        saved = torch.load("expected.pt")
        inputs, expected = saved["inputs"], saved["expected"]
        base, full = AutoModel.from_pretrained(folder), AutoModelForPreTraining.from_pretrained(folder)
        assert type(base).__module__ == type(full).__module__ == "transformers.models.bert.modeling_bert"
        with torch.no_grad():
            hidden, outputs = base.eval()(**inputs), full.eval()(**inputs)
        found = {"logits": outputs.prediction_logits, "nsp": outputs.seq_relationship_logits,
                 "hidden": hidden.last_hidden_state, "pooled": hidden.pooler_output}
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=1e-12)
        assert AutoTokenizer.from_pretrained(folder)("w1", "w2")["token_type_ids"] == [0, 0, 0, 1, 1]
        guesses = pipeline("fill-mask", folder)("w1 [MASK] w3")
        assert len(guesses) == 5 and all(0 <= g["score"] <= 1 for g in guesses)
        assert not [name for name in sys.modules if "transformers_modules" in name]
        print("opened")
        """,
        checkpoint,
    )
    assert "opened" in output


def test_trusted_code_opens_the_folder_as_our_classes(checkpoint):
    """Every class opens from the code in the folder, and can be saved again, also as another class, with its code."""
    output = run_clean(
        """
        import pathlib
        import torch
        import transformers

        folder = pathlib.Path(sys.argv[1])
        saved = torch.load("expected.pt")
        inputs, expected = saved["inputs"], saved["expected"]
        auto_map = transformers.AutoConfig.from_pretrained(folder).auto_map
        for auto_name, reference in auto_map.items():
            model = getattr(transformers, auto_name).from_pretrained(folder, trust_remote_code=True).eval()
            assert type(model).__name__ == reference.split(".")[1]
            assert type(model).__module__.startswith("transformers_modules."), type(model)
            again = folder.parent / f"again_{auto_name}"
            model.save_pretrained(again)
            code = {path.name: path.read_bytes() for path in folder.glob("*.py")}
            assert {path.name: path.read_bytes() for path in again.glob("*.py")} == code
            assert transformers.AutoConfig.from_pretrained(again).auto_map == auto_map
            with torch.no_grad():
                if auto_name == "AutoModel":
                    found = model(**inputs)
                    torch.testing.assert_close(found.last_hidden_state, expected["hidden"], rtol=0, atol=1e-12)
                    torch.testing.assert_close(found.pooler_output, expected["pooled"], rtol=0, atol=1e-12)
                    mask = inputs["attention_mask"].clone()
                    mask[0, 4:] = 0
                    short = {**inputs, "attention_mask": mask}
                    two = [model(**short, unpad_inputs=unpad).last_hidden_state[0, :4] for unpad in (True, False)]
                    torch.testing.assert_close(two[0], two[1], rtol=0, atol=1e-9)
                if auto_name == "AutoModelForPreTraining":
                    found = model(**inputs)
                    torch.testing.assert_close(found.prediction_logits, expected["logits"], rtol=0, atol=1e-12)
                    torch.testing.assert_close(found.seq_relationship_logits, expected["nsp"], rtol=0, atol=1e-12)
        again = folder.parent / "again_AutoModelForPreTraining"
        for name in ("config.json", "model.safetensors"):
            assert (again / name).read_bytes() == (folder / name).read_bytes(), name
        third = transformers.AutoModelForTokenClassification.from_pretrained(
            folder.parent / "again_AutoModel", trust_remote_code=True)
        assert type(third).__module__.startswith("transformers_modules.")
        print("opened", len(auto_map))
        """,
        checkpoint,
    )
    assert "opened 8" in output


@every_class
def test_every_class_saves_and_loads(name, tmp_path):
    model = ours(name)
    model.save_pretrained(tmp_path / "one")
    loaded = type(model).from_pretrained(tmp_path / "one", attn_implementation="eager").eval()
    loaded.save_pretrained(tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes(), path.name
    inputs = make_inputs(name)
    torch.testing.assert_close(loaded(**inputs)[0], model(**inputs)[0], rtol=0, atol=1e-12)
    reference = getattr(transformers, name).from_pretrained(tmp_path / "one", attn_implementation="eager").eval()
    torch.testing.assert_close(reference(**inputs)[0], model(**inputs)[0], rtol=0, atol=1e-12)


def test_checkpoints_of_older_libraries_load(tmp_path):
    """Such checkpoints have the first names of LayerNorm's weights, a buffer of positions and a copy of the decoder.

    They load into the class that saved them and into others.
    """
    model = ours("BertForPreTraining")
    model.save_pretrained(tmp_path / "new")
    old = stored_as("copies", tmp_path / "new", tmp_path / "old")
    inputs = make_inputs("BertForPreTraining")
    for name, expected in (("BertForPreTraining", model(**inputs)), ("BertModel", model.bert(**inputs))):
        own_class = getattr(modeling_bert_repro, name)
        loaded, report = own_class.from_pretrained(old, attn_implementation="eager", output_loading_info=True)
        assert not report["missing_keys"]
        assert name == "BertModel" or not report["unexpected_keys"]
        torch.testing.assert_close(loaded.eval()(**inputs)[0], expected[0], rtol=0, atol=1e-12)
    loaded.save_pretrained(tmp_path / "base")
    _, report = modeling_bert_repro.BertForSequenceClassification.from_pretrained(
        tmp_path / "base", output_loading_info=True
    )
    assert set(report["missing_keys"]) == {"classifier.weight", "classifier.bias"}


@pytest.fixture
def old_folder(tmp_path) -> Path:
    """A pre-training checkpoint with the first names of LayerNorm's weights, as the most downloaded ones have them."""
    ours("BertForPreTraining").save_pretrained(tmp_path / "new")
    return stored_as("old names", tmp_path / "new", tmp_path / "old")


@every_class
def test_the_saved_names_do_not_depend_on_the_loaded_ones(name, old_folder, tmp_path):
    """They are those of transformers' class, which then lacks nothing and finds nothing that it has no place for."""
    model = getattr(modeling_bert_repro, name).from_pretrained(old_folder)
    model.save_pretrained(tmp_path / "again")
    stock, report = getattr(transformers, name).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert names_in(tmp_path / "again") == stock.state_dict().keys() - (stock.all_tied_weights_keys or {}).keys()
    tensors = list(load_file(tmp_path / "again" / "model.safetensors").items())[:2]
    model.save_pretrained(tmp_path / "parts", True, dict(tensors))
    assert names_in(tmp_path / "parts") == {key for key, _ in tensors}


def test_upload_includes_code_that_was_copied_before(tmp_path):
    """transformers uploads the files that its table of time stamps lacks; the code files must therefore lack there."""
    model = ours("BertModel")
    model.save_pretrained(tmp_path)
    assert set(model._get_files_timestamps(tmp_path)) == {"config.json", "model.safetensors"}


def test_the_code_files_can_be_copied_into_a_folder():
    """transformers finds the files to copy with a regular expression, which needs imports of the form ``from .name``.

    All other imports must be torch, transformers or the standard library.
    """
    modules = {name.removesuffix(".py") for name in CODE_FILES}
    assert {path.name for path in PACKAGE.glob("*.py")} == {
        *CODE_FILES,
        "__init__.py",
        "lstm_heads.py",
    }
    assert not [path for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"]
    for name in CODE_FILES:
        assert set(get_relative_imports(PACKAGE / name)) <= modules
        for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
            if isinstance(node, ast.Import):
                roots = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                roots = {node.module.split(".")[0]}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 and node.module in modules, f"{name}:{node.lineno}"
                continue
            else:
                continue
            assert roots <= {"torch", "transformers"} | sys.stdlib_module_names, f"{name}:{node.lineno}"


def test_register_is_explicit_and_covers_the_family(monkeypatch):
    """Until ``register()`` is called, ``bert`` means transformers' classes, even after the package was imported."""
    for auto_name in AUTO_MAP:
        mapping = getattr(transformers, auto_name)._model_mapping
        monkeypatch.setattr(mapping, "_extra_content", dict(mapping._extra_content))
    for stage in ("transformers.models.bert.", "modeling_bert_repro."):
        for auto_name, reference in AUTO_MAP.items():
            model = getattr(transformers, auto_name).from_config(tiny_config())
            assert type(model).__name__ == reference.split(".")[1]
            assert type(model).__module__.startswith(stage), auto_name
        modeling_bert_repro.register()

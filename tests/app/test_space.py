"""bert_training/app/space.py: a Space holds the page's modules and the model, and nothing else of a folder."""

import importlib.metadata
import itertools
import json
import shutil

import pytest
import yaml

from bert_training.app import space
from bert_training.app.folder import open_folder
from bert_training.app.space import needed_modules, requirements, write_space
from bert_training.files.publishing import PATHS_IN_CONFIGS
from tests.helpers.model_folders import edit_json
from tests.helpers.repository import ROOT


@pytest.fixture
def gradio(monkeypatch):
    """A version of Gradio, also where it is not installed."""
    version = importlib.metadata.version
    monkeypatch.setattr(
        space.importlib.metadata, "version", lambda name: "6.31.0" if name == "gradio" else version(name)
    )


def test_the_modules_of_the_page_are_all_there_and_no_others():
    modules = needed_modules()
    needed = {"bert_training.app.page", "bert_training.tools.ask", "tokenization.wordpiece"}
    assert needed | {"bert_training", "modeling_bert_repro", "modeling_bert_repro.lstm_heads"} <= set(modules)
    assert not {
        "bert_training.app.command",
        "bert_training.app.space",
        "bert_training.tools.inspect_run",
    } & set(modules)
    assert all(file.is_file() and file.is_relative_to(ROOT) for file in modules.values())


def test_a_module_that_is_imported_relatively_or_through_another_is_found(tmp_path, monkeypatch):
    files = {
        "bert_training/__init__.py": "",
        "bert_training/a.py": "def f():\n    from bert_training.deep import b\n",
        "bert_training/deep/__init__.py": "",
        "bert_training/deep/b.py": "from .c import thing\nimport json, tests.helpers\n",
        "bert_training/deep/c.py": "import tokenization.words as words\n",
        "bert_training/deep/unused.py": "",
        "tokenization/__init__.py": "",
        "tokenization/words.py": "import torch\nfrom . import more\n",
        "tokenization/more.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(space, "ROOT", tmp_path)
    found = needed_modules("bert_training.a")
    assert {str(path.relative_to(tmp_path)) for path in found.values()} == {*files} - {"bert_training/deep/unused.py"}
    assert requirements(found) == [f"torch=={importlib.metadata.version('torch').partition('+')[0]}"]


@pytest.mark.slow
def test_what_a_space_holds(gradio, tmp_path, pretrained, capsys):
    folder = shutil.copytree(pretrained, tmp_path / 'a "strange": name')
    shutil.copytree(pretrained, folder / "checkpoint-10")
    for name in ("metrics.jsonl", "predictions.json", "checkpoint-10/training_state.pt"):
        (folder / name).write_text("confidential")
    run = {"flags": {"train_file": "/home/ada/confidential.txt"}, "texts_per_example": 2, "command": "confidential"}
    (folder / "run.json").write_text(json.dumps(run))
    target = tmp_path / "space"
    write_space(open_folder(str(folder)), str(target))
    assert "hf upload" in capsys.readouterr().out
    files = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    weights = {"config.json", "model.safetensors"}
    model = {*weights, "tokenizer.json", "tokenizer_config.json", "vocab.txt", "run.json"}
    code = {str(module.relative_to(ROOT)) for module in needed_modules().values()}
    expected = {f"model/{name}" for name in model} | {"app.py", "requirements.txt", "README.md"} | code
    # Every checkpoint in the tests is a copy of a whole folder; a real one has no tokenizer.
    assert {name for name in files if "checkpoint-10" not in name} == expected
    assert {f"model/checkpoint-10/{name}" for name in weights} <= files
    assert not [name for name in files if "confidential" in (target / name).read_bytes().decode("latin-1")]
    settings = yaml.safe_load((target / "README.md").read_text().split("---")[1])
    assert (settings["title"], settings["sdk"]) == ('BERT: a "strange": name', "gradio")
    assert (settings["app_file"], settings["sdk_version"]) == ("app.py", "6.31.0")
    compile((target / "app.py").read_text(), "app.py", "exec")
    lines = (target / "requirements.txt").read_text().splitlines()
    assert not [line for line in lines if line.startswith("modeling-bert-repro")]  # which is on no index
    assert {"torch", "transformers", "tokenizers", "safetensors", "numpy", "accelerate"} <= {
        line.split("==")[0] for line in lines
    }
    opened = open_folder(str(target / "model"))
    assert (opened.texts, opened.builtin, [step for step, _ in opened.checkpoints]) == (2, False, [10])


@pytest.mark.slow
def test_a_space_of_sentence_order_shows_no_next_sentence(gradio, tmp_path, pretrained):
    folder = shutil.copytree(pretrained, tmp_path / "model")
    (folder / "run.json").write_text(json.dumps({"flags": {"objective": "mlm_sop"}}))
    opened = open_folder(str(folder))
    write_space(opened, str(tmp_path / "space"))
    assert open_folder(str(tmp_path / "space/model")).abilities == opened.abilities == ("masked words",)


@pytest.mark.parametrize("place", ["", "checkpoint-10"])
@pytest.mark.parametrize("name", ["special_tokens_map.json", "vocab.txt", "tokenizer_config.json", "config.json"])
def test_a_space_holds_nothing_from_outside_the_folder(gradio, tmp_path, pretrained, place, name):
    """Not even if the link has come after the folder was opened."""
    folder = shutil.copytree(pretrained, tmp_path / "model")
    shutil.copytree(pretrained, folder / "checkpoint-10")
    opened = open_folder(str(folder))
    (tmp_path / "id_rsa").write_text("secret")
    (folder / place / name).unlink(missing_ok=True)
    (folder / place / name).symlink_to(tmp_path / "id_rsa")
    with pytest.raises(ValueError, match=f"{name}: is a link out of the model's folder"):
        write_space(opened, str(tmp_path / "space"))
    with pytest.raises(ValueError, match=f"{name}: is a link out of the model's folder"):
        open_folder(str(folder))
    assert not (tmp_path / "space").exists() and not list(tmp_path.glob("space*"))


def test_no_folder_of_this_machine_lands_in_a_space(gradio, tmp_path, pretrained):
    """Configs of older versions of transformers name the folder and the files that they came from."""
    secret = tmp_path / "zq7secret o'neil | `x` <b>"
    folder = shutil.copytree(pretrained, secret / "model")
    shutil.copytree(pretrained, folder / "checkpoint-10")
    for place, name in itertools.product((folder, folder / "checkpoint-10"), ("config.json", "tokenizer_config.json")):
        edit_json(place / name, **dict.fromkeys(PATHS_IN_CONFIGS, f"{secret}/file.txt"))
    run = {"flags": {"output_dir": str(folder)}, "command": [str(secret)]}
    (folder / "run.json").write_text(json.dumps(run))
    write_space(open_folder(str(folder)), str(tmp_path / "space"))
    files = [path for path in (tmp_path / "space").rglob("*") if path.is_file()]
    assert not [path for path in files if "zq7secret" in path.read_bytes().decode("latin-1")]
    assert json.loads((tmp_path / "space/model/config.json").read_text())["_name_or_path"] == "file.txt"
    open_folder(str(tmp_path / "space/model"))

"""Runs from weights that are stored under old names: killed, resumed, and saved under today's names."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.helpers import short_runs
from tests.helpers.fault_runs import run
from tests.helpers.kills import INJECTION
from tests.helpers.old_names import FORMS, give_old_names, names_in, seal, stored_as
from tests.helpers.same_runs import check_same
from tests.helpers.small_networks import LEARNS_FAST, save_random_network, small_config

SHORT = "--max_steps 4 --save_steps 1 --eval_steps 1 --save_total_limit 1".split()
BEST = "--load_best_model_at_end"
# The scripts, and the flags that are added.
SCRIPTS = {
    "run_glue": [BEST],
    "run_squad": [BEST],
    "run_ner": [BEST, "--feature_based", "last", "--lstm_size", "4"],
    "run_swag": [],
    "run_pretraining": [],
}
# One script at once; the others with the slow tests.
AT_ONCE_AND_SLOWLY = [name if name == "run_swag" else pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS]
NAMES_THE_FOLDER = r"answers\.html"


@pytest.fixture(scope="module")
def network(tmp_path_factory, tokenizer_folder, vocab) -> Path:
    """A network with dropout."""
    shape = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=64, **LEARNS_FAST)
    return save_random_network(tmp_path_factory.mktemp("network"), tokenizer_folder, shape)


@pytest.fixture(scope="module")
def old(network, tmp_path_factory) -> Path:
    return stored_as("old names", network, tmp_path_factory.mktemp("old") / "model")


@pytest.fixture
def killed(old, short_data, tmp_path) -> Callable[[str], list[str]]:
    """A function that makes a run which is killed when it has saved its second checkpoint; returns its flags."""

    def make(script: str) -> list[str]:
        given = short_runs.flags(script, short_data, tmp_path / "killed", old, *SHORT, *SCRIPTS[script])
        place = {"function": "bert_training.engine.checkpoint:_drop_old", "call": 2, "after": True}
        ended = run(script, given, tmp_path, prepare=[(f"{INJECTION}:at_call", place)])
        assert ended.status == -signal.SIGKILL, ended.printed
        return given

    return make


def old_ones(folder: Path) -> list[str]:
    return [name for name in names_in(folder) if name.endswith((".gamma", ".beta"))]


def resumed(script: str, given: list[str], tmp_path: Path) -> str:
    ended = run(script, [*given, "--resume_from_checkpoint", "auto"], tmp_path)
    assert ended.status == 0, ended.printed
    return ended.printed


def make_whole(script: str, data: Path, model: Path, tmp_path: Path) -> Path:
    """The folder of a run that was never stopped."""
    ended = run(script, short_runs.flags(script, data, tmp_path / "whole", model, *SHORT, *SCRIPTS[script]), tmp_path)
    assert ended.status == 0, ended.printed
    return tmp_path / "whole"


@pytest.mark.parametrize("script", AT_ONCE_AND_SLOWLY)
def test_killed_and_resumed_is_bit_equal(killed, old, short_data, tmp_path, script):
    given = killed(script)
    for folder in (tmp_path / "killed").glob("checkpoint-*"):
        assert not old_ones(folder), folder
    assert "after step 2" in resumed(script, given, tmp_path)
    whole = make_whole(script, short_data, old, tmp_path)
    assert not old_ones(whole)
    check_same(whole, tmp_path / "killed", but=NAMES_THE_FOLDER)


@pytest.mark.parametrize("script", [pytest.param("run_glue", marks=pytest.mark.slow), "run_pretraining"])
def test_checkpoints_of_earlier_versions_are_resumed(killed, old, short_data, tmp_path, script):
    """Their tensors, those of the best weights included, have the names of the weights that the run began with."""
    given = killed(script)
    folders = list((tmp_path / "killed").glob("checkpoint-*"))
    assert len(folders) == 1 + (script == "run_glue")
    for folder in folders:
        give_old_names(folder)
    assert "after step 2" in resumed(script, given, tmp_path)
    check_same(make_whole(script, short_data, old, tmp_path), tmp_path / "killed")


def test_both_names_of_a_tensor_are_no_checkpoint_of_ours(killed, tmp_path):
    given = killed("run_swag")
    path = tmp_path / "killed" / "checkpoint-2" / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"bert.embeddings.LayerNorm.beta": torch.ones(32)}, path, {"format": "pt"})
    seal(path.parent)
    ended = run("run_swag", [*given, "--resume_from_checkpoint", "auto"], tmp_path)
    assert ended.status == 2 and "unexpected ['bert.embeddings.LayerNorm.beta']" in ended.printed


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("form", "model_impl"),
    [
        ("old names", "transformers"),
        ("float16", "repro"),
        *(
            pytest.param(form, network, marks=pytest.mark.slow)
            for form, network in (*((form, "repro") for form in FORMS), ("pickle", "transformers"))
            if form != "float16"
        ),
    ],
)
def test_every_form_of_old_weights_is_trained_saved_and_resumed(
    network, short_data, tmp_path, capsys, fresh_accelerate, form, model_impl
):
    """As the same weights do that are stored in the form of today; those of half precision lost digits before."""
    saved = {}
    for name, model in (("new", network), ("old", stored_as(form, network, tmp_path / "model"))):
        given = short_runs.flags("run_glue", short_data, tmp_path / name, model, "--model_impl", model_impl)
        given += ["--save_steps", "1", "--save_total_limit", "0"]
        short_runs.start("run_glue", given)
        saved[name] = load_file(tmp_path / name / "model.safetensors")
    assert saved["new"].keys() == saved["old"].keys()
    assert {tensor.dtype for tensor in saved["old"].values()} == {torch.float32}
    assert form in ("float16", "bfloat16") or all(
        torch.equal(saved["new"][key], saved["old"][key]) for key in saved["new"]
    )
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    assert config["dtype"] == "float32" and "torch_dtype" not in config

    for left in ("all_results.json", "checkpoint-2/manifest.json"):
        (tmp_path / "old" / left).unlink()
    fresh_accelerate()
    short_runs.start("run_glue", [*given, "--resume_from_checkpoint", "auto"])
    assert "checkpoint-1 after step 1" in capsys.readouterr().out
    again = load_file(tmp_path / "old" / "model.safetensors")
    assert all(torch.equal(saved["old"][key], again[key]) for key in again)

    for reader in (transformers.BertForSequenceClassification, transformers.BertModel):
        model, info = reader.from_pretrained(tmp_path / "old", output_loading_info=True)
        assert not info["missing_keys"] and {key.split(".")[0] for key in info["unexpected_keys"]} <= {"classifier"}

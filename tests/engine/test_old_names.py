"""Runs from weights that are stored under old names or in old forms: saved and resumed under today's names."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests.helpers import short_runs
from tests.helpers.old_names import FORMS, stored_as
from tests.helpers.small_networks import LEARNS_FAST, save_random_network, small_config


@pytest.fixture(scope="module")
def network(tmp_path_factory, tokenizer_folder, vocab) -> Path:
    """A network with dropout."""
    shape = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=64, **LEARNS_FAST)
    return save_random_network(tmp_path_factory.mktemp("network"), tokenizer_folder, shape)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("form", "model_impl"),
    [
        ("old names", "transformers"),
        *(
            pytest.param(form, network, marks=pytest.mark.slow)
            for form, network in (*((form, "repro") for form in FORMS), ("pickle", "transformers"))
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

"""What a run begins with: weights that fit, the attention that the objective needs, and hashes of the files."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

import modeling_bert_repro
from bert_training.engine.errors import report_errors
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.networks.initial_weights import load_network, weights_sha256
from bert_training.pretraining.network import build_pretraining_network
from tests.helpers import short_runs
from tests.helpers.model_folders import save_model

pytestmark = pytest.mark.usefixtures("no_pictures")


def copied(folder: Path, target: Path, **fields) -> Path:
    """A copy of a checkpoint with other fields in its configuration."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(json.dumps(config | fields), encoding="utf-8")
    return target


def renamed(folder: Path, target: Path) -> Path:
    """A copy of a checkpoint in which every tensor has another name."""
    shutil.copytree(folder, target)
    weights = load_file(folder / "model.safetensors")
    named = {f"x.{name}": tensor for name, tensor in weights.items()}
    save_file(named, target / "model.safetensors", {"format": "pt"})
    return target


# --- The direction of attention ---------------------------------------------------------------------------


@torch.no_grad()
def sees_later_tokens(model) -> bool:
    """Whether a change of a late token changes the logits of earlier tokens."""
    ids = torch.tensor([[2, 40, 41, 42, 43, 44, 45, 3]])
    other = ids.clone()
    other[0, 6] = 50
    model.config.sparse_prediction = False
    a, b = (model.eval()(input_ids=row, attention_mask=torch.ones_like(row)).logits[0, :6] for row in (ids, other))
    return not torch.allclose(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("model_impl", ["repro", "transformers"])
@pytest.mark.parametrize("objective", ["ltr", "mlm"])
@pytest.mark.parametrize("before", [False, True])
def test_the_objective_decides_the_attention(
    pretrained, short_data, tmp_path, make_run, capsys, objective, model_impl, before
):
    model = copied(pretrained, tmp_path / "model", is_decoder=before)
    given = short_runs.flags("run_pretraining", short_data, tmp_path / "run", model, "--objective", objective)
    run = make_run()
    run.args = parse_arguments(PretrainingArguments, [*given, "--model_impl", model_impl])
    network, _ = build_pretraining_network(
        run, modeling_bert_repro.BertForMaskedLM, AutoTokenizer.from_pretrained(pretrained)
    )
    assert sees_later_tokens(network) == (objective == "mlm")
    now, then = (
        ("left to right", "in both directions") if objective == "ltr" else ("in both directions", "left to right")
    )
    line = f"attention: {now}, as --objective {objective} needs it; the checkpoint attended {then}\n"
    assert (line in capsys.readouterr().out) == (before != (objective == "ltr"))


# --- Weights that do not fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_no_script_trains_random_weights_in_the_place_of_missing_ones(
    pretrained, short_data, tmp_path, monkeypatch, capsys, script
):
    model, output_dir = renamed(pretrained, tmp_path / "model"), tmp_path / "run"
    assert report_errors(lambda: short_runs.start(script, short_runs.flags(script, short_data, output_dir, model))) == 2
    said = capsys.readouterr().err
    assert "with transformers' names and the shapes of its config.json" in said
    assert "such as bert." in said
    assert not (output_dir / "run.json").exists()


@pytest.mark.parametrize(
    ("fields", "example"),
    [
        ({"num_hidden_layers": 3}, r"16 are missing or have another shape, such as bert\.encoder\.layer\.2"),
        ({"intermediate_size": 65}, r"6 are missing or have another shape, such as bert\.encoder\.layer\.0"),
    ],
)
@pytest.mark.parametrize("module", [modeling_bert_repro, transformers])
def test_missing_and_mismatched_weights_are_counted(pretrained, tmp_path, fields, example, module):
    model = copied(pretrained, tmp_path / "model", **fields)
    with pytest.raises(ValueError, match=example):
        load_network(module.BertForPreTraining, str(model))


def test_heads_may_be_new_where_the_caller_allows_it(pretrained, tmp_path):
    bare = tmp_path / "bare"
    modeling_bert_repro.BertModel.from_pretrained(pretrained).save_pretrained(bare)
    found = load_network(modeling_bert_repro.BertForPreTraining, str(bare), ("cls.",))
    assert found.absent == set(found.new) and all(name.startswith("cls.") for name in found.new)
    with pytest.raises(ValueError, match=r"such as cls\.predictions\.bias"):
        load_network(modeling_bert_repro.BertForPreTraining, str(bare), ("cls.seq_relationship.",))


@pytest.mark.parametrize(
    "name", ["attention.self.distance_embedding.weight", "attention.output.adapter.down.weight", "rotary.weight"]
)
@pytest.mark.parametrize("module", [modeling_bert_repro, transformers])
def test_weights_of_the_encoder_without_a_place_are_refused(pretrained, tmp_path, name, module):
    """With relative positions or adapters, a checkpoint computes something else than this network with the rest."""
    model = copied(pretrained, tmp_path / "model")
    weights = load_file(model / "model.safetensors")
    extra = {f"bert.encoder.layer.{number}.{name}": torch.ones(3, 4) for number in range(2)}
    save_file(weights | extra, model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=rf"holds 2 weights .* no place for, such as bert\.encoder\.layer\.0\.{name}"):
        load_network(module.BertForPreTraining, str(model))
    deeper = {
        name.replace("layer.0", "layer.2"): tensor.clone() for name, tensor in weights.items() if "layer.0" in name
    }
    old = {"bert.embeddings.position_ids": torch.arange(64)[None]}
    save_file(weights | deeper | old, model / "model.safetensors", metadata={"format": "pt"})
    assert not load_network(module.BertForPreTraining, str(model)).new  # the first layers of a deeper network


# --- The origin of the weights ----------------------------------------------------------------------------


def hub_cache(folder: Path, name: str, files: Path) -> None:
    """Make a cache of the Hub that looks as if ``files`` had been downloaded under the name."""
    repository = folder / f"models--{name.replace('/', '--')}"
    shutil.copytree(files, repository / "snapshots" / "0123abcd")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_run_json_holds_the_hash_of_the_weights(pretrained, short_data, tmp_path, monkeypatch, script):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    hub_cache(tmp_path / "hub", "someone/small", pretrained)
    expected = {"model.safetensors": sha256(pretrained / "model.safetensors")}
    for number, name in enumerate((pretrained, "someone/small")):
        short_runs.start(script, short_runs.flags(script, short_data, tmp_path / f"run-{number}", name))
        facts = json.loads((tmp_path / f"run-{number}" / "run.json").read_text(encoding="utf-8"))
        assert facts["initial_weights"] == expected


def test_every_file_of_a_split_checkpoint_is_hashed(pretrained, tmp_path, monkeypatch):
    parts = tmp_path / "parts"
    model = modeling_bert_repro.BertForPreTraining.from_pretrained(pretrained)
    model.save_pretrained(parts, max_shard_size="20KB")
    expected = {path.name: sha256(path) for path in sorted(parts.glob("*.safetensors"))}
    assert len(expected) > 2
    assert weights_sha256(str(parts)) == expected
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    hub_cache(tmp_path / "hub", "someone/parts", parts)
    assert weights_sha256("someone/parts") == expected


def test_only_the_file_that_is_loaded_is_hashed(pretrained, tmp_path):
    model = copied(pretrained, tmp_path / "model")
    (model / "pytorch_model.bin").write_bytes(b"another format of the same")
    assert list(weights_sha256(str(model))) == ["model.safetensors"]
    (model / "model.safetensors").unlink()
    assert list(weights_sha256(str(model))) == ["pytorch_model.bin"]
    (model / "pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match=r"expected a checkpoint with weights, found none of model\.safetensors, "):
        weights_sha256(str(model))


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(pretrained, tmp_path, value):
    model = Path(shutil.copytree(pretrained, tmp_path / "model"))
    weights = load_file(model / "model.safetensors")
    weights["bert.encoder.layer.1.output.dense.bias"][3] = value
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"1 of its weights hold NaN .* bert\.encoder\.layer\.1\.output\.dense\.bias"):
        load_network(modeling_bert_repro.BertForPreTraining, str(model))


# --- The class of a folder -----------------------------------------------------------------------------------


SEQUENCE, TOKEN, CHOICE = (
    f"BertFor{name}" for name in ("SequenceClassification", "TokenClassification", "MultipleChoice")
)


@pytest.mark.parametrize(
    ("saved", "opened"), [(SEQUENCE, TOKEN), (TOKEN, SEQUENCE), (CHOICE, SEQUENCE), (SEQUENCE, CHOICE)]
)
def test_the_classifier_of_another_class_is_not_taken(pretrained, tmp_path, saved, opened):
    """Its weights have the same names and shapes. A head that may be new is drawn anew; otherwise it is refused."""
    folder = save_model(tmp_path / "model", pretrained, saved, modeling_bert_repro, num_labels=1)
    cls = getattr(modeling_bert_repro, opened)
    before = load_file(folder / "model.safetensors")["classifier.weight"]
    model, new, absent = load_network(cls, str(folder), ("classifier.", "bert.pooler."))
    assert {"classifier.bias", "classifier.weight"} <= set(new) - absent
    assert not torch.equal(model.classifier.weight, before) and not model.classifier.bias.any()
    with pytest.raises(ValueError, match=f"weights of a {opened}, .* it is a {saved}, which is opened by run"):
        load_network(cls, str(folder))
    same = load_network(getattr(modeling_bert_repro, saved), str(folder), ("classifier.",))
    assert not same.new and torch.equal(same.model.classifier.weight, before)


# --- Files that change ------------------------------------------------------------------------------------


def keeps_its_weights(folder: Path, name: str) -> bool:
    file, ids = folder / name, torch.arange(8)[None]
    heads = modeling_bert_repro.BertForSequenceClassification, transformers.BertForSequenceClassification
    models = [load_network(head, str(folder)).model.eval() for head in heads]
    ask = torch.inference_mode()(lambda: [model(input_ids=ids).logits.tolist() for model in models])
    before, same = ask(), []
    for size in (file.stat().st_size, 100, 0):
        file.open("r+b").write(bytes(size))
        os.truncate(file, size)
        same.append(ask() == before)
    return all(same)


@pytest.mark.parametrize("file", ["model.safetensors", pytest.param("pytorch_model.bin", marks=pytest.mark.slow)])
def test_a_network_does_not_follow_what_becomes_of_its_file(tmp_path, pretrained, file):
    """Zeros are written into it, and then it is cut short, which would be the end of a process that reads its map."""
    folder = save_model(tmp_path / "model", pretrained, "BertForSequenceClassification")
    if file.endswith(".bin"):
        torch.save(load_file(folder / "model.safetensors"), folder / file)
        (folder / "model.safetensors").unlink()
    child = os.fork()
    if not child:
        try:
            os._exit(0 if keeps_its_weights(folder, file) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

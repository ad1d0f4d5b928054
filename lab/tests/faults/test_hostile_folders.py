"""Folders from a stranger whose records name paths elsewhere, or which hold code: nothing is followed or executed."""

import io
import json
import pickle
import random
import shutil
from pathlib import Path

import pytest
import torch

from bert_training.files.hashing import sha256
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.hostile_input import MARKER, SECONDS, Malice, refused, unharmed
from tests.helpers import short_runs
from tests.helpers.fault_runs import run
from tests.helpers.model_folders import edit_json
from tests.helpers.records import write_summary

SECRET = "outside"  # the folder that no run may look into
EVIL = f"open({MARKER!r}, 'w').close()\nclass Evil:\n    pass\n"


class Place:
    """What a case gets: the folders of a valid model and a valid run to change, and a folder outside of them.

    Attributes:
        folder: the current folder of the run.
        model: a copy of a model.
        finished: a copy of a finished pre-training with two checkpoints.
        outside: valid files, and a secret one.
    """

    def __init__(self, folder: Path, pretrained: Path, finished: Path, data: Path):
        self.folder, self.data = folder, data
        self.model, self.finished = folder / "model", folder / "finished"
        self.outside = folder / SECRET
        shutil.copytree(pretrained, self.model)
        shutil.copytree(finished, self.finished)
        shutil.copytree(pretrained, self.outside)
        (self.outside / "secret").write_text("private\n")

    def start(self, *more: str, script: str = "run_glue") -> tuple[str, list[str]]:
        return script, short_runs.flags(script, self.data, self.folder / "out", self.model, *more)


@pytest.fixture(scope="module")
def finished(short_data, pretrained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    words = short_runs.flags("run_pretraining", short_data, folder / "run", pretrained)
    words[words.index("--save_steps") + 1] = "1"
    ended = run("run_pretraining", words, folder)
    assert ended.status == 0, ended.printed
    assert (folder / "run/checkpoint-1").is_dir()
    return folder / "run"


# --- paths ------------------------------------------------------------------------------------------------------


def index(place: Place, name: str, file: str = "model.safetensors.index.json") -> tuple:
    (place.model / "model.safetensors").unlink()
    (place.model / file).write_text(json.dumps({"metadata": {}, "weight_map": {"x": name}}))
    return *place.start(), "nothing outside its folder is read"


def manifest(place: Place, name: str, asked: str) -> tuple:
    path = place.finished / "checkpoint-1/manifest.json"
    digests = json.loads(path.read_text())["sha256"] | {name: sha256(place.outside / "secret")}
    path.write_text(json.dumps({"sha256": digests}))
    shutil.rmtree(place.finished / "checkpoint-2", ignore_errors=True)
    for file in ("all_results.json", "hashes.json"):
        (place.finished / file).unlink()
    words = short_runs.flags("run_pretraining", place.data, place.finished, place.model)
    words[words.index("--save_steps") + 1] = "1"
    asked = asked if asked == "auto" else str(place.finished / "checkpoint-1")
    word = "is no file of this folder"
    return (
        "run_pretraining",
        [*words, "--resume_from_checkpoint", asked],
        word if asked != "auto" else f"ignoring:{word}",
    )


def summary(place: Place, **fields: object) -> Path:
    series = place.folder / "series"
    series.mkdir()
    write_summary(series, **fields)
    return series


def report(place: Place, name: object) -> tuple:
    series = summary(place, runs=[{"folder": name}])
    return "bert_training", ["report", str(series), "--output_dir", str(place.folder / "out")], "in folders beside it"


def submission(place: Place) -> tuple:
    series = summary(place, runs={}, best={"folder": f"../{SECRET}"})
    (place.outside / "CoLA.tsv").write_text("index\tprediction\n")
    return "bert_training", ["submission", str(series), "--output", "x.zip"], "the name of a folder beside it"


def modules(place: Place, path: str) -> tuple:
    (place.model / "config.json").unlink()
    (place.model / "modules.json").write_text(json.dumps([{"type": "x.Transformer", "path": path}]))
    return *place.start(), "modules.json"


def uploaded_code(place: Place) -> tuple:
    (place.outside / "keys.py").write_text("key = 1\n")
    names = {"A": f"{place.outside}/keys.Model", "B": f"../{SECRET}/keys.Model", "C": ["x"], "D": "../.Model"}
    edit_json(place.finished / "config.json", auto_map=names)
    return (
        "bert_training",
        ["upload", str(place.finished), "--hub_model_id", "a/b", "--hub_dry_run"],
        "lists: config.json",
    )


def hashes(place: Place) -> tuple:
    content = {"sha256": {f"../{SECRET}/secret": sha256(place.outside / "secret"), "/etc/passwd": "0"}}
    (place.finished / "hashes.json").write_text(json.dumps(content))
    return "bert_training", ["verify", str(place.finished), "--skip_evaluation"], "differs"


def named_tokenizer(place: Place) -> tuple:
    named = {"tokenizer_file": str(place.outside / "tokenizer.json"), "vocab_file": f"../{SECRET}/vocab.txt"}
    edit_json(place.model / "tokenizer_config.json", name_or_path=str(place.outside), **named)
    edit_json(place.model / "config.json", _name_or_path=str(place.outside), name_or_path=f"../{SECRET}")
    return *place.start(), None


def adapter(place: Place) -> tuple:
    (place.model / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(place.outside)}))
    return *place.start(), "adapter"


def plan(place: Place) -> tuple:
    (place.folder / "table").mkdir()
    cells = {f"../../{SECRET}": ["run_glue.py", "--output_dir", f"../{SECRET}"]}
    (place.folder / "table/plan.json").write_text(json.dumps({"table": "5", "files": {"../x": "0"}, "cells": cells}))
    words = ["--table", "5", "--smoke", "--output_dir", str(place.folder / "table")]
    return "lab.run_paper", words, "holds another plan"


def loop_of_links(place: Place) -> tuple:
    path = place.folder / "l.csv"
    path.symlink_to(path)
    script, words = place.start(script="run_glue")
    words[words.index("--train_file") + 1] = str(path)
    return script, words, str(path)


PATHS = {
    "index climbs": lambda place: index(place, f"../{SECRET}/model.safetensors"),
    "index is absolute": lambda place: index(place, str(place.outside / "model.safetensors")),
    "index has a NUL": lambda place: index(place, "model.safetensors\0"),
    "index of pickles climbs": lambda place: index(place, "../x.bin", "pytorch_model.bin.index.json"),
    "manifest climbs": lambda place: manifest(place, f"../../{SECRET}/secret", "named"),
    "manifest is absolute": lambda place: manifest(place, str(place.outside / "secret"), "named"),
    "manifest climbs, auto": lambda place: manifest(place, f"../../{SECRET}/secret", "auto"),
    "series climbs": lambda place: report(place, f"../{SECRET}"),
    "series is absolute": lambda place: report(place, str(place.outside)),
    "series is no text": lambda place: report(place, {"a": 1}),
    "submission climbs": submission,
    "modules climb": lambda place: modules(place, f"../{SECRET}"),
    "modules are absolute": lambda place: modules(place, str(place.outside)),
    "upload of code elsewhere": uploaded_code,
    "hashes climb": hashes,
    "tokenizer named elsewhere": named_tokenizer,
    "adapter of a model elsewhere": adapter,
    "plan climbs": plan,
    "loop of links": loop_of_links,
}


def outcome(place: Place, case: tuple) -> str:
    """Run a case, check that it was refused or harmless as the case says, and return which."""
    script, words, word = case
    before = {path: path.read_bytes() for path in place.outside.rglob("*") if path.is_file()}
    watched = {"record": str(place.folder / "watched"), "outside": str(place.outside)}
    ended = run(
        script,
        words,
        place.folder,
        prepare=[("lab.tests.helpers.hostile_input:watch", watched)],
        seconds=SECONDS,
    )
    unharmed(place.folder)
    assert {path: path.read_bytes() for path in place.outside.rglob("*") if path.is_file()} == before
    assert "Traceback" not in ended.printed, ended.printed[-3000:]
    if word is None:
        assert ended.status == 0, ended.printed[-2000:]
        return "harmless: it is not read"
    if word == "differs":
        assert ended.status == 1 and "differs" in ended.printed and "file is missing" in ended.printed
        return "found"
    if word.startswith("ignoring:"):
        assert ended.status == 0 and word.partition(":")[2] in ended.printed, ended.printed[-2000:]
        return "passed over, and said so"
    if word.startswith("lists: "):
        assert ended.status == 0 and word.partition(" ")[2] in ended.printed and "keys" not in ended.printed
        return "harmless: it is not read"
    if "|" in word:
        assert ended.status == 2 and all(part in ended.printed for part in word.split("|")), ended.printed
        return "refused"
    refused(ended, word)
    return "refused"


@faults("hostile input", 20)
def test_no_path_leads_out_of_a_folder(seed, short_data, pretrained, finished, tmp_path, record_property):
    name = random.Random(2).sample(sorted(PATHS), len(PATHS))[seed]
    place = Place(tmp_path, pretrained, finished, short_data)
    record_property("outcome", outcome(place, PATHS[name](place)))


# --- code -------------------------------------------------------------------------------------------------------


def pickled(place: Place, name: str, write) -> tuple:
    (place.model / "model.safetensors").unlink()
    write(place.model / name)
    return *place.start(), "model"


def weights_file(place: Place, name: str, content: object, old: bool = False) -> tuple:
    path = place.folder / name
    torch.save(content, path, _use_new_zipfile_serialization=not old)
    shutil.copy(place.model / "config.json", place.folder)
    shutil.copy(place.model / "vocab.txt", place.folder)
    return "bert_training", ["convert", str(path), str(place.folder / "out")], name


def state(place: Place) -> tuple:
    checkpoint = place.finished / "checkpoint-1"
    torch.save({"step": 1, "optimizer": Malice()}, checkpoint / "training_state.pt")
    path = checkpoint / "manifest.json"
    digests = json.loads(path.read_text())["sha256"] | {"training_state.pt": sha256(checkpoint / "training_state.pt")}
    path.write_text(json.dumps({"sha256": digests}))
    for file in ("all_results.json", "hashes.json"):
        (place.finished / file).unlink()
    words = short_runs.flags("run_pretraining", place.data, place.finished, place.model)
    words[words.index("--save_steps") + 1] = "1"
    return "run_pretraining", [*words, "--resume_from_checkpoint", str(checkpoint)], "training_state.pt"


def code(place: Place, word: str | None, file: str = "config.json", **fields: object) -> tuple:
    for name in ("evil", "pipeline", "tokenizer", "config", "generate"):
        (place.model / f"{name}.py").write_text(EVIL)
    (place.model / "custom_generate").mkdir()
    (place.model / "custom_generate/generate.py").write_text(EVIL)
    edit_json(place.model / file, **fields)
    return *place.start(), word


def template(place: Place) -> tuple:
    text = "{% for a in range(10**9) %}{% endfor %}{{ ''.__class__.__mro__[1].__subclasses__() }}"
    (place.model / "chat_template.jinja").write_text(text)
    (place.model / "generation_config.json").write_text(
        json.dumps({"custom_generate": "evil/repo", "max_length": 10**12})
    )
    return code(place, None, "tokenizer_config.json", chat_template=text)


def beside(place: Place) -> tuple:
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "pytorch_model.bin"):
        (place.model / name).write_bytes(pickle.dumps(Malice()))
    return *place.start(), None


def dump(path: Path) -> None:
    path.write_bytes(pickle.dumps({"bert.embeddings.word_embeddings.weight": Malice()}))


CODE = {
    "pickle": lambda place: pickled(place, "pytorch_model.bin", dump),
    "pickle of torch": lambda place: pickled(place, "pytorch_model.bin", lambda path: torch.save(Malice(), path)),
    "pickle as safetensors": lambda place: pickled(place, "model.safetensors", dump),
    "torch as safetensors": lambda place: pickled(place, "model.safetensors", lambda path: torch.save(Malice(), path)),
    "NVIDIA's file": lambda place: weights_file(place, "bert.pt", {"model": {"a": Malice()}, "epoch": 1}),
    "a file of old torch": lambda place: weights_file(place, "bert.pth", {"a": Malice()}, old=True),
    "a bin file": lambda place: weights_file(place, "bert.bin", Malice()),
    "state of a checkpoint": state,
    "other files": beside,
    "own kind of model": lambda place: code(
        place, "model_type", model_type="evil", auto_map={"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}
    ),
    "auto_map": lambda place: code(
        place, None, auto_map={"AutoConfig": "evil.Evil", "AutoModelForSequenceClassification": "evil.Evil"}
    ),
    "auto_map of a repository": lambda place: code(place, None, auto_map={"AutoConfig": "a/evil--evil.Evil"}),
    "own tokenizer": lambda place: code(
        place,
        None,
        "tokenizer_config.json",
        tokenizer_class="Evil",
        auto_map={"AutoTokenizer": ["tokenizer.Evil", "tokenizer.Evil"]},
    ),
    "own pipeline": lambda place: code(
        place, None, custom_pipelines={"text-classification": {"impl": "pipeline.Evil", "pt": ["AutoModel"]}}
    ),
    "templates": template,
    "kernel": lambda place: code(place, "code of the Hub", attn_implementation="evil/kernel"),
}


@faults("hostile input", 17)
def test_no_code_of_a_stranger_is_executed(seed, short_data, pretrained, finished, tmp_path, record_property):
    name = random.Random(3).sample(sorted(CODE), len(CODE))[seed]
    place = Place(tmp_path, pretrained, finished, short_data)
    record_property("outcome", outcome(place, CODE[name](place)))


def test_the_malice_works(tmp_path, monkeypatch):
    """Without it, the test above would show nothing."""
    monkeypatch.chdir(tmp_path)
    pickle.load(io.BytesIO(pickle.dumps(Malice()))).close()
    with pytest.raises(AssertionError):
        unharmed(tmp_path)

"""Folders from a stranger whose records name paths elsewhere, or which hold code: nothing is followed or executed."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from bert_training.files.hashing import sha256
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.fault_runs import run
from lab.tests.helpers.hostile_input import MARKER, SECONDS, Malice, unharmed
from tests.helpers import short_runs
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


# --- paths ---


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


def report(place: Place, name: str) -> tuple:
    (place.folder / "series").mkdir()
    write_summary(place.folder / "series", runs=[{"folder": name}])
    return "bert_training", ["report", "series", "--output_dir", "out"], "in folders beside it"


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


# --- code ---


def pickled(place: Place, name: str, write) -> tuple:
    (place.model / "model.safetensors").unlink()
    write(place.model / name)
    return *place.start(), "model"


def weights_file(place: Place, name: str, content: object) -> tuple:
    path = place.folder / name
    torch.save(content, path)
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
    text = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    (place.model / "chat_template.jinja").write_text(text)
    (place.model / "generation_config.json").write_text(json.dumps({"custom_generate": "evil/repo"}))
    return code(place, None, "tokenizer_config.json", chat_template=text)


def beside(place: Place) -> tuple:
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "pytorch_model.bin"):
        (place.model / name).write_bytes(pickle.dumps(Malice()))
    return *place.start(), None


def dump(path: Path) -> None:
    path.write_bytes(pickle.dumps({"bert.embeddings.word_embeddings.weight": Malice()}))


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
    if word is None:
        assert ended.status == 0, ended.printed[-2000:]
        return "harmless: it is not read"
    if word == "differs":
        assert ended.status == 1 and "differs" in ended.printed, ended.printed
        return "found"
    if word.startswith("ignoring:"):
        assert ended.status == 0 and word.partition(":")[2] in ended.printed, ended.printed[-2000:]
        return "passed over, and said so"
    if word.startswith("lists: "):
        assert ended.status == 0 and word.partition(" ")[2] in ended.printed and "keys" not in ended.printed
        return "harmless: it is not read"
    assert ended.status in (1, 2) and word in ended.printed and not ended.timed_out, ended.printed[-2000:]
    return "refused"


CASES = {
    "index climbs": lambda place: index(place, f"../{SECRET}/model.safetensors"),
    "index is absolute": lambda place: index(place, str(place.outside / "model.safetensors")),
    "index of pickles climbs": lambda place: index(place, "../x.bin", "pytorch_model.bin.index.json"),
    "manifest climbs": lambda place: manifest(place, f"../../{SECRET}/secret", "named"),
    "manifest is absolute": lambda place: manifest(place, str(place.outside / "secret"), "named"),
    "manifest climbs, auto": lambda place: manifest(place, f"../../{SECRET}/secret", "auto"),
    "series climbs": lambda place: report(place, f"../{SECRET}"),
    "series is absolute": lambda place: report(place, str(place.outside)),
    "modules climb": lambda place: modules(place, f"../{SECRET}"),
    "upload of code elsewhere": uploaded_code,
    "hashes climb": hashes,
    "pickle": lambda place: pickled(place, "pytorch_model.bin", dump),
    "pickle as safetensors": lambda place: pickled(place, "model.safetensors", dump),
    "an old file of weights": lambda place: weights_file(place, "bert.pt", {"model": {"a": Malice()}, "epoch": 1}),
    "state of a checkpoint": state,
    "other files": beside,
    "auto_map": lambda place: code(
        place, None, auto_map={"AutoConfig": "evil.Evil", "AutoModelForSequenceClassification": "evil.Evil"}
    ),
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
}


@faults("hostile input", len(CASES))
def test_nothing_is_followed_or_executed(seed, short_data, pretrained, finished, tmp_path, record_property):
    place = Place(tmp_path, pretrained, finished, short_data)
    record_property("outcome", outcome(place, list(CASES.values())[seed](place)))


def test_the_malice_works(tmp_path, monkeypatch):
    """Without it, the test above would show nothing."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Malice())).close()
    with pytest.raises(AssertionError):
        unharmed(tmp_path)

"""bert_training/cards/publishing.py: no folder of the machine in a card or an upload, whatever it is called."""

import dataclasses
import itertools
import json
import typing
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert_training.cards.model_card import write_model_card
from bert_training.cards.publishing import published, published_config, published_name, without_folders
from bert_training.engine.launch import names_on_hub
from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record
from bert_training.inputs.flags.scripts import SCRIPTS
from tests.helpers.published import write_published

# Part of the name of every folder below; no program spells letters and digits in another way.
SECRET = "zq7secret"
NASTY = [
    *("jane {} o'neil", 'a "{}"', "{}|x", "`{}`", "<{}", "{} é 中\u202e", "{}\nx", "100% {}", "%41{}", "{}~", "~{}"),
    *("$({})", "{}=x", "--{}", "{}, x", "[{}](y)", "# {}", "- {}: x", "*{}*", "{{{}}}", "&{};", "'{}", "{}\tx", "Ⅷ{}"),
]
ROOTS = ["/", "/home/anna/", "~/", "../", "./", "", "C:\\Users\\", "\\\\host\\", "file:///", "hf://"]
NO_PATHS = ("objective", "hub_model_id", "dataset_config_name", "text_column", "label_column", "phases", "task_name")
NO_PATHS += ("id_column", "weight_column", "group_column", "label_separator", "metric_for_best_model")
METRICS = {"eval_loss": 1.0, "eval_accuracy": 0.5, "eval_f1": 0.5, "train_steps": 2}


def path_flags(script: str) -> list[str]:
    """The flags that take any text, among them all that take a path."""
    hints = typing.get_type_hints(SCRIPTS[script].arguments)
    texts = [name for name, kind in hints.items() if kind in (str, str | None, list[str])]
    assert {"output_dir", "train_file", "validation_file", "model_name_or_path", "tokenizer_name"} <= {*texts}
    return [name for name in texts if name not in NO_PATHS]


def hostile_run(script: str, folder: str, joined: bool) -> dict:
    """A run.json with paths below ``folder`` wherever one may stand."""
    defaults = {
        one.name: [] if one.default is dataclasses.MISSING else one.default
        for one in dataclasses.fields(SCRIPTS[script].arguments)
    }
    hints = typing.get_type_hints(SCRIPTS[script].arguments)
    given = {name: f"{folder}/{name}.txt" for name in path_flags(script)}
    values = {name: [path] if hints[name] == list[str] else path for name, path in given.items()}
    words = [[f"--{name}={path}"] if joined else [f"--{name}", path] for name, path in given.items()]
    command = [script, *itertools.chain(*words), f"--of_another={folder}/x"]
    split = {"examples": 3, "source": f"{folder}/train.tsv", "sha256": "0"}
    data: dict | list = {"task": "custom", "labels": ["and/or"], "splits": {"train": split, "validation": split}}
    if script == "run_pretraining.py":
        data = [{"name": f"{folder}/text", "sha256": "0"}]
    return {
        "format": 1,
        "script": script,
        "flags": defaults | {"max_seq_length": 64, "max_steps": 2} | values,
        "command": command,
        "hub_names": [],
        "data": data,
        "text_forms": {f"{folder}/file.txt": "articles"},
        "earlier": [{"command": command}],
        "new_fact": {"deep": [f"{folder}/x"]},
    }


def finished(folder: Path, run: dict) -> Path:
    """The finished folder of such a run, with its card; the data has the name of a folder."""
    folder.mkdir(parents=True)
    write_json(folder / "run.json", run)
    for name in ("config.json", "tokenizer_config.json"):
        write_json(folder / name, {"_name_or_path": run["flags"]["output_dir"], "x": "a/b"})
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "metrics.jsonl").write_text("")
    data = f"{run['flags']['output_dir']}/data set"
    write_model_card(folder, datasets=[data], metrics=METRICS, held_out=data)
    seal(folder)
    return folder


def seal(folder: Path) -> None:
    write_json(folder / "all_results.json", METRICS)
    write_json(folder / HASHES, hashes_record(hashes_of(folder)))


def sent(folder: Path, target: Path) -> dict[str, str]:
    write_published(folder, target, "you/name")
    return {path.name: path.read_text(encoding="utf-8") for path in target.iterdir()}


names = st.sampled_from(NASTY) | st.tuples(st.text(max_size=5), st.text(max_size=5)).map(
    lambda ends: "{}".join(end.replace("{", "").replace("}", "").replace("\0", "") for end in ends)
)


@pytest.mark.parametrize("script", SCRIPTS)
@settings(max_examples=2, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(parts=st.lists(names, min_size=1, max_size=9), root=st.sampled_from(ROOTS), joined=st.booleans())
def test_no_folder_is_published(script, parts, root, joined, tmp_path_factory):
    below = "/".join(part.format(SECRET) for part in parts)
    run = hostile_run(script, root + below.encode("utf-8", "replace").decode(), joined)
    folder = finished(tmp_path_factory.mktemp("x") / "run", run)
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert SECRET not in card.lower() and "name: data set\n" in card and "model_name_or_path.txt" in card
    for name, text in sent(folder, folder.parent / "sent").items():
        assert SECRET not in text.lower(), name
    assert json.loads((folder / "run.json").read_text()) == run  # by which it is resumed


def test_no_query_of_an_address_is_published():
    """It may hold a signature."""
    url = "https://bucket.s3/private/corpus.txt?X-Amz-Credential=a%2Fb&X-Amz-Signature=c/d"
    run = {"flags": {"train_file": [url]}, "command": ["run_pretraining.py", "--train_file", url], "hub_names": []}
    shown = published(run)
    assert "Amz" not in json.dumps(shown) and shown["flags"]["train_file"] == ["corpus.txt"]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        *(("a.txt", "a.txt"), ("/x/a b.txt", "a b.txt"), ("../x/", "x"), ("C:\\me\\a.txt", "a.txt"), ("/", "/")),
        *(("", ""), ("..", ".."), ("~/x", "x"), ("x/..", ".."), ("a//b///", "b"), ("\\\\host\\share\\", "share")),
    ],
)
def test_a_path_without_its_folders(path, shown):
    assert without_folders(path) == shown


def test_names_on_the_hub_stay_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/base").mkdir(parents=True)
    flags = {"model_name_or_path": "google-bert/bert-base-uncased", "tokenizer_name": "runs/base", "output_dir": "a/b"}
    flags |= {"dataset_name": "/data/x", "text_column": ["and/or"], "hub_model_id": "you/name", "train_file": "me/x"}
    flags |= {"label_separator": " / ", "metric_for_best_model": "eval_f1:Drama/Comedy"}
    assert names_on_hub(flags) == ["google-bert/bert-base-uncased"]
    (tmp_path / "google").mkdir()
    (tmp_path / "google/bert_model.ckpt.index").touch()
    assert names_on_hub({"model_name_or_path": "google/bert_model.ckpt"}) == []
    assert names_on_hub({"model_name_or_path": "../x", "dataset_name": "x" * 5000, "tokenizer_name": None}) == []
    command = ["run_glue.py", "--model-name-or-path=google-bert/bert-base-uncased", "--text_column", "and/or", "x/y"]
    command[1:1] = ["--label_separator", " / ", "--metric_for_best_model=eval_f1:Drama/Comedy"]
    run = published({"flags": flags, "command": command, "hub_names": names_on_hub(flags)})
    assert published(run) == run
    assert run["command"] == [*command[:-1], "x/y"]  # one more name of a column
    shown = {"tokenizer_name": "base", "output_dir": "b", "dataset_name": "x", "train_file": "x"}
    assert run["flags"] == flags | shown
    assert published_name("nyu-mll/glue mrpc train", []) == "nyu-mll/glue mrpc train"
    assert published_name("a/b me/x", ["a/b"]) == "a/b x"


def test_what_is_uploaded_of_configs_is_sealed_anew(tmp_path):
    assert published_config(["x/y"]) == ["x/y"] and published_config({"name_or_path": None}) == {"name_or_path": None}
    folder = finished(tmp_path / "run", hostile_run("run_ner.py", f"/{SECRET}", True))
    texts = sent(folder, tmp_path / "sent")
    assert json.loads(texts["config.json"]) == {"_name_or_path": "output_dir.txt", "x": "a/b"}
    assert json.loads(texts[HASHES])["sha256"] == hashes_of(tmp_path / "sent")
    (folder / "run.json").write_text(
        json.dumps({"format": 1, "script": "run_ner.py", "flags": {"output_dir": f"/{SECRET}/run"}, "hub_names": []})
    )
    changed = json.loads(sent(folder, tmp_path / "again")[HASHES])["sha256"]
    assert changed["run.json"] != hashes_of(tmp_path / "again")["run.json"]  # still visible

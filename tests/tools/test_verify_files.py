"""bert_training/tools/verify_files.py: altered, missing and additional files of finished folders are found."""

import hashlib
import json
import os
import random
import shutil

import pytest
import transformers
from safetensors.torch import load_file, save_file
from transformers import BertConfig

from bert_training.__main__ import COMMANDS
from bert_training.__main__ import main as command
from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashed_files, sha256
from bert_training.files.weights_header import name_of_today
from bert_training.tools.findings import DIFFERS, UNKNOWN
from bert_training.tools.verify_files import _named_code
from modeling_bert_repro.heads import BertForTokenClassification
from modeling_bert_repro.lstm_heads import BertBiLSTMForTokenClassification, BertFeatureTagger
from modeling_bert_repro.pretrained import AUTO_MAP
from tests.helpers import short_runs
from tests.helpers.finished_folders import findings_of, forge, wrong
from tests.helpers.old_names import names_in, with_old_names

ALTERED_BYTES = 10


def test_the_hashes_cover_every_file_and_a_copy_is_as_good(finished_runs, copy_of_run):
    for script, place in finished_runs.items():
        recorded = json.loads((place / HASHES).read_text())["sha256"]
        files = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()} - {HASHES}
        assert recorded.keys() == files, script
        assert all(hashlib.sha256((place / name).read_bytes()).hexdigest() == recorded[name] for name in files)
    assert not wrong(copy_of_run("run_pretraining"))


def test_every_altered_byte_is_found_and_its_file_named(copy_of_run):
    rng = random.Random(0)
    places = [copy_of_run(script) for script in short_runs.SCRIPTS]
    missed = []
    for number in range(ALTERED_BYTES):
        place = places[number % len(places)]
        name, path = rng.choice(sorted({**hashed_files(place), HASHES: place / HASHES}.items()))
        before = path.read_bytes()
        at = rng.randrange(len(before))
        path.write_bytes(before[:at] + bytes([before[at] ^ rng.randrange(1, 256)]) + before[at + 1 :])
        if not any(line.split("  ", 1)[1].strip().startswith(f"{name}:") for line in wrong(place)):
            missed.append((str(path), at))
        path.write_bytes(before)
    assert missed == []
    assert not any(map(wrong, places))


def test_swapped_missing_and_additional_files_are_named(copy_of_run):
    place = copy_of_run("run_squad")
    one, other = place / "predictions.json", place / "null_odds.json"
    texts = one.read_bytes(), other.read_bytes()
    one.write_bytes(texts[1]), other.write_bytes(texts[0])
    lines = "\n".join(wrong(place))
    assert "predictions.json: the file has changed" in lines and "null_odds.json: the file has changed" in lines
    one.write_bytes(texts[0]), other.write_bytes(texts[1])
    assert not wrong(place)
    (place / "vocab.txt").unlink()
    (place / "adapter_config.json").write_text("{}")
    (place / "features" / "a.npz").write_text("")
    lines = "\n".join(wrong(place))
    assert "vocab.txt: the file is missing" in lines and "adapter_config.json: an additional file" in lines
    assert "features/a.npz: an additional file" in lines


def test_files_that_are_not_of_the_run_are_ignored_and_caches_may_be_deleted(copy_of_run):
    for script, cache in (("run_squad", "features"), ("run_pretraining", "corpus")):
        place = copy_of_run(script)
        for name in (
            ".gitattributes",
            ".cache/huggingface/x",
            "train.log",
            "nohup.out",
            "a.tmp",
            "runs/events.out.1",
            "nested/run.json",
        ):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("x")
        shutil.rmtree(place / cache)
        assert not wrong(place)
        absent = [f.claim for f in findings_of(place) if f.verdict == UNKNOWN and "it may be deleted" in f.reason]
        assert absent and all(claim.startswith(f"{cache}/") for claim in absent)


@pytest.mark.usefixtures("no_pictures")
def test_checkpoints_are_compared_with_their_own_manifests(pretrained, run_data, tmp_path):
    flags = short_runs.flags("run_glue", run_data, tmp_path / "run", pretrained, "--save_steps", "1")
    short_runs.start("run_glue", flags)
    run = tmp_path / "run"
    of_checkpoints = [f.claim for f in findings_of(run) if f.claim.startswith("checkpoint")]
    assert of_checkpoints == ["checkpoint-1/", "checkpoint-2/", "checkpoint-1/code files", "checkpoint-2/code files"]
    path = run / "checkpoint-2" / "training_state.pt"
    path.write_bytes(path.read_bytes()[:-1])
    (line,) = wrong(run)
    assert "checkpoint-2/: training_state.pt does not match its checksum" in line
    change_json(run / "checkpoint-1" / "config.json", auto_map={"AutoModel": "a/evil--net.Net"})
    lines = "\n".join(wrong(run))
    assert "checkpoint-1/config.json, auto_map: not the 8 entries" in lines and "repository a/evil would run" in lines
    (run / "checkpoint-1" / "heads.py").unlink()
    (run / "checkpoint-1" / "heads.py").symlink_to("/proc/self/environ")
    assert "checkpoint-1/heads.py: a link out of the folder" in "\n".join(wrong(run))
    (run / "checkpoint-1").rename(tmp_path / "moved")
    (run / "checkpoint-1").symlink_to(tmp_path / "moved")
    assert "checkpoint-1/: a link out of the folder" in "\n".join(f.line() for f in findings_of(run))


# The commands that are given the folder of a run, with the script of the run and further words. "{}" is the folder.
GIVEN_A_FOLDER = {
    "curves": ("run_pretraining", "{}"),
    "audit": ("run_pretraining", "{}"),
    "show": ("run_pretraining", "{} --step 1"),
    "doctor": ("run_pretraining", "{}"),
    "report": ("run_squad", "{} --output_dir {}"),
    "score": ("run_squad", "{data}/run_squad.json {}/predictions.json --version_2_with_negative"),
    "ask": ("run_squad", "--model {} --question house --context house"),
    "app": ("run_squad", "--model {} --space {new}"),
    "convert": ("run_squad", "{} {new}"),
    "upload": ("run_squad", "{} --hub_model_id you/name --hub_dry_run"),
    "verify": ("run_squad", "{} --skip_evaluation"),
    "submission": ("run_glue", "zip {} --output {new}"),
}
# The last two are tested with copies of their own.
NOT_GIVEN_A_FOLDER = {"builtin_data", "plan", "vocabulary", "corpus", "export", "serve"}


def test_every_command_is_among_those_that_are_tried():
    assert set(COMMANDS) == GIVEN_A_FOLDER.keys() | NOT_GIVEN_A_FOLDER


# The next test has audit and curves.
@pytest.mark.parametrize("name", sorted({*GIVEN_A_FOLDER} - {"audit", "curves"}))
def test_no_command_of_this_project_makes_the_folder_differ(copy_of_run, run_data, tmp_path, name):
    if name == "app":
        pytest.importorskip("gradio")
    script, words = GIVEN_A_FOLDER[name]
    place = copy_of_run(script)
    given = [word.format(place, data=run_data, new=tmp_path / "new") for word in words.split()]
    assert command([name, *given]) in ((0, 2) if name == "submission" else (0,))
    assert not wrong(place)


def test_pictures_are_named_and_strangers_files_are_differences(copy_of_run):
    place = copy_of_run("run_pretraining")
    assert command(["audit", str(place)]) == command(["curves", str(place)]) == 0
    lines = [finding.line() for finding in findings_of(place)]
    assert f"{UNKNOWN}  data_audit.png: bert-repro audit writes a file of this name, which nothing reads" in lines
    assert any("training_curves.png: bert-repro curves writes a file of this name" in line for line in lines)
    (place / "data_audit_128_1.png").write_bytes((place / "data_audit.png").read_bytes())  # of a mixture
    others = ("data_audit.json", "data_audit_x.png", "my_data_audit.png", "report.bin", "audit.png", "notes.txt")
    for name in others:
        (place / name).write_bytes((place / "data_audit.png").read_bytes())
    additional = [line for line in wrong(place) if "an additional file" in line]
    assert sorted(line.split("  ", 1)[1].strip().partition(":")[0] for line in additional) == sorted(others)


def test_old_names_of_tensors_are_named(copy_of_run, tmp_path):
    """An earlier version kept the names of the weights that a run began with; the remedy gives today's."""
    place = copy_of_run("run_glue")
    path = place / "model.safetensors"
    save_file(with_old_names(load_file(path)), path, {"format": "pt"})
    forge(place)
    (line,) = wrong(place)
    assert "names of the tensors: 10 are older ones, such as bert.embeddings.LayerNorm.beta: the run kept" in line
    assert command(["convert", str(place), str(tmp_path / "new")]) == 0
    assert names_in(tmp_path / "new") == {name_of_today(name) for name in names_in(place)} != names_in(place)


# --- what a stranger's folder may hold and name ----------------------------------------------------------------------


def change_json(path, **fields) -> None:
    write_json(path, json.loads(path.read_text()) | fields)


@pytest.mark.parametrize(
    ("name", "fields", "would_run"),
    [
        ("config.json", {"auto_map": {"AutoModel": "a/evil--net.Net"}}, "net.py of the repository a/evil would run"),
        ("config.json", {"auto_map": AUTO_MAP | {"AutoConfig": "sub/mod.Net"}}, "sub/mod.py of this folder would run"),
        ("config.json", {"auto_map": {}}, "not the 8 entries that a run writes; it names no other code"),
        ("config.json", {"custom_pipelines": {"x": {"impl": "pipe.Evil"}}}, "pipe.py of this folder would run"),
        ("config.json", {"attn_implementation": "a/kernel"}, "would fetch a/kernel from the Hub and run it"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["a/b--t.T", None]}}, "t.py of the repository a/b"),
        ("tokenizer_config.json", {"auto_map": ["t.T", None]}, "t.py of this folder would run"),
        ("processor_config.json", {"image_processor": {"auto_map": {"A": "p.P"}}}, "p.py of this folder would run"),
    ],
)
def test_code_that_a_config_names_is_found_also_behind_new_hashes(copy_of_run, name, fields, would_run):
    place = copy_of_run("run_glue")
    if not (place / name).exists():
        (place / name).write_text("{}")
    change_json(place / name, **fields)
    forge(place)
    found = findings_of(place)
    assert any(would_run in finding.line() for finding in found if finding.verdict == DIFFERS)
    assert "code files" not in {finding.claim for finding in found}


@pytest.mark.parametrize("special", [BertBiLSTMForTokenClassification, BertFeatureTagger, None])
@pytest.mark.parametrize("implementation", ["repro", "transformers"])
def test_the_auto_map_that_every_class_saves_is_the_expected_one(tmp_path, special, implementation):
    sizes = {"vocab_size": 64, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(**sizes, intermediate_size=8, feature_based="last", lstm_size=4)
    cls = BertForTokenClassification if implementation == "repro" else transformers.BertForTokenClassification
    (special or cls)(config).save_pretrained(tmp_path)
    run = {"flags": {"model_impl": implementation}}
    assert not list(_named_code(tmp_path, run, ""))
    change_json(tmp_path / "config.json", auto_map={"AutoModel": "heads.Other"})
    assert len(list(_named_code(tmp_path, run, ""))) == 1


def test_changed_code_is_named_also_behind_new_hashes_and_another_commit(copy_of_run, monkeypatch):
    """A checkout with changes, or an installation without git, says nothing about the code of a run."""
    place = copy_of_run("run_glue")
    with open(place / "heads.py", "a") as file:
        file.write("import os")
    for then, here, differs in (
        ("0123456789ab", "0123456789ab", True),
        ("0123456789ab", "ba9876543210", False),
        ("0123456789ab+", "0123456789ab+", False),
        ("unknown", "unknown", False),
    ):
        monkeypatch.setattr("bert_training.tools.verify_files.commit", lambda here=here: here)
        change_json(place / "run.json", commit=then)
        forge(place)
        assert ("heads.py: not that of the installed package" in "\n".join(wrong(place))) == differs
        unknown = "\n".join(one.line() for one in findings_of(place) if one.verdict == UNKNOWN)
        assert ("heads.py: it is not that of" in unknown) != differs


@pytest.mark.parametrize("how", ["added", "forged"])
def test_files_that_only_a_library_reads_are_named_as_added(copy_of_run, how):
    place = copy_of_run("run_glue")
    read = {"AutoTokenizer": ("added_tokens.json", "special_tokens_map.json", "tokenizer.9.0.0.json"),
            "AutoModel": ("generation_config.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
                          "adapter_config.json"),
            "AutoProcessor": ("preprocessor_config.json",), "sentence-transformers": ("modules.json",)}  # fmt: skip
    for name in ("additional_chat_templates/x.jinja", "custom_generate/generate.py", "sub/deep/mod.py"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("{}")
    for name in [*(name for names in read.values() for name in names), "chat_template.jinja"]:
        (place / name).write_text("{}")
    if how == "forged":
        forge(place)
    lines = "\n".join(wrong(place))
    for reader, names in read.items():
        for name in names:
            added = "an additional file" if how == "added" else f"added: no run writes it, and {reader}"
            assert f" {name}: {added}" in lines
    assert ("chat_template.jinja: an additional file" in lines) == (how == "added")
    assert "additional_chat_templates: added: no run writes it, and AutoTokenizer reads it" in lines
    added = "added: 2 files that no run writes, such as custom_generate/generate.py, sub/deep/mod.py; do not execute"
    assert f"code in sub-folders: {added}" in lines


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id2label": {"0": "y", "1": "x"}, "label2id": {"y": 0, "x": 1}}, 'says ["x", "y"], but id2label in config'),
        ({"label2id": {"x": 1, "y": 0}}, "label2id in config.json does not give each name the number"),
        ({"num_labels": 3}, "config.json names 2, but num_labels or the classifier has another number"),
        ({"id2label": {str(n): f"{n}" for n in range(3)}}, "config.json names 3, but num_labels or the classifier"),
    ],
)
def test_labels_are_those_of_the_run_and_of_the_classifier(copy_of_run, fields, problem):
    place = copy_of_run("run_glue")
    change_json(place / "config.json", **fields)
    forge(place)
    assert any(" labels: " in line and problem in line for line in wrong(place))


def test_a_pickle_is_never_opened(copy_of_run, tmp_path, monkeypatch):
    """Neither the only weights of the folder nor a checkpoint that run.json names."""

    def opened(*_, **__):
        raise AssertionError("a pickle was opened")

    place, start = copy_of_run("run_glue"), tmp_path / "start"
    start.mkdir()
    for folder in (place, start):
        (folder / "pytorch_model.bin").write_bytes(b"x")
        shutil.copy(place / "config.json", start)
    (place / "model.safetensors").unlink()
    flags = json.loads((place / "run.json").read_text())["flags"] | {"model_name_or_path": str(start)}
    change_json(place / "run.json", flags=flags, initial_weights={"pytorch_model.bin": sha256(start / "config.json")})
    monkeypatch.setattr("torch.load", opened)
    monkeypatch.setattr("bert_training.networks.old_checkpoints._load", opened)
    found = {finding.claim: finding for finding in findings_of(place, evaluate=True)}
    for claim in ("number of parameters", "scores from the weights"):
        assert found[claim].verdict == UNKNOWN
        assert "the weights are a pickle (pytorch_model.bin), and verify opens none" in found[claim].reason


@pytest.mark.parametrize("name", ["README.md", "run.json", "config.json", "model-2.safetensors", "heads.py", "a.bin"])
def test_nothing_is_read_through_a_link_out_of_the_folder(copy_of_run, tmp_path, name):
    place, secret = copy_of_run("run_glue"), tmp_path / "secret"
    secret.write_text("password")
    (place / name).unlink(missing_ok=True)
    (place / name).symlink_to(secret)
    assert [f.claim for f in findings_of(place)] == [name, "everything else"]
    (line,) = wrong(place)
    assert "a link out of the folder, to" in line and "password" not in line
    (place / name).unlink()
    (place / name).symlink_to("vocab.txt")
    assert "everything else" not in {f.claim for f in findings_of(place)}


def test_corpora_are_not_read_through_links_either(copy_of_run, tmp_path):
    place = copy_of_run("run_pretraining")
    (place / "corpus").rename(tmp_path / "corpus")
    (place / "corpus").symlink_to("/")
    assert not wrong(place)
    assert any(f.claim.startswith("corpus/") and "it is not here" in f.reason for f in findings_of(place))


def test_the_cache_of_the_hub_consists_of_links(copy_of_run, tmp_path):
    place, blobs = tmp_path / "model/snapshots/0123", tmp_path / "model/blobs"
    blobs.mkdir(parents=True)
    place.parent.mkdir()
    copy_of_run("run_glue").rename(place)
    for path in list(place.iterdir()):
        path.rename(blobs / path.name)
        path.symlink_to(f"../../blobs/{path.name}")
    assert not wrong(place)


def test_pipes_are_refused(copy_of_run):
    place = copy_of_run("run_glue")
    os.mkfifo(place / "model-2.safetensors")
    (line,) = wrong(place)
    assert "model-2.safetensors: no ordinary file" in line

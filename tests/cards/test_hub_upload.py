"""bert_training/cards/hub_upload.py: which files leave this machine, and uploads to a stand-in for the Hub."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

import run_ner
from bert_training.cards.hub_upload import FILES, check_access, files_to_upload, upload
from modeling_bert_repro import BertForTokenClassification
from modeling_bert_repro.pretrained import CODE_FILES
from tests.helpers import hub_stand_in
from tests.helpers.hub_stand_in import TOKEN
from tests.helpers.model_folders import edit_json
from tests.helpers.repository import ROOT
from tests.helpers.tagged_text import CONLL, write

NAME = "user/name"
CODE = {*CODE_FILES}
MODEL = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}
RECORDS = {"README.md", "run.json", "metrics.jsonl", "all_results.json", "hashes.json", "training_curves.png"}
STAYS = {  # files that are not uploaded, written by scripts or by a user
    "test_predictions.txt": b"Anna B-PER",
    "predictions.json": b'{"q": "Anna"}',
    "nbest_predictions.json": b"{}",
    "CoLA.tsv": b"index\tprediction\n",
    "notes.py": b"secret = 1",
    "model.safetensors.orig": b"",
    ".env": b"HF_TOKEN=x",
    "checkpoint-2/model.safetensors": b"",
    "corpus/train/tokens.bin": b"Anna",
    "features/windows.npz": b"",
    "runs/events.out": b"",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pretrained) -> Path:
    """The folder of a run whose flags contain absolute paths, with characters that every language quotes in its way."""
    data = tmp_path_factory.mktemp("private") / "of Anna | `O'Neil` <\u00e9>" / "her\nlife"
    data.mkdir(parents=True)
    file, folder = write(data, CONLL), data / "finished"
    flags = ["--model_name_or_path", str(pretrained), "--train_file", file, "--validation_file", file]
    flags += ["--max_seq_length", "32", "--max_steps", "2", "--save_steps", "0", "--output_dir", str(folder)]
    run_ner.main(flags)
    return folder


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A copy of that folder, with the files of STAYS."""
    copy = shutil.copytree(finished, tmp_path / "finished")
    for name, content in STAYS.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    return copy


@pytest.fixture
def hub():
    with hub_stand_in.running() as hub:
        yield hub


def online(hub, tmp_path: Path, code: str, *arguments: str, token: str | None = TOKEN) -> tuple[str, str]:
    """Run the code in a process with the stand-in as its Hub and with an empty home. Return its two streams."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    env = kept | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    env |= {"PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"} | ({"HF_TOKEN": token} if token else {})
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code, *arguments], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path
    return done.stdout, done.stderr


UPLOADS = """
import json, sys
from bert_training.cards import hub_upload
for flags in json.loads(sys.argv[1]):
    try:
        hub_upload.main(flags)
    except ValueError as error:
        print("error:", error)
"""


def uploads(hub, tmp_path: Path, folder: Path, *flags: list[str], token: str | None = TOKEN) -> list[str]:
    """Upload once for each list of flags, and return the lines that are printed. The folder must not change."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    commands = json.dumps([[str(folder), "--hub_model_id", NAME, *more] for more in flags])
    out, errors = online(hub, tmp_path, UPLOADS, commands, token=token)
    assert not errors.replace("No files have been modified since last commit. Skipping to prevent empty commit.\n", "")
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return out.splitlines()


def test_only_the_named_files_are_uploaded(folder):
    assert {path.name for path in files_to_upload(folder)} == MODEL | CODE | RECORDS
    assert (folder / "validation_predictions.txt").is_file()  # run_ner.py wrote it.
    assert files_to_upload(folder) == sorted(folder / name for name in MODEL | CODE | RECORDS)


def test_the_page_lists_exactly_the_files_that_are_uploaded():
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    table = page.split("| what | names |\n")[1].split("\n\n")[0]
    names = re.findall(r"`([^`]+)`", table)
    assert sorted(names) == sorted(FILES)


def test_every_flag_that_uploads_names_its_files_first(folder, capsys):
    """A dry run works offline and without a token."""
    upload(folder, NAME, private=True, dry_run=True, say=print)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"would upload to {NAME}, private if it is new:"
    assert {line.split()[0] for line in lines[1:-1]} == MODEL | CODE | RECORDS
    assert "  config.json" in lines
    stays = set(lines[-1].removeprefix("stays here: ").split(", "))
    assert stays >= {"predictions.json", "validation_predictions.txt", "checkpoint-2/", "corpus/", ".env", "notes.py"}
    upload(folder, NAME, private=False, dry_run=True, say=print)
    assert capsys.readouterr().out.startswith(f"would upload to {NAME}, public if it is new:")


def test_a_folder_that_is_not_finished_is_refused(folder):
    for name, shown in (("model.safetensors", r"\*.safetensors"), ("all_results.json",) * 2, ("config.json",) * 2):
        (folder / name).unlink()
        with pytest.raises(ValueError, match=rf"expected the folder of a finished run, found no {shown}"):
            upload(folder, NAME, private=True, dry_run=True, say=print)


def test_bad_names_and_offline_mode_are_refused_before_the_training(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"--hub_model_id a/b/c: .*; expected USER/NAME"):
        check_access("a/b/c", dry_run=True)
    flags = ["--config_name", "tiny", "--tokenizer_name", "x", "--output_dir", str(tmp_path / "run")]
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", lambda name: None)
    with pytest.raises(ValueError, match=r"the network .is HF_HUB_OFFLINE set.. and a token of the Hub"):
        run_ner.start_run(
            run_ner.parse_arguments(run_ner.NerArguments, [*flags, "--push_to_hub", "--hub_model_id", NAME])
        )
    assert not (tmp_path / "run").exists()


OPENS = """
import sys, torch
from transformers import AutoModelForTokenClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
for ours in (False, True):
    model = AutoModelForTokenClassification.from_pretrained(sys.argv[1], trust_remote_code=ours)
    logits = model(**tokenizer("the king walked to the river", return_tensors="pt")).logits
    print(type(model).__module__.split(".")[0], logits.double().sum().item())
"""


@pytest.mark.slow
def test_the_uploaded_model_opens_by_its_name(hub, folder, tmp_path):
    lines = uploads(hub, tmp_path, folder, [])
    assert lines == [f"{len(MODEL | CODE | RECORDS)} files uploaded: {hub.url}/{NAME} (private)"]
    assert hub.repos[NAME]["private"] and set(hub.files(NAME)) == MODEL | CODE | RECORDS
    theirs, ours = (line.split() for line in online(hub, tmp_path, OPENS, NAME)[0].splitlines())
    assert (theirs[0], ours[0]) == ("transformers", "transformers_modules")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForTokenClassification.from_pretrained(folder)
    with torch.no_grad():
        logits = model(**tokenizer("the king walked to the river", return_tensors="pt")).logits
    for _, total in (theirs, ours):
        assert float(total) == pytest.approx(logits.double().sum().item(), abs=1e-5)


@pytest.mark.slow
def test_what_is_uploaded_tells_nothing_of_this_machine(hub, folder, tmp_path):
    uploads(hub, tmp_path, folder, [])
    sent = hub.files(NAME)
    for name, content in sent.items():
        for word in ("Anna", "Neil", "life", "private0", "pytest-of", str(tmp_path), str(ROOT), str(Path.home()) + "/"):
            assert word.encode() not in content, (name, word)
        same = content == (folder / name).read_bytes()
        assert same or name in {"README.md", "run.json", "hashes.json"}, name
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sent.items() if name != "hashes.json"}
    assert json.loads(sent["hashes.json"])["sha256"] == hashes
    run = json.loads(sent["run.json"])
    assert run["flags"]["train_file"] == "words.txt" and run["flags"]["output_dir"] == "finished"
    assert run["command"][0] and "versions" in run and run["hub_names"] == []
    assert f"model_name = {NAME!r}\n" in sent["README.md"].decode()


@pytest.mark.slow
def test_a_second_upload_and_uploads_to_existing_repositories(hub, folder, tmp_path):
    """Without changes there is no commit. An existing repository keeps its visibility, and the user is told so."""
    _, again, public = uploads(hub, tmp_path, folder, [], [], ["--hub_private_repo", "false"])
    assert again.endswith("(private)") and public.endswith("(private)")
    assert len(hub.repos[NAME]["commits"]) == 2 and hub.repos[NAME]["private"]
    (folder / "README.md").write_text((folder / "README.md").read_text() + "More.\n")
    hub.repos[NAME]["private"] = False
    (line,) = uploads(hub, tmp_path, folder, [])
    assert line.endswith("(public)") and not hub.repos[NAME]["private"]
    assert len(hub.repos[NAME]["commits"]) == 3 and hub.files(NAME)["README.md"].endswith(b"More.\n")
    del hub.repos[NAME]
    assert uploads(hub, tmp_path, folder, ["--hub_private_repo", "false"])[-1].endswith("(public)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [("POST", "/api/validate-yaml", 400), ("PUT", "/stored/.*", 403), ("POST", ".*/commit/main", 403)]
)
def test_a_refusal_is_one_line_with_the_command_for_later(hub, folder, tmp_path, fault):
    hub.faults = [[*fault, 1]]
    line, last = uploads(hub, tmp_path, folder, [], [])
    command = f"bert-repro upload {folder} --hub_model_id {NAME}"
    assert line.startswith("error: ") and line.endswith(f"; {folder} is complete, upload it then with {command}")
    assert "files uploaded" in last and len(hub.repos[NAME]["commits"]) == 2  # the refusal left no half commit behind


@pytest.mark.slow
@pytest.mark.parametrize("refused", [False, True])
def test_a_script_uploads_its_run(hub, tmp_path, pretrained, refused):
    """The run is finished before the upload begins, so that a refusal costs nothing but the upload."""
    file, folder = write(tmp_path, CONLL), tmp_path / "run"
    flags = ["--model_name_or_path", str(pretrained), "--train_file", file, "--validation_file", file]
    flags += ["--max_seq_length", "32", "--max_steps", "2", "--save_steps", "0", "--output_dir", str(folder)]
    code = "import run_ner; from bert_training.engine.errors import report_errors; print('rc', "
    code += "report_errors(run_ner.main))"
    hub.faults = [["POST", ".*/commit/main", 403, 9]] * refused
    said = "".join(online(hub, tmp_path, code, *flags, "--push_to_hub", "--hub_model_id", NAME))
    assert (folder / "all_results.json").is_file() and {path.name for path in folder.iterdir()} >= MODEL | CODE
    if refused:
        assert "rc 2" in said and f"upload it then with bert-repro upload {folder} --hub_model_id {NAME}" in said
        hub.faults = []
        assert "files uploaded" in uploads(hub, tmp_path, folder, [])[0]
    else:
        assert "rc 0" in said and f"files uploaded: {hub.url}/{NAME} (private)" in said
    assert set(hub.files(NAME)) == MODEL | CODE | RECORDS


def test_code_is_found_by_its_plain_name_only(folder):
    edit_json(folder / "config.json", auto_map={"AutoModel": "theirs.Model", "AutoConfig": "../outside.Config"})
    (folder / "theirs.py").write_text("from .hub import y\n")
    (folder / "hub.py").write_text("")
    (folder.parent / "outside.py").write_text("")
    names = {path.name for path in files_to_upload(folder) if path.suffix == ".py"}
    assert names == {"theirs.py", "hub.py"}

"""bert_training/cards/hub_upload.py: which files leave this machine, and uploads to a stand-in for the Hub."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import run_ner
from bert_training.cards.hub_upload import FILES, check_access, files_to_upload, main, upload
from modeling_bert_repro.pretrained import CODE_FILES
from tests.helpers.model_folders import edit_json
from tests.helpers.repository import ROOT
from tests.helpers.tagged_text import CONLL, write
from tokenization.errors import UserError

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


class Hub:
    """What ``huggingface_hub.HfApi`` does of an upload, in this process."""

    endpoint = "https://hub"

    def __init__(self):
        self.private, self.commits, self.refuses = {}, [], False

    def whoami(self):
        return {"name": "user"}

    def create_repo(self, repo_id, private, exist_ok):
        assert exist_ok
        self.private.setdefault(repo_id, private)
        return SimpleNamespace(repo_id=repo_id)

    def model_info(self, repo_id):
        return SimpleNamespace(private=self.private[repo_id])

    def create_commit(self, repo_id, operations, commit_message):
        if self.refuses:
            raise OSError("403 Forbidden:\nno")
        self.commits.append({one.path_in_repo: Path(one.path_or_fileobj).read_bytes()
                             if isinstance(one.path_or_fileobj, str | Path) else one.path_or_fileobj
                             for one in operations})  # fmt: skip


@pytest.fixture
def hub(monkeypatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    return hub


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


def test_what_is_uploaded_tells_nothing_of_this_machine(hub, folder, tmp_path, capsys):
    main([str(folder), "--hub_model_id", NAME])
    assert capsys.readouterr().out == f"{len(MODEL | CODE | RECORDS)} files uploaded: https://hub/{NAME} (private)\n"
    (sent,) = hub.commits
    assert set(sent) == MODEL | CODE | RECORDS
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


def test_an_existing_repository_keeps_its_visibility_and_the_user_is_told_so(hub, folder, capsys):
    for private, shown in (("false", "public"), ("true", "public")):
        main([str(folder), "--hub_model_id", NAME, "--hub_private_repo", private])
        assert capsys.readouterr().out.endswith(f"({shown})\n")


def test_a_refusal_is_one_line_with_the_command_for_later(hub, folder):
    hub.refuses = True
    with pytest.raises(UserError) as refusal:
        main([str(folder), "--hub_model_id", NAME])
    command = f"bert-repro upload {folder} --hub_model_id {NAME}"
    assert str(refusal.value).endswith(f"; {folder} is complete, upload it then with {command}")
    assert "\n" not in str(refusal.value)


def test_a_script_uploads_its_run(hub, tmp_path, pretrained, no_pictures):
    """The run is finished before the upload begins, so that a refusal costs nothing but the upload."""
    file, folder, hub.refuses = write(tmp_path, CONLL), tmp_path / "run", True
    flags = ["--model_name_or_path", str(pretrained), "--train_file", file, "--validation_file", file]
    flags += ["--max_seq_length", "32", "--max_steps", "1", "--save_steps", "0", "--output_dir", str(folder)]
    flags += ["--push_to_hub", "--hub_model_id", NAME]
    with pytest.raises(UserError, match="upload it then with bert-repro upload"):
        run_ner.main(flags)
    assert (folder / "all_results.json").is_file() and {path.name for path in folder.iterdir()} >= MODEL | CODE
    hub.refuses = False
    run_ner.main([*flags, "--resume_from_checkpoint", "auto"])
    assert set(hub.commits[0]) == (MODEL | CODE | RECORDS) - {"training_curves.png"}


def test_code_is_found_by_its_plain_name_only(folder):
    edit_json(folder / "config.json", auto_map={"AutoModel": "theirs.Model", "AutoConfig": "../outside.Config"})
    (folder / "theirs.py").write_text("from .hub import y\n")
    (folder / "hub.py").write_text("")
    (folder.parent / "outside.py").write_text("")
    names = {path.name for path in files_to_upload(folder) if path.suffix == ".py"}
    assert names == {"theirs.py", "hub.py"}

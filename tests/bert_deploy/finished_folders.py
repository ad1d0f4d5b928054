"""The findings about finished folders, and changes that somebody might make in them."""

from pathlib import Path

from bert_deploy import verify
from bert_deploy.verify import DIFFERS, Finding
from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record


def findings_of(folder: Path, *given: Path, evaluate: bool = False) -> list[Finding]:
    return list(verify.findings(folder, verify.Asked(given, evaluate=evaluate)))


def wrong(folder: Path, *given: Path, evaluate: bool = False) -> list[str]:
    return [finding.line() for finding in findings_of(folder, *given, evaluate=evaluate) if finding.verdict == DIFFERS]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text, (path, old)
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def forge(folder: Path) -> None:
    """Write hashes that fit the folder as it is now, as somebody would who wants to hide a change."""
    write_json(folder / HASHES, hashes_record(hashes_of(folder)))


def content(folder: Path) -> dict:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}

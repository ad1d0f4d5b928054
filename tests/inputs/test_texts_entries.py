"""bert_training/inputs/texts.py: which files an entry stands for, in which order, and what is refused."""

import json
import lzma
import os
from pathlib import Path

import pytest

from bert_training.inputs.texts import Entry, check_files, entries_of, read_documents


def expand(entry: object) -> Entry:
    return entries_of([entry])[0]


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} is here .\n")
    return folder


def names(folder: Path, entry: object) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in expand(str(entry)).files]


def test_a_folder_is_its_files_by_name_folder_by_folder(tmp_path):
    write(tmp_path, "b.txt", "B.txt", "a/z.jsonl", "a/b/c.txt", "part-10.txt", "part-2.txt", "a.txt")
    wanted = ["B.txt", "a/b/c.txt", "a/z.jsonl", "a.txt", "b.txt", "part-10.txt", "part-2.txt"]
    assert names(tmp_path, tmp_path) == wanted
    assert expand(tmp_path).name == f"{tmp_path.name} (7 files)"


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("*.txt", ["a.txt", "b.txt"]),
        ("**/*.txt", ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]),
        ("sub/**", ["sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]),
        ("s?b", ["sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]),
        ("*/*.[jt]*", ["sub/c.txt", "sub/e.jsonl"]),
        ("*", ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]),
        ("**", ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]),
        ("**/deep/*", ["sub/deep/d.txt"]),
    ],
)
def test_patterns(tmp_path, pattern, wanted):
    write(tmp_path, "b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl", ".hidden/f.txt", "sub/.g.txt")
    assert names(tmp_path, tmp_path / pattern) == wanted


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("table.csv", r"table\.csv: expected files named \.txt, \.jsonl or"),
        ("none.txt", r"none\.txt: expected files named .* got no file of text; check the path"),
        ("none/*.txt", r"none/\*.txt: .* got no file of text"),
        ("only_hidden", "only_hidden: .* got no file of text"),
        ("mixed", r"mixed: expected files named \.txt, .* got .*mixed/table\.csv; check .* 'folder/\*\*/\*\.txt'"),
        ("x" * 5000, "x: expected files .* got no file of text"),
        ("", ": expected files .* got no file of text"),
    ],
)
def test_bad_entries(tmp_path, entry, message):
    write(tmp_path, "mixed/a.txt", "mixed/table.csv", "only_hidden/.a.txt", "only_hidden/_SUCCESS", "table.csv")
    (tmp_path / "only_hidden/empty.txt").touch()
    with pytest.raises(ValueError, match=message):
        expand(tmp_path / entry if len(entry) in range(1, 100) else entry)


def test_a_file_of_two_entries_is_refused(tmp_path):
    write(tmp_path, "a.txt", "b.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    for other in (tmp_path / "a.txt", tmp_path / "*.txt", tmp_path / "link.txt", os.path.relpath(tmp_path / "a.txt")):
        with pytest.raises(ValueError, match=r"a\.txt|link\.txt: the same file twice, from .* and from .*--mixture"):
            check_files([tmp_path / "a.txt", other])


def test_wikiextractors_folders(tmp_path):
    """It names its files AA/wiki_00, whether they hold lines or, with --json, an article on each line."""
    lines = '<doc id="1" url="u" title="One">\nOne\n\nThe first .\n\nIts end .\n</doc>\n'
    rows = json.dumps({"id": "2", "title": "Two", "text": "The second .\n\nIts end ."}) + "\n"
    write(tmp_path, "AA/wiki_00", "AB/wiki_00")
    (tmp_path / "AA/wiki_00").write_text(lines)
    (tmp_path / "AB/wiki_00").write_text(rows + rows.replace("second", "third"))
    (tmp_path / "AB/wiki_01.xz").write_bytes(lzma.compress(lines.replace("first", "fourth").encode()))
    wanted = [[f"The {number} .", "Its end ."] for number in ("first", "second", "third", "fourth")]
    assert [*read_documents([tmp_path])] == [*read_documents([tmp_path / "A?/wiki_*"])] == wanted
    (tmp_path / "AB/notes").write_text("other")
    with pytest.raises(ValueError, match="AB/notes; check the path, or choose the files of text"):
        expand(tmp_path)

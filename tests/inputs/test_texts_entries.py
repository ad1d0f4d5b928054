"""bert_training/inputs/texts.py: which files an entry stands for, in which order, and what is refused."""

import json
import lzma
import os
from pathlib import Path

import pytest

from bert_training.inputs.texts import Entry, check_apart, check_files, entries_of, read_documents


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
    assert expand(tmp_path).left_out == []
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
        ("table.csv", r"table\.csv: expected \.txt, \.jsonl or"),
        ("empty.txt", r"empty\.txt: is empty"),
        ("none.txt", "none.txt: no such file"),
        ("x*.txt", r"x\*.txt: no file of text is there"),
        ("none/*.txt", r"none/\*.txt: no file of text is there"),
        ("empty", "empty: no file of text is there"),
        ("only_hidden", r"no file of text is there \(.*not read: .*\.a\.txt \(by its name\)\)"),
        ("mixed", r"mixed: expected files named \.txt, .* got .*mixed/table\.csv; choose .* 'folder/\*\*/\*\.txt'"),
        ("mixed/*", r"mixed/\*: expected files named .* got .*mixed/table\.csv"),
    ],
)
def test_bad_entries(tmp_path, entry, message):
    write(tmp_path, "mixed/a.txt", "mixed/table.csv", "only_hidden/.a.txt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.txt").touch()
    write(tmp_path, "table.csv")
    with pytest.raises(ValueError, match=message):
        expand(tmp_path / entry)
    with pytest.raises(ValueError, match="no such file"):
        expand("x" * 5000)
    with pytest.raises(ValueError, match="'': no such file"):
        expand("")


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
    with pytest.raises(ValueError, match="AB/notes; choose the files of text"):
        expand(tmp_path)


def test_an_output_folder_below_its_own_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("a")
    for entry in ("texts", "texts/**/*.txt", str(tmp_path), "./texts/../texts"):
        with pytest.raises(ValueError, match=r"--output_dir texts/run lies within .*, where all files are read"):
            check_apart(["s3://a/b", entry], "texts/run")
    for entry in ("texts/*.txt", "texts/a.txt"):
        check_apart([entry], "texts/run")
    check_apart(["texts"], "texts/.run")
    check_apart(["texts"], "textsrun")

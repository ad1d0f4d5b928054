"""A table is the same in every form: .csv, .jsonl, .json of three kinds and .parquet, packed or not."""

import gzip
import json
import lzma

import pytest

from bert_training.files.tables import read_table

pytest.importorskip("pyarrow")
ROWS = [{"text": "a, b", "label": 1}, {"text": "c\nd", "label": 0}]
JSON = {
    "list.json": json.dumps(ROWS, indent=1),
    "object.json": json.dumps({"version": "1", "data": ROWS, "empty": []}),
    "lines.json": "".join(json.dumps(row) + "\n" for row in ROWS),
    "lines.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
}


def write_parquet(path, rows) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.mark.parametrize("name", [*JSON, "table.parquet"])
@pytest.mark.parametrize("pack", [None, "xz", "gz"])
def test_every_form_gives_the_same_table(tmp_path, name, pack):
    path = tmp_path / name
    if name in JSON:
        path.write_text(JSON[name], encoding="utf-8")
    else:
        write_parquet(path, ROWS)
    if pack:
        content, path = path.read_bytes(), tmp_path / f"{name}.{pack}"
        path.write_bytes({"xz": lzma, "gz": gzip}[pack].compress(content))
    table = read_table(path, lambda header: ["text", "label"])
    assert table.columns == {"text": ["a, b", "c\nd"], "label": [1, 0]}
    expected = {"list.json": ":6", "table.parquet": " row 1", "object.json": ":1"}.get(name, ":2")
    assert table.where(1) == f"{path}{expected}"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.json",
            '[{"text": "a"},\n {"text": b}]',
            "a.json:2: not valid JSON at column 11 (Expecting value); correct",
        ),
        (
            "a.json",
            '[{"text": "a"}\n {"text": "b"}]',
            "a.json:2: not valid JSON at column 2 (expected a comma or the end",
        ),
        ("a.json", '[{"text": "a"}]\n[]', "a.json:2: not valid JSON at column 1 (something follows the list)"),
        ("a.json", '[{"text": "a"},\n {"other": "b"}]', "a.json:2: field 'text' is missing or null; fill it in"),
        ("a.json", '[{"text": "a"},\n 5]', "a.json:2: expected a JSON object with fields, got '5'"),
        ("a.json", '[{"text": "\\ud83d"}]', "a.json:1: expected Unicode text, got half a surrogate pair"),
        (
            "a.json",
            '{"text": {"0": "a"}}',
            "got an object with the fields 'text'; save the table in this form (pandas:",
        ),
        ("a.json", '{"a": [{"text": "a"}], "b": [{"text": "b"}]}', "got an object with the lists a, b; save the table"),
        ("a.json", "text,label", "a.json:1: expected a list of objects such as"),
        ("a.json", "", "a.json:1: expected a list of objects such as"),
        ("a.json", "[]", "a.json:1: expected a header or a first row, got an empty file or line"),
        (
            "a.json",
            '[{"text": "a", "text": "b"}]',
            "a.json:1: not valid JSON at column 2 (the field 'text' occurs twice",
        ),
        ("a.parquet", "PAR1", "a.parquet: not a parquet file, or damaged"),
    ],
)
def test_malformed_files_are_refused_with_their_line(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError) as caught:
        read_table(tmp_path / name, lambda header: ["text"])
    assert expected in str(caught.value)


def test_one_object_on_one_line_is_a_row_also_with_lists(tmp_path):
    path = tmp_path / "one.json"
    path.write_text('{"tokens": ["Ada", "slept"], "label": []}\n')
    assert read_table(path, lambda header: header).columns == {"tokens": [["Ada", "slept"]], "label": [[]]}
    path.write_text('{"tokens": [["Ada"],\n ["Bob"]]}')  # a table by columns
    with pytest.raises(ValueError, match="got an object with the fields 'tokens'; save the table in this form"):
        read_table(path, lambda header: header)


def test_a_missing_value_of_a_parquet_file_is_named_by_its_row(tmp_path):
    write_parquet(tmp_path / "a.parquet", [{"text": "a"}, {"text": None}])
    with pytest.raises(ValueError, match=r"a\.parquet row 1: field 'text' is missing or null; fill it in"):
        read_table(tmp_path / "a.parquet", lambda header: ["text"])

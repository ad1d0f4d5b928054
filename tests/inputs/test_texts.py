"""bert_training/inputs/texts.py reads documents from files, and refuses bad files."""

import gzip
import json
import lzma

import pytest

from bert_training.inputs.texts import WIKITEXT, read_documents, reading_of

TEXT = "The dog sat. The cat ran away!\nA bird sang.\n\nOne red house. It was far.\n"
DOCUMENTS = [["The dog sat. The cat ran away!", "A bird sang."], ["One red house. It was far."]]


def test_every_kind_of_file_gives_the_same_documents(tmp_path):
    import pyarrow
    import pyarrow.parquet

    texts = ["\n".join(document) for document in DOCUMENTS]
    rows = "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in texts)
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "e.jsonl").write_text(rows)
    (tmp_path / "f.jsonl.xz").write_bytes(lzma.compress(rows.encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "g.parquet")
    (tmp_path / "h.parquet.gz").write_bytes(gzip.compress((tmp_path / "g.parquet").read_bytes()))
    files = sorted(tmp_path.iterdir())
    assert len(files) == 8
    for file in files:
        assert list(read_documents([file])) == DOCUMENTS, file
    assert list(read_documents(files)) == DOCUMENTS * 8  # A document never goes on in the next file.


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a\.txt: holds no text"),
        ("a.txt", b"\n \n\t\n", r"a\.txt: holds no text"),
        ("a.txt", b"fine\nnot \xff\n", r"a\.txt:2: expected UTF-8 text, got byte 0xff at column 5; convert the file"),
        ("a.txt.xz", lzma.compress(b"some text\n" * 50)[:-20], r"a\.txt\.xz: damaged \.xz file"),
        ("a.txt.gz", gzip.compress(b"some text\n" * 50, mtime=0)[:-9], r"a\.txt\.gz: damaged \.gz file"),
        ("a.txt.gz", b"plain text", r"a\.txt\.gz: damaged \.gz file"),
        (
            "a.jsonl",
            b'{"text": "one"}\n\n{"texts": "two"}\n',
            r"a\.jsonl:3: expected a row with a text in the field `text`, .*; its fields are 'texts'",
        ),
        ("a.jsonl", b'{"text": "one"}\n{"text": 2}\n', r"a\.jsonl:2: .* got int"),
        ("a.jsonl", b'["text"]\n', r"a\.jsonl:1: expected a row .*, got list"),
        ("a.jsonl", b'{"text": "one"\n', r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", b"[" * 100_000, r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", b"1", r"a\.jsonl:1: expected a row .*, got int"),
        ("a.parquet", b"PAR1 nonsense", r"a\.parquet: not a Parquet file, or damaged"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_documents([tmp_path / name]))


WIKI_ROWS = [
    "",
    " = Storms = \n",
    "",
    " A storm came . \n",
    " It went away . \n",
    "",
    " = = Causes = = \n",
    "",
    " Air . \n",
]
WIKI_ROWS += ["", " = The sea = \n", "", " The sea is wide . \n"]
WIKI_ARTICLES = [["A storm came .", "It went away .", "Air ."], ["The sea is wide ."]]


def test_the_text_may_have_another_name_and_the_rows_of_wikitext_are_articles(tmp_path):
    import pyarrow
    import pyarrow.parquet

    texts = ["\n".join(document) for document in DOCUMENTS]
    for name, rows in (("a", texts), ("wiki", WIKI_ROWS)):
        table = pyarrow.table({"id": list(range(len(rows))), "content": rows})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
        lines = (json.dumps({"id": 1, "content": text}) + "\n" for text in rows)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    (tmp_path / "wiki.txt").write_text("\n".join(WIKI_ROWS))
    for kind in ("jsonl", "parquet"):
        assert list(read_documents([tmp_path / f"a.{kind}"], "content")) == DOCUMENTS
        assert reading_of(tmp_path / f"a.{kind}", "content").form is None
        with pytest.raises(ValueError, match=r"`text`, .*; its fields are .*content.*; name .* --text_column"):
            list(read_documents([tmp_path / f"a.{kind}"]))
    for kind in ("jsonl", "parquet", "txt"):
        assert list(read_documents([tmp_path / f"wiki.{kind}"], "content")) == WIKI_ARTICLES, kind
        assert reading_of(tmp_path / f"wiki.{kind}", "content").form == WIKITEXT

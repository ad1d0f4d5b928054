"""Learning a vocabulary gives the same bytes every time, reads every form of file and refuses bad ones."""

import gzip
import json
import logging
import lzma
import os
import random
import re
import resource
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenization.train_wordpiece as module
from tests.helpers.hostile_text import hostile_texts
from tests.helpers.repository import ROOT
from tokenization import BasicTokenizer, build_tokenizer, load_vocab
from tokenization.text_files import read_texts
from tokenization.train_wordpiece import count_words, main, train_wordpiece

LINES = ["The cat sat on the mat.", "", "The dog — sat on the cat;", "中文 and naïve text"]

# Random words of few letters have many pairs of equal frequency, so that the order among equals decides.
TIES = """
import hashlib, random
from tokenization.train_wordpiece import train_wordpiece
rng = random.Random(0)
texts = [" ".join("".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(50)) for _ in range(40)]
print(hashlib.sha256("\\n".join(train_wordpiece(iter(texts), 300, progress=False)).encode()).hexdigest())
"""


def in_a_process(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("runs", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_the_same_in_every_process(runs):
    """Without our code, the library gives a different vocabulary for this text in nearly every process."""
    outputs = {in_a_process(TIES, PYTHONHASHSEED=str(run), RAYON_NUM_THREADS=str(1 + run % 3)) for run in range(runs)}
    assert len(outputs) == 1


def test_the_order_of_texts_does_not_matter():
    texts = hostile_texts(300, seed=1)
    shuffled = random.Random(0).sample(texts, len(texts))
    assert train_wordpiece(iter(texts), 700) == train_wordpiece(iter(shuffled), 700)


def test_two_saved_folders_have_the_same_bytes(tmp_path):
    texts = hostile_texts(200, seed=2)
    for name in "ab":
        train_wordpiece(iter(texts), 600, output_dir=tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_merges_worked_by_hand():
    """The pair ##a ##b occurs 5 times, in abab and cab. Then a ##b and ##b ##ab both occur 3 times, and a ##b comes
    first because a has the lower id.
    """
    words = iter(["abab abab abab cab cab"])
    pieces = train_wordpiece(words, 14, layout="compact")
    assert pieces[:11] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##a", "##b", "##ab"]
    assert pieces[11:] == ["ab", "abab", "cab"]


def test_pairs_rarer_than_min_frequency_are_left_and_a_short_vocabulary_is_reported(caplog):
    text = "ab ab ab cd cd ef"
    with caplog.at_level(logging.WARNING):
        learned = {n: train_wordpiece(iter([text]), 100, min_frequency=n)[5 + 6 + 3 :] for n in (1, 2, 3, 4)}
    assert learned == {1: ["ab", "cd", "ef"], 2: ["ab", "cd"], 3: ["ab"], 4: []}
    assert "gave 17 pieces, fewer than the 100 asked for" in caplog.text


def test_the_layout_follows_from_the_size_or_is_given():
    texts = hostile_texts(600, seed=3)
    google = train_wordpiece(iter(texts), 1000)
    rows = {piece: google.index(piece) for piece in ("[PAD]", "[unused0]", "[unused98]", "[UNK]", "[CLS]", "[SEP]")}
    assert rows == {"[PAD]": 0, "[unused0]": 1, "[unused98]": 99, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102}
    assert google[103] == "[MASK]" and "[unused" not in "".join(google[104:])
    assert train_wordpiece(iter(texts), 999)[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert train_wordpiece(iter(texts), 999, layout="google")[:104] == google[:104]
    assert len(google) == len(set(google)) == 1000


@pytest.mark.realdata
def test_the_first_104_rows_are_those_of_google(real_data):
    theirs = list(load_vocab(real_data / "assets" / "uncased_vocab.txt"))
    assert theirs[:104] == module.LAYOUTS["google"]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_words_are_counted_as_the_tokenizer_cuts_them(monkeypatch, do_lower_case):
    texts = hostile_texts(500, seed=4)
    reference = BasicTokenizer(do_lower_case)
    expected = Counter(word for text in texts for word in reference.tokenize(text))
    assert count_words(texts, do_lower_case) == expected
    monkeypatch.setattr(module, "RAW_LIMIT", 100)
    assert count_words(texts, do_lower_case) == expected


def test_case_is_kept_if_it_is_asked_for():
    assert "the" in train_wordpiece(iter(["The the The"] * 3), 30)
    assert {"The", "the"} <= set(train_wordpiece(iter(["The the The"] * 3), 30, do_lower_case=False))


def test_rare_characters_are_left_out_whole():
    pieces = train_wordpiece(iter(["aaa aab aab azb azb"]), 100, limit_alphabet=2)
    assert "z" not in "".join(pieces)
    # No piece is learnt from what is left of "azb" without its z.
    assert train_wordpiece(iter(["azb azb azb aa b"]), 100, limit_alphabet=2)[5:] == ["a", "b", "##a"]


def test_alphabet_is_the_most_frequent_characters_then_the_lowest():
    assert train_wordpiece(iter(["z z z c b a"]), 100, limit_alphabet=3)[5:] == ["a", "b", "z"]


def test_words_too_long_for_the_tokenizer_teach_nothing():
    assert train_wordpiece(iter([f"{'ab' * 50}a " * 9 + "a b"]), 100)[5:] == ["a", "b"]


def test_frequencies_above_the_size_of_a_chunk_count_in_full():
    assert train_wordpiece(iter(["cd " * 10_001 + "ab " * 10_000 + "ef " * 25_000]), 17)[14:] == ["ef", "cd", "ab"]


def test_every_learned_piece_can_be_produced():
    texts = hostile_texts(300, seed=5)
    tokenizer = build_tokenizer(train_wordpiece(iter(texts), 800))
    used = {token for text in texts for token in tokenizer.tokenize(text)}
    assert len(used) > 0.6 * len(tokenizer)


# Reading files.


def write_forms(folder: Path) -> dict[str, Path]:
    text = "".join(f"{line}\n" for line in LINES)
    rows = "".join(json.dumps({"text": line, "n": 1}) + "\n" for line in LINES)
    (folder / "a.txt").write_text(text, encoding="utf-8")
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (folder / "a.jsonl").write_text(rows, encoding="utf-8")
    for name, content in (("a.txt", text), ("a.jsonl", rows)):
        (folder / f"{name}.xz").write_bytes(lzma.compress(content.encode()))
        # The file has two streams, as `cat a.gz b.gz` makes it.
        (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()[:40]) + gzip.compress(content.encode()[40:]))
    pq.write_table(pa.table({"n": [1] * 4, "text": LINES}), folder / "a.parquet")
    return {path.name: path for path in folder.iterdir()}


def test_every_form_gives_the_same_texts(tmp_path):
    forms = write_forms(tmp_path)
    assert len(forms) == 8
    for name, path in forms.items():
        assert list(read_texts([path])) == LINES, name
    assert list(read_texts([forms["a.txt"], forms["a.parquet"]])) == LINES * 2
    assert train_wordpiece(forms["a.jsonl.xz"], 90) == train_wordpiece([str(forms["a.txt"])], 90)


def test_texts_are_read_as_they_are_asked_for(tmp_path):
    """Of 40 MB of compressed text, one line at a time is in memory."""
    path = tmp_path / "big.txt.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(400):
            file.write(b"the same short line of text again and again\n" * 2300)
    code = (
        "import os, resource\n"
        "os.environ['BERT_REPRO_LARGEST_MIB'] = '64'\n"  # Such a text looks like a bomb.
        "from tokenization.text_files import read_texts\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"n = sum(1 for _ in read_texts([{str(path)!r}]))\n"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    count, kib = map(int, in_a_process(code).split())
    assert count == 400 * 2300
    assert kib < 8_000


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a\.txt: the file is empty"),
        ("a.txt", b"fine\n\xe9t\xe9\n", r"a\.txt:2: expected UTF-8 text, got byte 0xe9"),
        (
            "a.txt.xz",
            lzma.compress(random.Random(0).randbytes(999).hex().encode())[:-40],
            r"a\.txt\.xz:1: damaged \.xz",
        ),
        ("a.txt.xz", b"plain text", r"a\.txt\.xz:1: damaged \.xz file"),
        ("a.txt.gz", gzip.compress(b"text\n" * 99, mtime=0)[:-9], r"a\.txt\.gz:\d+: damaged \.gz file"),
        ("a.txt.gz", b"plain text", r"a\.txt\.gz:1: damaged \.gz file"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', r"a\.jsonl:2: not JSON at column 9 .*; expected one object a line"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": "b", "text": "c"}\n', r"a\.jsonl:3: not JSON .*'text' occurs twice"),
        ("a.jsonl", b'{"text": "a\\ud800"}\n', r"a\.jsonl:1: lone surrogate at character 1"),
        ("a.jsonl", b"\n", r"a\.jsonl: holds no text"),
        ("a.txt", b"a\nb\0\n", r"a\.txt:2: holds a NUL byte"),
        ("a.txt", b"a\rb\r", r"a\.txt:1: expected lines that end in .n, got a file in which they end in .r"),
        ("a.jsonl", b'{"body": "a"}\n', r"a\.jsonl:1: expected a field `text`; its fields are 'body'"),
        ("a.jsonl", b'{"text": null}\n', r"a\.jsonl:1: expected a string in the field `text`, got NoneType"),
        ("a.jsonl", b'["text"]\n', r"a\.jsonl:1: expected one JSON object a line, got a list"),
        ("a.jsonl", b'{"text": "\xff"}\n', r"a\.jsonl:1: expected UTF-8"),
        (
            "a.jsonl",
            b'{"text": "ok"}\n{"text": "\\ud800"}\n',
            r"a\.jsonl:2: lone surrogate at character 0; repair the text",
        ),
        ("a.parquet", b"PAR1 not really", r"a\.parquet: not a parquet file"),
        ("a.csv", b"a,b\n", r"a\.csv: expected a file named \.txt, \.jsonl"),
        ("a.txt", b" \n\n", r"expected text with words, got none"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        train_wordpiece([tmp_path / name], 100)


def test_bad_paths_and_tables_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one file"):
        train_wordpiece([], 100)
    with pytest.raises(ValueError, match="no such file"):
        train_wordpiece(tmp_path / "absent.txt", 100)
    (tmp_path / "folder.txt").mkdir()
    with pytest.raises(ValueError, match="got a folder"):
        train_wordpiece(tmp_path / "folder.txt", 100)
    # A list of texts is taken for file names, and the message says so.
    with pytest.raises(ValueError, match=r"A sentence\.: expected a file named"):
        train_wordpiece(["A sentence."], 100)
    with pytest.raises(ValueError, match="text 2: expected a string, got int"):
        train_wordpiece(iter(["a", 3]), 100)
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"expected one column `text`; its columns are body"):
        train_wordpiece(tmp_path / "a.parquet", 100)
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="row 2: expected a string"):
        train_wordpiece(tmp_path / "b.parquet", 100)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = write_forms(tmp_path)["a.parquet"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install pyarrow"):
        list(read_texts([path]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 5}, "layout 'compact' has 5 fixed rows, got 5"),
        ({"vocab_size": 104, "layout": "google"}, "layout 'google' has 104 fixed rows, got 104"),
        (
            {"vocab_size": 9},
            r"5 special rows, 3 characters and 3 '##' characters need 11, got 9; raise it, or .* below 3",
        ),
        ({"vocab_size": 50, "layout": "bert"}, "layout: expected one of google, compact, got 'bert'"),
        ({"vocab_size": 50, "min_frequency": 0}, "min_frequency=0"),
        ({"vocab_size": 50, "limit_alphabet": 0}, "limit_alphabet=0"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        train_wordpiece(iter(["abc bac"]), **options)


def test_no_vocabulary_is_too_small_by_one():
    assert len(train_wordpiece(iter(["abc bac"]), 11)) == 11


# The command.


def test_the_command_writes_a_tokenizer_and_refuses_mistakes(tmp_path, capsys):
    forms = write_forms(tmp_path)
    out = tmp_path / "out"
    flags = ["--train_file", str(forms["a.txt"]), str(forms["a.jsonl.gz"]), "--vocab-size", "80"]
    main([*flags, "--output_dir", str(out), "--cased"])
    assert f"pieces in {out}" in capsys.readouterr().out
    assert "The" in load_vocab(out / "vocab.txt")
    assert json.loads((out / "tokenizer_config.json").read_text())["do_lower_case"] is False

    for extra, message in (
        (["--output_dir", str(out)], "already holds a vocab.txt"),
        (["--output_dir", str(tmp_path / "new"), "--train_file", "no.txt"], "no such file"),
        (["--output_dir", str(tmp_path / "new"), "--vocab"], "unrecognized arguments"),
        (["--output_dir", "new", "--train_file", "a.txt.xz", "--text_column", "body"], "--text_column has no effect"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*flags, *extra])
        assert stopped.value.code == 2
        assert message in capsys.readouterr().err


def test_module_runs_and_is_quiet_where_there_is_no_terminal(tmp_path):
    path = write_forms(tmp_path)["a.txt"]
    command = f"--train_file {path} --vocab_size 80 --output_dir {tmp_path / 'out'}"
    done = subprocess.run(
        [sys.executable, "-m", "tokenization.train_wordpiece", *command.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith(f"pieces in {tmp_path / 'out'}\n")
    assert "reading" not in done.stderr and "Compute merges" not in done.stdout + done.stderr


# Programs that use it.


def test_the_example_learns_a_vocabulary(tmp_path, monkeypatch, capsys):
    script = ROOT / "examples" / "learn_a_vocabulary.py"
    assert len(script.read_text().splitlines()) <= 40
    monkeypatch.setattr(sys, "argv", [script.name, str(tmp_path / "out")])
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("2000 pieces")
    assert "the second text begins with 'Dictionaries'" in printed
    assert len(load_vocab(tmp_path / "out" / "vocab.txt")) == 2000


@pytest.mark.parametrize("name", ["n" * 300, "file/vocab"])
def test_a_place_that_cannot_be_written_is_one_line(tmp_path, capsys, name):
    (tmp_path / "text.txt").write_text("\n".join(LINES))
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="2"):
        main(["--train_file", str(tmp_path / "text.txt"), "--vocab_size", "80", "--output_dir", str(tmp_path / name)])
    assert re.search(r"could not be written \(.+\); give another folder", capsys.readouterr().err)


def test_a_tokenizer_that_does_not_fit_leaves_nothing(tmp_path):
    """The library writes tokenizer.json, and raises a plain Exception if it cannot."""
    earlier = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, earlier[1]))
    try:
        with pytest.raises(OSError, match=r"v could not be written \(File too large.*free some space there"):
            train_wordpiece(iter(LINES), 80, output_dir=tmp_path / "v", layout="compact")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier)
    assert not list((tmp_path / "v").iterdir())
    train_wordpiece(iter(LINES), 80, output_dir=tmp_path / "v", layout="compact")
    names = ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == names


def many_characters(count=1500):
    """Ideographs, the first ones more frequent, and one word of Latin letters."""
    return "".join(chr(0x4E00 + number) * (2 + (number < 1200)) for number in range(count)) + " words words"


def test_free_rows_take_more_characters_by_frequency():
    """1,000 characters by default, and more of them as long as rows are free; a limit that is given holds."""
    text = many_characters()
    pieces = train_wordpiece(iter([text]), 8000, progress=False)
    letters = set("wors" + "d")
    assert {piece for piece in pieces if len(piece) == 1} == {*map(chr, range(0x4E00, 0x4E00 + 1500)), *letters}
    assert len(pieces) < 8000 and len(set(pieces)) == len(pieces)
    limited = train_wordpiece(iter([text]), 8000, progress=False, limit_alphabet=1000)
    assert sum(len(piece) == 1 for piece in limited) == 1000
    fitting = train_wordpiece(iter([text]), 1300, progress=False)
    assert len(fitting) == 1300  # as many of the frequent ones as there is room for
    assert {piece for piece in fitting if len(piece) == 1} <= set(pieces[104:])
    assert max(piece for piece in fitting if len(piece) == 1) < chr(0x4E00 + 1200)
    assert fitting == train_wordpiece(iter([text]), 1300, progress=False)


def test_a_full_vocabulary_is_that_of_the_limit():
    """Where no row is free, the default is the limit of 1,000, and where there are fewer characters, too."""
    text = (
        " ".join(many_characters(1100)[start : start + 2] for start in range(0, 3000, 2)) + " lower lowest newer " * 9
    )
    full = train_wordpiece(iter([text]), 1115, progress=False)
    assert full == train_wordpiece(iter([text]), 1115, progress=False, limit_alphabet=1000) and len(full) == 1115
    few = "lower lowest newer wider " * 9
    assert train_wordpiece(iter([few]), 90) == train_wordpiece(iter([few]), 90, limit_alphabet=1000)


def test_words_of_rare_characters_are_learnt_where_rows_are_free():
    """Hangul needs both forms of a character, and its words are worth learning."""
    text = " ".join(chr(0xAC00 + number) + chr(0xAC00 + number + 1) for number in range(0, 2400, 2)) + " 하다 하다"
    pieces = train_wordpiece(iter([text * 2]), 6000, progress=False, do_lower_case=False)
    tokenizer = build_tokenizer(pieces, do_lower_case=False)
    assert "[UNK]" not in tokenizer.tokenize(text)
    assert chr(0xAC00 + 2000) + chr(0xAC00 + 2001) in pieces


def test_the_field_of_the_text_has_a_flag(tmp_path, capsys):
    import pyarrow
    import pyarrow.parquet

    rows = [{"id": 1, "content": line} for line in LINES]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.table({"content": LINES}), tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("\n".join(LINES))
    expected = train_wordpiece([tmp_path / "c.txt"], 80, progress=False)
    for name in ("a.jsonl", "b.parquet"):
        flags = ["--train_file", str(tmp_path / name), "--vocab_size", "80", "--output_dir", str(tmp_path / name[0])]
        with pytest.raises(SystemExit):
            main(flags)
        assert "expected" in (error := capsys.readouterr().err) and "--text_column" in error and "content" in error
        main([*flags, "--text_column", "content"])
        assert (tmp_path / name[0] / "vocab.txt").read_text().split() == expected

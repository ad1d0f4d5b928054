"""Small files that would fill the memory or take for ever are refused, with a sentence, in bounded memory and time.

Each is read in a process of its own, which may take 512 MiB and 20 seconds (tests/helpers/bounded.py).
"""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from lab.tests.helpers.hostile_input import bomb
from tests.helpers import bombs, short_runs
from tests.helpers.bounded import call, refused
from tests.helpers.fault_runs import run

READ_OBJECT, READ_EVENTS = "bert_training.files.json_files:read_object", "bert_training.files.records:read_events"
TABLE, TEXTS = "tests.helpers.bounded_reads:table", "tests.helpers.bounded_reads:texts"
RULES = "bert_training.networks.tokenizer_rules:check_rules"
VARIABLES = "tests.helpers.bounded_reads:variables"


# --- records, configs and tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.json", "config.json", "tokenizer.json", "hashes.json"])
def test_a_file_with_a_hole(tmp_path, name):
    text = refused(READ_OBJECT, bombs.sparse(tmp_path / name, start=b"{"))
    assert f"{name}: expected at most 67,108,864 bytes in a file of this kind, got 1,099,511,627,776" in text


@pytest.mark.parametrize("target", ["/dev/zero", "/proc/self/pagemap", "/proc/self/environ"])
def test_a_link_to_what_has_no_end(tmp_path, target):
    path = bombs.link_to(tmp_path / "run.json", target)
    for function in (READ_OBJECT, READ_EVENTS) if target != "/dev/zero" else (READ_OBJECT,):
        assert "run.json: expected a file" in refused(function, path)


def test_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    assert "expected a file, got a pipe or a device" in refused(READ_OBJECT, tmp_path / "run.json")


@pytest.mark.parametrize(
    "size, start, word",
    [
        (1 << 40, b"", "at most 1,073,741,824 bytes"),
        (1 << 30, b"", "lines of at most"),
        (1 << 20, b"{", "metrics.jsonl:1:"),
    ],
)
def test_events_with_a_hole(tmp_path, size, start, word):
    assert word in refused(READ_EVENTS, bombs.sparse(tmp_path / "metrics.jsonl", size, start))


def test_events_are_read_to_the_end_that_they_had(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"event": "start"}\n' * 3)
    assert call(READ_EVENTS, tmp_path / "metrics.jsonl").text.count("start") == 3
    assert call(READ_EVENTS, tmp_path / "metrics.jsonl", 19).text.count("start") == 1


def test_nested_brackets(tmp_path):
    (tmp_path / "run.json").write_text('{"a": ' + "[" * 10**6)
    assert "nested too deeply" in refused(READ_OBJECT, tmp_path / "run.json")


def test_doubled_fields(tmp_path):
    (tmp_path / "run.json").write_text("{" + '"a":{},' * 70_000 + '"b": 1, "b": 2}')
    assert "occurs twice" in refused(READ_OBJECT, tmp_path / "run.json")


@pytest.mark.slow
def test_thousands_of_names_in_json_lines(tmp_path):
    rows = [json.dumps({"sentence": "a", "label": "x", f"n{number}": 1}) for number in range(20_000)]
    (tmp_path / "table.jsonl").write_text("\n".join(rows))
    assert "table.jsonl:16383: expected at most 16,384 fields" in refused(TABLE, tmp_path / "table.jsonl")
    (tmp_path / "table.jsonl").write_text("\n".join(rows[:16_000]))
    assert call(TABLE, tmp_path / "table.jsonl", memory=256).text == "16000"


@pytest.mark.slow
def test_a_wide_first_row_does_not_make_all_rows_wide(tmp_path):
    first = {f"n{number}": 1 for number in range(16_000)} | {"sentence": "a", "label": "x"}
    (tmp_path / "table.jsonl").write_text(json.dumps(first) + '\n{"sentence": "a", "label": "x"}' * 100_000)
    assert call(TABLE, tmp_path / "table.jsonl").text == "100001"


@pytest.mark.slow
@pytest.mark.parametrize("name, separator", [("table.tsv", "\t"), ("table.csv", ",")])
def test_a_header_of_a_million_columns(tmp_path, name, separator):
    (tmp_path / name).write_text(separator.join(f"n{number}" for number in range(10**6)) + "\n")
    assert f"{name}:1: expected at most 16,384 columns" in refused(TABLE, tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table.tsv.gz", "table.jsonl.xz"])
def test_a_packed_table(tmp_path, name):
    bomb(tmp_path / name, b'{"sentence": "a", "label": "x"}\n' if "json" in name else b"sentence\tlabel\n")
    assert "came out of the first" in refused(TABLE, tmp_path / name, memory=1024, seconds=60)


@pytest.mark.parametrize("name", ["vocab.txt", "long.txt"])
def test_a_vocabulary_without_an_end(tmp_path, name):
    bombs.sparse(tmp_path / name, 1 << 40, b"" if name == "vocab.txt" else b"a" * 100)
    assert f"{name}: expected a vocabulary of at most 67,108,864 bytes, got more" in refused(
        "tokenization.wordpiece:load_vocab", tmp_path / name
    )


def test_a_vocabulary_of_as_many_lines_as_fit(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"a\n" * (1 << 25))
    assert "vocab.txt:2: 'a' is already in line 1" in refused(
        "tokenization.wordpiece:load_vocab", tmp_path / "vocab.txt"
    )


def test_an_empty_file_is_still_a_file(tmp_path):
    (tmp_path / "run.json").touch()
    assert "run.json:1: not valid JSON" in refused(READ_OBJECT, tmp_path / "run.json")
    with gzip.open(tmp_path / "table.tsv.gz", "wb"):
        pass
    assert "empty" in refused(TABLE, tmp_path / "table.tsv.gz")


# --- Parquet --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [False, True])
def test_pages_that_are_larger_than_the_end_says(tmp_path, dictionary):
    path = bombs.lying_parquet(tmp_path / "a.parquet", dictionary)
    assert path.stat().st_size < 64 << 10
    assert "a.parquet: expected at most 16,777,216 rows and bytes" in refused(TEXTS, path, memory=128)


def test_pages_that_are_outside_the_file(tmp_path):
    path = bombs.lying_parquet(tmp_path / "a.parquet", mebibytes=1, field="compressed")
    assert "pages are outside the file" in refused(TEXTS, path)


def test_an_end_that_is_longer_than_the_file(tmp_path):
    path = bombs.lying_parquet(tmp_path / "a.parquet", mebibytes=1)
    path.write_bytes(path.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1")
    assert "it does not end as one" in refused(TEXTS, path)


# --- tokenizers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", bombs.TOKENIZERS)
def test_rules_that_make_a_text_too_long(tmp_path, tokenizer_folder, name):
    shutil.copy(tokenizer_folder / "tokenizer.json", tmp_path)
    assert call(RULES, tmp_path / "tokenizer.json") == ("", "None")
    bombs.edit_tokenizer(tmp_path / "tokenizer.json", bombs.TOKENIZERS[name])
    assert "tokenizer.json: " in refused(RULES, tmp_path / "tokenizer.json")


# --- weights ---------------------------------------------------------------------------------------------------------


def test_variables_that_share_their_bytes(tmp_path):
    pytest.importorskip("google_crc32c")
    prefix = bombs.shared_variables(tmp_path / "bert_model.ckpt")
    assert "by the index its variables have 5,452,595,200 bytes" in refused(VARIABLES, prefix)


def test_names_that_grow(tmp_path):
    pytest.importorskip("google_crc32c")
    assert "names have more than" in refused(VARIABLES, bombs.growing_names(tmp_path / "bert_model.ckpt"))


def test_a_long_header(tmp_path):
    content = b'{"a":[' + b"[]," * (30 << 20) + b"[]]}"
    (tmp_path / "model.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    assert "its header would have" in refused(
        "bert_training.files.weights_header:shapes_in", tmp_path / "model.safetensors"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", bombs.PICKLES)
def test_a_pickle_that_asks_for_memory_or_time(tmp_path, name):
    (tmp_path / "pytorch_model.bin").write_bytes(bombs.PICKLES[name])
    text = refused("bert_training.networks.old_checkpoints:_load", tmp_path / "pytorch_model.bin", memory=1024)
    assert "pytorch_model.bin: expected a file with nothing but tensors; it cannot be read (" in text
    called = call("bert_training.files.pickled_weights:check_pickle", tmp_path / "pytorch_model.bin", memory=1024)
    assert called.error == "UserError" and called.text in text


# --- commands --------------------------------------------------------------------------------------------------------

BOUNDED = [("lab.tests.helpers.hostile_input:limits", {"memory": 512, "file": 64})]


@pytest.fixture(scope="module")
def finished_run(short_data, pretrained, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    ended = run("run_glue", short_runs.flags("run_glue", short_data, Path("run"), pretrained), place)
    assert ended.statuses == [0], ended.printed
    return place / "run"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "all_results.json", "README.md", "hashes.json"])
@pytest.mark.parametrize("command", ["verify", "curves", "report", "upload"])
def test_a_finished_run_with_a_hole_in_a_record(finished_run, tmp_path, command, name):
    shutil.copytree(finished_run, tmp_path / "run")
    bombs.sparse(tmp_path / "run" / name, 1 << 38)
    words = [command, "run", *(["--hub_model_id", "a/b", "--hub_dry_run"] if command == "upload" else [])]
    ended = run("bert_training", words, tmp_path, prepare=BOUNDED, seconds=60)
    assert not ended.timed_out and ended.status in (0, 1, 2), ended.printed[-2000:]
    assert "Traceback" not in ended.printed and "MemoryError" not in ended.printed, ended.printed[-2000:]

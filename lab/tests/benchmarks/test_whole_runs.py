"""lab/benchmarks/whole_runs.py: both sides have the same data and settings, and what is measured is what the table
says.
"""

import json
import os
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoTokenizer

from lab import tables
from lab.benchmarks import idle, picture, whole_run_programs, whole_runs
from lab.benchmarks.workloads import stored_lengths
from tokenization import build_tokenizer

WORDS = np.array([f"w{number}" for number in range(200)])


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer([*whole_runs.SPECIALS, *WORDS.tolist()])


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("name", "data"), [("sst2", "sst2 train"), ("mrpc", "mrpc train")])
def test_made_up_texts_have_the_lengths_of_the_data(tmp_path, tokenizer, name, data):
    whole_runs.write_texts(tmp_path / "x", name, "train", 1000, None, WORDS, np.random.default_rng(0))
    rows = lines(tmp_path / "x")
    texts = [[row[column] for row in rows] for column in ("sentence1", "sentence2") if column in rows[0]]
    assert len(texts) == (1 if name == "sst2" else 2) and {row["label"] for row in rows} == {"no", "yes"}
    found = np.array([len(ids) for ids in tokenizer(*texts)["input_ids"]])
    expected, _ = stored_lengths(data)
    assert found.mean() == pytest.approx(expected.mean(), rel=0.06)
    assert "[UNK]" not in tokenizer.convert_ids_to_tokens(tokenizer(texts[0][0])["input_ids"])


def test_a_made_up_word_is_one_piece():
    """Also with a vocabulary of another kind, in which most pieces are no words."""
    vocabulary = [*whole_runs.SPECIALS, "[unused0]", "!", "\u00e9", "the", "1914", "##ing", "sing"]
    words = whole_runs.whole_words(vocabulary)
    assert words.tolist() == ["the", "1914", "sing"]
    assert build_tokenizer(vocabulary).tokenize(" ".join(words)) == words.tolist()


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "squad.json"
    whole_runs.write_questions(path, "squad", "train", 30, None, WORDS, np.random.default_rng(0))
    return path


def test_windows_mark_the_answers(questions, tokenizer):
    """As many windows as it takes; wherever a window marks an answer, it is the answer's text."""
    rows = whole_run_programs.squad_rows(str(questions))
    assert all(row["context"][row["answer_start"] :].startswith(row["text"]) for row in rows)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    windows = whole_run_programs.window_encoder(tokenizer, 64, answers=True)(columns)
    marked = 0
    for ids, start, end in zip(windows["input_ids"], windows["start_positions"], windows["end_positions"]):
        if end:
            marked += 1
            assert tokenizer.decode(ids[start : end + 1]) in columns["text"]
    assert len(windows["input_ids"]) > len(rows) and marked >= len(rows)
    assert max(map(len, windows["input_ids"])) == 64


def test_answers_are_the_best_spans_of_all_windows(questions, tokenizer):
    """Logits that are high at the marked places give back every answer."""
    rows = whole_run_programs.squad_rows(str(questions))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    marked = whole_run_programs.window_encoder(tokenizer, 384, answers=True)(columns)
    windows = whole_run_programs.window_encoder(tokenizer, 384, answers=False)(columns)
    table = [dict(zip(windows, values)) for values in zip(*windows.values())]
    logits = [np.zeros((len(table), 384)) for _ in range(2)]
    for number, (start, end) in enumerate(zip(marked["start_positions"], marked["end_positions"])):
        logits[0][number, start] = logits[1][number, end] = 5.0 if end else 0.0
    found = whole_run_programs.best_answers(rows, table, SimpleNamespace(predictions=logits))
    assert found == {row["id"]: row["text"] for row in rows}


@pytest.mark.parametrize("name", whole_runs.ROWS)
def test_both_sides_have_the_same_files_and_settings(name, tmp_path):
    row = whole_runs.ROWS[name]
    made = whole_runs.commands(name, row, tmp_path, tmp_path / "out")
    ours, stock = made["ours"], made["stock"]
    assert stock["program"] == row.stock
    if not row.script:
        same = ("train", "model", "length")
        assert {key: ours[key] for key in same} == {key: stock[key] for key in same}
        return
    words = ours["flags"] if isinstance(ours, dict) else ours[2:]
    flags = dict(zip(words[::2], words[1::2]))
    names = {"--model_name_or_path": "model", "--validation_file": "validation", "--max_seq_length": "length"}
    if row.train:
        names |= {"--train_file": "train", "--per_device_train_batch_size": "batch", "--num_train_epochs": "epochs"}
        names |= {"--learning_rate": "learning_rate", "--max_steps": "max_steps", "--seed": "seed"}
    assert {flag: flags[flag] for flag in names} == {flag: str(stock[key]) for flag, key in names.items()}
    assert flags.get("--eval_steps") == (whole_runs.NEVER if row.train else None)  # The other side has "no".
    assert bool(stock["train"]) == row.train and ("--train_file" in flags) == row.train


def test_a_row_compares_runs_of_one_repetition():
    runs = {
        "ours": [{"seconds": 2.0, "mb": 500, "marks": {}}, {"seconds": 4.0, "mb": 510, "marks": {}}],
        "stock": [{"seconds": 6.0, "mb": 600, "marks": {}}, {"seconds": 8.0, "mb": 590, "marks": {}}],
    }
    row = whole_runs.row_of("mrpc", runs)
    assert (row["ratio"], row["ratio_range"], row["ours_mb"], row["stock_mb"]) == (2.5, [2.0, 3.0], 510, 600)
    assert tables.whole_runs({"mrpc": row}).splitlines()[-1] == (
        "| mrpc | 3.0 | 7.0 | 2.50 | 2.00 to 3.00 | 2.0 | 510 | 600 |"
    )


def test_a_cold_start_ends_with_the_first_step_and_has_parts():
    ours = {"imports": 3.0, "data": 3.5, "network": 4.5, "first step": 5.0}
    runs = {
        "ours": [{"seconds": 90.0, "mb": 1, "marks": ours}],
        "stock": [{"seconds": 90.0, "mb": 1, "marks": {name: 2 * value for name, value in ours.items()}}],
    }
    row = whole_runs.row_of("cold start", runs)
    assert row["ratio"] == 2.0 and row["ours_seconds"] == [5.0]
    assert row["parts"]["ours"] == {"imports": 3.0, "data": 0.5, "network": 1.0, "first step": 0.5}
    table = tables.whole_runs({"cold start": row})
    assert "| cold start, seconds | imports | data | network | first step |" in table
    assert table.splitlines()[-1] == "| Trainer | 6.00 | 1.00 | 2.00 | 1.00 |"


def test_memory_is_that_of_the_process_that_was_started():
    """Not of this one, which getrusage would include."""
    code = "import time; held = bytearray(80_000_000); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    process.stdout.readline()
    found = whole_runs.resident_peak(process.pid)
    process.kill()
    process.wait()
    process.stdout.close()
    assert 76 < found < 120 < whole_runs.resident_peak(os.getpid())
    assert whole_runs.resident_peak(process.pid) == 0


def test_rows_that_the_command_does_not_name_stay_as_they_were(tmp_path, monkeypatch):
    """And rows are in the order of the table, whichever was measured first."""
    run = {"seconds": 2.0, "mb": 500, "marks": {}}
    monkeypatch.setattr(whole_runs, "make_run", lambda command, output: run)
    monkeypatch.setattr(whole_runs, "prepare", lambda *given: "made-up text")
    monkeypatch.setattr(idle, "busy_cores", lambda: 0.0)
    output = tmp_path / "found.json"
    places = ["--work_dir", str(tmp_path), "--output", str(output)]
    whole_runs.main([*places, "--only", "sst2"])
    first = json.loads(output.read_text())["sst2"]
    whole_runs.main([*places, "--only", "mrpc", "--repetitions", "1"])
    both = json.loads(output.read_text())
    assert list(both) == ["mrpc", "sst2"] and both["sst2"] == first
    assert [len(row["ours_seconds"]) for row in both.values()] == [1, 3]
    with pytest.raises(SystemExit, match=r"a row 'mrpc' of \{'size': 'mini'\}, expected \{'size': 'small'\}.*--output"):
        whole_runs.main([*places, "--only", "corpus", "--config_name", "small"])
    assert json.loads(output.read_text()) == both


def test_a_run_that_fails_says_why(tmp_path):
    command = [sys.executable, "-S", "-c", "raise SystemExit('no such model')"]
    with pytest.raises(SystemExit, match=r"status 1: no such model"):
        whole_runs.make_run(command, tmp_path / "out")


@pytest.mark.slow
def test_rows_at_tiny_sizes(tmp_path, capsys):
    chosen = ["squad", "scoring mrpc", "cold start", "corpus"]
    whole_runs.main(["--smoke", "--work_dir", str(tmp_path), "--only", *chosen])
    record = json.loads((tmp_path / "whole_runs.json").read_text())
    assert list(record) == chosen
    assert all(min(row["ours_mb"], row["stock_mb"]) > 100 for row in record.values())
    cold = record["cold start"]
    for side in ("ours", "stock"):
        assert all(seconds > 0 for seconds in cold["parts"][side].values())
        assert cold[f"{side}_seconds"][0] == pytest.approx(sum(cold["parts"][side].values()), abs=0.05)
    assert AutoTokenizer.from_pretrained(tmp_path / "data" / "model").vocab_size == 30522
    assert all({"commit", "date", "versions", "data", "size"} <= set(row) for row in record.values())
    assert "| cold start |" in capsys.readouterr().out


def test_the_picture_of_a_cold_start_shows_every_part_of_both_sides(tmp_path, monkeypatch):
    parts = {"imports": 4.0, "data": 1.0, "network": 0.5, "first step": 0.5}
    origin = {"device": "a processor", "threads": 2, "size": "mini", "versions": {"torch": "2"}}
    figures = []
    monkeypatch.setattr(picture.Figure, "savefig", lambda self, *_, **__: figures.append(self))
    halves = {name: value / 2 for name, value in parts.items()}
    totals = {"ours_seconds": [3.0, 3.5, 3.1], "stock_seconds": [6.0, 7.0, 6.2]}
    row = origin | totals | {"parts": {"ours": halves, "stock": parts}}
    picture.draw({"cold start": row}, tmp_path / "x.png")
    (axes,) = figures[0].axes
    bars = {(bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width()) for bar in axes.patches}
    assert bars == {
        (place, left * share, width * share)
        for place, share in ((0, 0.5), (1, 1.0))
        for left, width in ((0, 4), (4, 1), (5, 0.5), (5.5, 0.5))
    }
    assert [text.get_text() for text in axes.texts] == ["3.1 s in all", "6.2 s in all"]


def test_varlen_attention_of_the_other_side_is_attention(monkeypatch):
    """A loop takes the kernel's place, which needs a GPU."""
    from torch.nn.attention import varlen

    def kernel(query, key, value, starts, stops, longest, longest_key):
        assert torch.equal(starts, stops) and longest == longest_key == 5
        rows = [slice(start, stop) for start, stop in pairwise(starts.tolist())]
        heads_first = [[one[row].transpose(0, 1) for one in (query, key, value)] for row in rows]
        return torch.cat([scaled_dot_product_attention(*states).transpose(0, 1) for states in heads_first])

    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    states = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(0)).unbind()
    context, weights = whole_run_programs.varlen_attention(None, *states, None)
    assert weights is None
    torch.testing.assert_close(context, scaled_dot_product_attention(*states).transpose(1, 2))

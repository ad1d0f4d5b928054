"""lab/benchmarks/compiled.py: three ways take turns, with and without dropout, and the first steps are counted
apart.
"""

import json

import pytest
import torch

from lab.benchmarks import compiled, tables


def test_the_ways_take_turns(tmp_path, monkeypatch, capsys):
    calls = []

    def seconds(work):
        work()
        calls.append(1)
        return float(len(calls))

    monkeypatch.setattr(compiled, "processor_seconds", seconds)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: None)
    threads, output = torch.get_num_threads(), tmp_path / "found.json"
    flags = "--sizes tiny --rows 2 --length 16 --vocab_size 500 --repetitions 3 --output"
    compiled.main([*flags.split(), str(output)])
    record = json.loads(output.read_text())
    # Each row begins with four steps that are not counted: two compiled ones, and one of either other way.
    first, second = record["results"]
    assert [first["dropout"], second["dropout"]] == [0.1, 0.0]
    assert first["seconds"] == {"ours": 8, "compiled": 9, "transformers": 10} and first["first_two_steps"] == 3
    assert first["range"]["ours"] == [5, 11] and second["range"]["transformers"] == [20, 26]
    assert capsys.readouterr().out == tables.compiled(record)
    assert "| BERT-Tiny, 2 rows of 16 tokens | 0.1 | 8.000 | 9.000 | 10.000 | 0.89 | 3 |" in tables.compiled(record)
    assert torch.get_num_threads() == threads


def test_only_the_time_of_this_process_counts():
    assert compiled.processor_seconds(lambda: sum(range(300_000))) > 0
    assert compiled.processor_seconds(lambda: __import__("time").sleep(0.2)) == pytest.approx(0, abs=0.1)

"""docs/answer-questions.md, run from its first command to its last line of Python with a tiny network."""

import json
import re
import shlex
from pathlib import Path

import pytest

import run_squad
from bert_training.__main__ import main as run_command
from tests.helpers.repository import ROOT
from tests.helpers.small_networks import save_random_network, small_config
from tests.helpers.squad_examples import squad_content

DOCUMENT = ROOT / "docs" / "answer-questions.md"
PROGRAMS = {"run_squad.py": run_squad.main, "bert-repro": run_command}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def commands() -> list[tuple[str, list[str]]]:
    """The program and the arguments of every command of the page."""
    lines = "".join(blocks("bash")).replace("\\\n", " ").splitlines()
    found = [shlex.split(line) for line in lines]
    return [(words[0], words[1:]) if words[0] == "bert-repro" else (words[1], words[2:]) for words in found]


@pytest.fixture
def here(tmp_path, tokenizer_folder, vocab, monkeypatch):
    """A current folder with the files and the model that the page names."""
    monkeypatch.chdir(tmp_path)
    config = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=512)
    save_random_network(Path("runs/base"), tokenizer_folder, config)
    for name, count in (("train", 9), ("dev", 7)):
        Path(f"{name}-v2.0.json").write_text(json.dumps(squad_content(count, True)))
    paragraph = {"context": "The doctor opened the house.", "qas": [{"id": "1", "question": "Who opened it?"}]}
    Path("questions.json").write_text(json.dumps({"data": [{"title": "House", "paragraphs": [paragraph]}]}))
    Path("contexts.txt").write_text("The doctor opened the house.\n\nThe river is old.\n")
    return tmp_path


def test_the_commands_and_the_code_of_the_page_run(here, capsys):
    printed = []
    for program, arguments in commands():
        capsys.readouterr()
        assert not PROGRAMS[program](arguments)
        printed.append((arguments[0] if program == "bert-repro" else program, capsys.readouterr().out))
    assert [name for name, _ in printed] == ["run_squad.py", "ask", "ask", "run_squad.py", "score", "score"]
    results = json.loads(Path("runs/squad2/all_results.json").read_text())
    plain, searched = (json.loads(out) for _, out in printed[-2:])
    assert plain["f1"] == results["eval_f1"] and "best_f1" not in plain
    assert searched["f1"] == results["eval_at_0_f1"] and searched["best_f1"] == results["eval_best_f1"]
    records = [[json.loads(line) for line in out.splitlines()] for _, out in printed[1:3]]
    assert [len(lines) for lines in records] == [1, 4]
    names = {}
    for block in blocks("python"):
        exec(block, names)
    (found,), (asked,) = names["results"], records[0]
    assert found == asked | {"score": pytest.approx(asked["score"], abs=1e-5)}

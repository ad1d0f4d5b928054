"""docs/adapt.md: its commands run in order, from a published model to the comparison, with a tiny network."""

import re
import shlex

import pytest

import run_glue
import run_pretraining
from bert_training.__main__ import main as run_command
from tests.helpers.repository import ROOT
from tests.helpers.small_networks import save_random_network, small_config

PROGRAMS = {"run_pretraining.py": run_pretraining.main, "run_glue.py": run_glue.main, "bert-repro": run_command}
SHORT = ["--max_steps", "2", "--save_steps", "0"]
# The step to show, the new pieces, and the phases.
SMALLER = {"100": "1", "2000": "2", "128:0.9:32,1024:0.1:4x8": "16:0.5:4,32:0.5:2x2"}


def commands() -> list[list[str]]:
    """The words of every command of the page, from the name of the program on."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "adapt.md").read_text(encoding="utf-8"), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    lines = [command.strip() for line in lines for command in line.split("&&")]
    return [shlex.split(line, comments=True)[line.startswith("python ") :] for line in lines]


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path, tokenizer_folder, vocab, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=64)
    save_random_network(tmp_path / "google-bert/bert-base-uncased", tokenizer_folder, config)
    sentence = "the doctor opened the house . bevacizumab nivolumab . "
    (tmp_path / "words.txt").write_text("bevacizumab\n")
    for name in ("domain", "wiki", "domain_heldout", "wiki_heldout"):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(sentence * n for n in range(1, 60)) + "\n")
    rows = "text,label\n" + "".join(f"the house {n} .,a\nthe doctor {n} .,b\n" for n in range(5))
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "b.csv").write_text(rows + "the river .,a\n")
    found = commands()
    assert [words[0] for words in found[:4]] == ["run_pretraining.py", "run_glue.py", "run_glue.py", "bert-repro"]
    for program, *words in found:
        words = [SMALLER.get(word, word) for word in words]
        if program.endswith(".py"):
            words += SHORT if "--phases" in words else [*SHORT, "--max_seq_length", "16"]
        assert not PROGRAMS[program](words), capsys.readouterr().err
    assert "own_before" in (tmp_path / "report/report.md").read_text()

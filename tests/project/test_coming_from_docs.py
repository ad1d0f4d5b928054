"""docs/coming-from.md: its commands run with a tiny network, and the names that it calls common are common."""

import dataclasses
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest
from transformers import TrainingArguments

from bert_training.inputs.flags.fine_tuning import GlueArguments
from tests.helpers.official_files import write_task
from tests.helpers.repository import ROOT
from tests.helpers.small_networks import save_random_network, small_config
from tests.helpers.squad_examples import squad_content
from tests.helpers.tagged_text import CONLL

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
SHORT = ["--max_steps", "2", "--save_steps", "0", "--per_device_train_batch_size", "4"]
MORE = {"run_glue": ["--data_dir", "mrpc"], "extract_features": []}
SMALLER = {"128": "32", "128:0.9:256,512:0.1:256": "16:0.5:4,32:0.5:4", "base": "mini", "10000": "1"}


def commands() -> list[tuple[str, list[str]]]:
    """The script and the words of every command of the page."""
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [(Path(words[1]).stem, words[2:]) for words in map(shlex.split, lines)]


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path, tokenizer_folder, vocab, monkeypatch, no_pictures):
    monkeypatch.chdir(tmp_path)
    config = small_config(vocab_size=len(vocab), num_hidden_layers=1, max_position_embeddings=512)
    for name in ("uncased", "cased"):
        save_random_network(Path(f"google-bert/bert-base-{name}"), tokenizer_folder, config)
    for name in ("wiki.txt", "domain.txt"):
        Path(name).write_text("".join(f"the king {n} walked .\nthe queen {n} slept .\n\n" for n in range(300)))
    for name, count in (("train", 9), ("dev", 7)):
        Path(f"{name}-v1.1.json").write_text(json.dumps(squad_content(count, False)))
    Path("train.txt").write_text(CONLL * 5)
    Path("inputs.txt").write_text("the king walked .\n")
    write_task(Path("mrpc"), "mrpc")
    for script, words in commands():
        words = [SMALLER.get(word, word) for word in words] + MORE.get(script, [])
        importlib.import_module(script).main(words + (SHORT if script.startswith("run_") else []))
    finished = [path.parent.name for path in Path("runs").glob("*/all_results.json")]
    assert sorted(finished) == ["base", "domain", "mrpc", "names", "squad"]
    assert len(Path("features.jsonl").read_text().splitlines()) == 1


def test_the_names_that_are_common_are_common():
    """Ours are flags; those of Trainer are its arguments, the others those of transformers' examples."""
    (told,) = re.findall(r"are the same in every script: (.*?)\.\n", PAGE, re.DOTALL)
    names = set(re.findall(r"`(\w+)`", told))
    assert names <= {field.name for field in dataclasses.fields(GlueArguments)}
    others = {"model_name_or_path", "config_name", "tokenizer_name", "dataset_name", "dataset_config_name"}
    others |= {"train_file", "validation_file", "test_file", "max_train_samples", "max_eval_samples", "max_seq_length"}
    assert names - others <= {field.name for field in dataclasses.fields(TrainingArguments)}

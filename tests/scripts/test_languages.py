"""Text that a tokenizer loses, through every script: it is said, or refused before any work."""

import csv
import random
import re

import pytest
from transformers import AutoTokenizer, BertTokenizer, pipeline

import extract_features
import run_glue
from tests.helpers.pretraining_runs import pretrain

HINDI = "मेरे स्कूल में लोग काम करते हैं हमारे बाज़ार पदों पर भर्ती है अपने गाँव घर किताबें मिलती बच्चे पढ़ते पोस्ट".split()
THAI = "เพราะ ให้ เอเชีย สูตร หรือ การ ถือ ว่า คน ควร ที่ บ้าน เพื่อน".split()

pytestmark = pytest.mark.usefixtures("no_pictures")


def documents(words: list[str], joint: str = " ", seed: int = 0, count: int = 60) -> str:
    draw = random.Random(seed)

    def sentence() -> str:
        return joint.join(draw.choices(words, k=draw.randint(4, 9))) + "."

    return "\n\n".join("\n".join(sentence() for _ in range(4)) for _ in range(count)) + "\n"


@pytest.fixture
def text(tmp_path):
    """A function that writes a text and returns its path."""

    def write(content: str, name: str = "text.txt"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return write


@pytest.fixture
def learnt(pretraining_flags):
    """A function that makes the flags of a run that learns its vocabulary."""

    def make(name, file, **more):
        shape = {"config_name": "tiny", "tokenizer_name": None, "vocab_size": 300, "max_steps": 2}
        return pretraining_flags(name, train_file=file, **(shape | {"save_steps": 1, "eval_steps": 0} | more))

    return make


def test_a_hindi_run_keeps_its_vowels_in_every_reader(learnt, text, capsys):
    folder = pretrain(learnt("hindi", text(documents(HINDI))))
    out = capsys.readouterr().out
    assert "warning" not in out
    for opened in (AutoTokenizer.from_pretrained(folder), BertTokenizer.from_pretrained(folder)):
        assert opened.tokenize("में पोस्ट") == ["में", "पोस्ट"]
        assert opened.decode(opened("में पोस्ट")["input_ids"], skip_special_tokens=True) == "में पोस्ट"
    filled = pipeline("fill-mask", model=str(folder), tokenizer=str(folder))
    assert filled("में [MASK]", targets=["पोस्ट"])[0]["token_str"] == "पोस्ट"


def test_thai_with_an_english_tokenizer_is_refused(pretraining_flags, text, tmp_path):
    file = text(documents(THAI))
    message = (
        r"^train text: expected text that the tokenizer knows, but 100\.0% of its characters are in \[UNK\], such as"
    )
    with pytest.raises(ValueError, match=message):
        pretrain(pretraining_flags("refused", train_file=file))
    assert not (tmp_path / "refused" / "run.json").exists()


def fine_tuning(folder, model, rows):
    """The flags for a table of ``rows``."""
    with open(folder / "data.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text", "label"], *([row, number % 2] for number, row in enumerate(rows))])
    return [
        f"--model_name_or_path={model}", f"--train_file={folder / 'data.csv'}", f"--output_dir={folder / 'run'}",
        f"--validation_file={folder / 'data.csv'}", "--max_steps=1", "--per_device_train_batch_size=4",
        "--max_seq_length=32", "--save_steps=0",
    ]  # fmt: skip


def test_a_table_that_the_model_cannot_read_is_refused(tmp_path, pretrained):
    flags = fine_tuning(tmp_path, pretrained, [" ".join(THAI[:6])] * 8)
    with pytest.raises(ValueError, match=r" train: expected text that the tokenizer knows, .*take a model of"):
        run_glue.main(flags)
    assert not (tmp_path / "run").exists()


def test_what_a_table_loses_is_said(tmp_path, pretrained, capsys):
    """tests/tasks/test_task_data.py has the other scripts."""
    run_glue.main(fine_tuning(tmp_path, pretrained, ["the house में is old and red"] * 4 + ["red window"] * 4))
    out = capsys.readouterr().out
    for split in ("train", "validation"):
        assert re.search(rf"\nwarning: {split}: .*% of the characters are in \[UNK\]", out)
        assert f"\nwarning: {split}: accents or vowels are stripped from " in out
    assert "(Devanagari: में becomes म)" in out
    assert "take a model whose tokenizer keeps them (strip_accents false in tokenizer_config.json)\n" in out


def test_extract_features_says_what_it_loses(tmp_path, pretrained, text, capsys):
    file = text("the house में\nthe red window\n")
    flags = ["--model_name_or_path", str(pretrained), "--input_file", str(file), "--max_seq_length", "16"]
    extract_features.main([*flags, "--output_file", str(tmp_path / "out.npz"), "--pooling", "mean", "--layers=-1"])
    warnings = capsys.readouterr().out.splitlines()
    assert warnings[0].startswith(f"warning: {file}: 13.0% of the characters are in [UNK]")
    assert "(Devanagari: में becomes म)" in warnings[1]

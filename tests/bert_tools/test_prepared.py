"""A run takes a corpus that bert-repro corpus has prepared."""

import shutil
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from bert_tools.corpus import main
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.text import Text, build_corpora
from tests.helpers.small_corpora import data_bytes


@pytest.fixture
def corpora(tokenizer_folder, tmp_path):
    """A function that builds the corpora of a run in a folder, with more flags."""
    (tmp_path / "a.txt").write_text("the old house .\na new river .\n\n\n\na king .\nthe queen .\n" * 9)
    (tmp_path / "b.txt").write_text("music in the night .\nthe king .\n\na letter .\n")
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)

    def build(name, *more):
        flags = f"--output_dir {tmp_path / name} --train_file {tmp_path / 'a.txt'} --tokenizer_name {tokenizer_folder}"
        flags += f" --validation_file {tmp_path / 'b.txt'}"
        args = parse_arguments(PretrainingArguments, [*flags.split(), *map(str, more)])
        run = SimpleNamespace(
            args=args,
            output_dir=tmp_path / name,
            is_main=True,
            main_first=lambda do: do(),
        )
        return build_corpora(run, Text(args), tokenizer)

    return build


def prepare(tmp_path, tokenizer, file="a.txt"):
    given = ["--train_file", tmp_path / file, "--tokenizer_name", tokenizer, "--output_dir", tmp_path / "prepared"]
    main([*map(str, given), "--num_workers", "1"])
    return tmp_path / "prepared"


def test_a_prepared_corpus_is_that_of_the_run(corpora, tmp_path, tokenizer_folder):
    own = corpora("own")
    prepared = prepare(tmp_path, tokenizer_folder)
    taken = corpora("taken", "--corpus_dir", prepared)
    (one,), (other,) = own.train, taken.train
    assert data_bytes(other.path) == data_bytes(one.path) == data_bytes(prepared)
    assert other.facts == one.facts
    assert (other.path / "shard-00000/tokens.bin").samefile(prepared / "shard-00000/tokens.bin")
    shutil.rmtree(prepared)
    assert corpora("taken").train[0].facts == one.facts  # a resumed run needs neither flag nor folder


def test_a_corpus_of_other_text_or_of_another_tokenizer_is_refused(corpora, tmp_path, tokenizer_folder):
    prepared = prepare(tmp_path, tokenizer_folder, "b.txt")
    with pytest.raises(ValueError, match=r"prepared: holds a corpus made from other input \(it differs in: text\)"):
        corpora("one", "--corpus_dir", prepared)
    shutil.rmtree(prepared)
    words = (tokenizer_folder / "vocab.txt").read_text().split("\n")
    (tmp_path / "vocab.txt").write_text("\n".join([*filter(None, words), "##another"]) + "\n")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    prepare(tmp_path, tmp_path / "vocab.txt")
    with pytest.raises(ValueError, match="its token ids were made with another tokenizer"):
        corpora("two", "--corpus_dir", prepared)
    with pytest.raises(ValueError, match=r"none: not a finished corpus"):
        corpora("three", "--corpus_dir", tmp_path / "none")
    assert not list(tmp_path.glob("*/corpus/train*"))

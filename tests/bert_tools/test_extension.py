"""The command `vocabulary --extend` against what run_pretraining.py --extend_vocab does, and whole folders."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from bert_tools.vocabulary import main as vocabulary
from tests.helpers.new_words import equal, flags, weights_of, write_domain
from tests.helpers.pretraining_runs import pretrain
from tokenization import load_vocab

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_the_command_and_the_tokenizer_that_it_writes_do_the_same(tmp_path, pretrained, capsys):
    domain, listed = write_domain(tmp_path)
    padded = ("--pad_vocab_to_multiple_of", 8)
    adapted = pretrain(flags(tmp_path / "adapted", pretrained, domain, "--extend_vocab", listed, *padded))
    only_tokenizer = tmp_path / "tokenizer"
    only_tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(pretrained / name, only_tokenizer)
    vocabulary(["--extend", str(only_tokenizer), "--extend_vocab", str(listed), "--output_dir", str(tmp_path / "new")])
    more = ("--tokenizer_name", tmp_path / "new", *padded)
    named = pretrain(flags(tmp_path / "run", pretrained, domain, *more))
    assert "embeddings of 3 new pieces: the mean" in capsys.readouterr().out
    assert equal(named, adapted)
    # With weights, the command makes a model whose rows need no training to be there.
    made = tmp_path / "model"
    vocabulary([*f"--extend {pretrained} --extend_vocab 3 --train_file {domain} --output_dir {made}".split()])
    assert "BertForPreTraining" in capsys.readouterr().out
    rows = weights_of(made)["bert.embeddings.word_embeddings.weight"]
    assert len(rows) == len(load_vocab(made / "vocab.txt")) == len(load_vocab(pretrained / "vocab.txt")) + 3
    assert (made / "new_pieces.json").is_file()
    pretrain(flags(tmp_path / "continued", made, domain, steps=1))


@pytest.mark.parametrize("named", ["BertForMaskedLM", "BertForNextSentencePrediction"])
def test_both_heads_of_a_published_checkpoint_are_kept(tmp_path, pretrained, named):
    """The config.json of bert-base-uncased names BertForMaskedLM, which has no pooler; its file has both heads."""
    _, listed = write_domain(tmp_path)
    published = Path(shutil.copytree(pretrained, tmp_path / "published"))
    config = json.loads((published / "config.json").read_text()) | {"architectures": [named]}
    (published / "config.json").write_text(json.dumps(config))
    for name in ("hashes.json", "run.json"):
        (published / name).unlink(missing_ok=True)
    vocabulary([*f"--extend {published} --extend_vocab {listed} --output_dir {tmp_path / 'new'}".split()])
    old, new = weights_of(published), weights_of(tmp_path / "new")
    for name in ("bert.pooler.dense.weight", "cls.seq_relationship.weight", "cls.predictions.transform.dense.weight"):
        assert torch.equal(old[name], new[name])

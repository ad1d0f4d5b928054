"""run_pretraining.py with --extend_vocab, --max_position_embeddings, and from a checkpoint without a head."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from bert_training.pretraining.encoding import is_held_out
from modeling_bert_repro import BertForPreTraining
from tests.helpers.new_words import WORDS, equal, flags, weights_of, write_domain
from tests.helpers.pretraining_runs import pretrain
from tokenization import load_vocab
from tokenization.errors import UserError

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    return write_domain(tmp_path_factory.mktemp("domain"))


@pytest.fixture(scope="module")
def domain(files) -> Path:
    return files[0]


@pytest.fixture(scope="module")
def listed(files) -> Path:
    return files[1]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory, pretrained, domain, listed) -> Path:
    folder = tmp_path_factory.mktemp("adapted") / "run"
    return pretrain(flags(folder, pretrained, domain, "--extend_vocab", listed, "--pad_vocab_to_multiple_of", 8))


def test_the_files_agree_and_the_choice_is_recorded(adapted, pretrained):
    old, new = (list(load_vocab(folder / "vocab.txt")) for folder in (pretrained, adapted))
    assert new == old + WORDS[:3]
    tokenizer = AutoTokenizer.from_pretrained(adapted)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == new
    rows = -(-len(new) // 8) * 8
    assert BertConfig.from_pretrained(adapted).vocab_size == rows
    assert len(weights_of(adapted)["bert.embeddings.word_embeddings.weight"]) == rows
    assert tokenizer.tokenize("Nivolumab") == ["nivolumab"]
    recorded = json.loads((adapted / "run.json").read_text())["new_pieces"]
    assert list(recorded["saved"]) == WORDS[:3] and min(recorded["saved"].values()) > 100
    assert recorded["pieces_after"] < recorded["pieces_before"] and recorded["appended"] == 3


def test_resuming_gives_the_same_weights_and_needs_the_same_extension(tmp_path, adapted, pretrained, domain, listed):
    begun = tmp_path / "run"
    shutil.copytree(adapted, begun, ignore=shutil.ignore_patterns("all_results.json", "hashes.json", "checkpoint-4"))
    own = tmp_path / "words.txt"
    shutil.copy(listed, own)
    again = ["--pad_vocab_to_multiple_of", "8", "--resume_from_checkpoint", "auto"]
    for other, message in (("2", "holds a corpus made from other input"), (own, r"extend_vocab .* -> ")):
        with pytest.raises(UserError, match=message):
            pretrain(flags(begun, pretrained, domain, "--extend_vocab", other, *again))
    kept = listed.read_text()
    listed.write_text("\n".join(WORDS))
    try:
        with pytest.raises(UserError, match="holds a corpus made from other input"):
            pretrain(flags(begun, pretrained, domain, "--extend_vocab", listed, *again))
    finally:
        listed.write_text(kept)
    pretrain(flags(begun, pretrained, domain, "--extend_vocab", listed, *again))
    assert equal(begun, adapted)


def test_more_positions_and_transformers_network(tmp_path, pretrained, domain):
    more = ("--max_position_embeddings", 80, "--extend_vocab", 2, "--model_impl", "transformers", "--learning_rate", 0)
    folder = pretrain(flags(tmp_path / "run", pretrained, domain, *more, steps=1))
    old, new = (weights_of(path)["bert.embeddings.position_embeddings.weight"] for path in (pretrained, folder))
    assert torch.equal(new[:64], old) and torch.equal(new[64:], old[:16])
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 80
    assert BertConfig.from_pretrained(folder).max_position_embeddings == 80
    changed = (weights_of(folder)["cls.predictions.bias"][:-2] != weights_of(pretrained)["cls.predictions.bias"]).any()
    assert not changed and (weights_of(folder)["cls.predictions.bias"][-2:] < -0.1).all(), "the biases are not counted"


def test_a_checkpoint_without_a_head_begins_with_one_made_from_its_embeddings(tmp_path, pretrained, domain, capsys):
    shutil.copytree(pretrained, tmp_path / "encoder")
    BertModel.from_pretrained(pretrained).save_pretrained(tmp_path / "encoder")
    run = ("--learning_rate", 0)
    text = tmp_path / "text.txt"
    text.write_text(domain.read_text().replace("old", "old \u2603"))
    made = pretrain(flags(tmp_path / "made", tmp_path / "encoder", text, *run, steps=1))
    assert "has no head that predicts words; it begins with one made" in capsys.readouterr().out
    head = BertForPreTraining.from_pretrained(made).cls.predictions
    assert torch.equal(head.transform.dense.weight.diagonal().unique(), torch.tensor([0.5]))
    rows = load_vocab(made / "vocab.txt")
    difference = (head.bias[rows["the"]] - head.bias[rows["doctor"]]).detach()
    assert float(difference.exp()) == pytest.approx(2, rel=0.02), "its bias is not the logarithm of counts"
    assert head.bias[rows["[UNK]"]] == head.bias[rows["[PAD]"]], "[UNK] is counted, which is never predicted"
    shutil.copytree(tmp_path / "encoder", tmp_path / "random")
    torch.manual_seed(0)
    BertForPreTraining.from_pretrained(tmp_path / "encoder").save_pretrained(tmp_path / "random")  # it draws a head
    drawn = pretrain(flags(tmp_path / "drawn", tmp_path / "random", text, *run, steps=1))
    losses = [json.loads((folder / "all_results.json").read_text())["eval_mlm_loss"] for folder in (made, drawn)]
    assert losses[0] < losses[1] - 1


def test_neither_held_out_nor_hardly_read_text_chooses_the_pieces(tmp_path, pretrained):
    trained = [text for n in range(90) if not is_held_out([text := f"the old house {n} hepatitis"], 0.2)]
    held_out = [text for n in range(400) if is_held_out([text := f"the house {n}{' nivolumab' * 9}"], 0.2)]
    (tmp_path / "domain.txt").write_text("\n\n".join([*trained, *held_out]))
    (tmp_path / "general.txt").write_text("\n\n".join(f"the other doctor {n} angiotensin" for n in range(300)))
    files = f"{tmp_path}/domain.txt {tmp_path}/general.txt"
    arguments = flags(tmp_path / "run", pretrained, files, "--mixture", 0.9, 0.1, "--extend_vocab", 1, steps=1)
    saved = json.loads((pretrain(arguments) / "run.json").read_text())["new_pieces"]["saved"]
    assert list(saved) == ["hepatitis"]

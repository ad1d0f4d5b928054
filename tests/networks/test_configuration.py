"""training/networks/configuration.py: where a left-to-right network is accepted."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer, BertConfig

import run_glue
import run_swag
from modeling_bert_repro import BertForSequenceClassification
from training.networks.configuration import load_config


@pytest.fixture
def left_to_right(tmp_path, tokenizer_folder, small_config, vocab):
    """A folder with the tokenizer and the configuration of a left-to-right network."""
    small_config.is_decoder, small_config.vocab_size = True, len(vocab)
    shutil.copytree(tokenizer_folder, tmp_path / "ltr")
    small_config.save_pretrained(tmp_path / "ltr")
    return str(tmp_path / "ltr")


def test_the_first_token_of_a_left_to_right_network_sees_nothing(left_to_right):
    """This is the reason for the refusal: different texts have the same logits."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig.from_pretrained(left_to_right)).eval()
    ids = torch.randint(5, 30, (4, 9))
    ids[:, 0] = 2
    logits = model(ids).logits
    torch.testing.assert_close(logits, logits[:1].expand_as(logits))


@pytest.mark.parametrize("script", [run_glue, run_swag])
def test_left_to_right_is_refused_where_the_first_token_decides(left_to_right, tmp_path, script):
    flags = ["--model_name_or_path", left_to_right, "--output_dir", str(tmp_path / "out"), "--max_seq_length", "32"]
    with pytest.raises(ValueError, match="attends left to right"):
        script.main(flags)
    assert not (tmp_path / "out").exists()


def test_left_to_right_is_accepted_where_every_token_has_a_label(left_to_right):
    args = SimpleNamespace(config_name=None, model_name_or_path=left_to_right, max_seq_length=32)
    assert load_config(args, AutoTokenizer.from_pretrained(left_to_right)).is_decoder

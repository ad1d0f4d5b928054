"""bert_training/pretraining/word_loss.py and held_out_words.py: nats a word, against transformers' BERT by hand."""

import math
from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig
from transformers import BertForMaskedLM as Theirs

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import word_loss
from bert_training.pretraining.text import Text
from bert_training.pretraining.word_loss import WINDOW, HiddenWords, cut_pieces, hidden_words, word_windows
from modeling_bert_repro import BertForMaskedLM
from tests.helpers.small_networks import small_config
from tokenization import build_tokenizer

LINES = ["The cats sat, on Mats!", "a mat is sat on", None, "the Zebra sat on a mat.", None]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WHOLE = [*SPECIALS, *"the cats sat on mats a mat is , ! . zebra".split()]
IN_PIECES = [*SPECIALS, *"the cat ##s sa ##t on mat a is , ! . z ##e ##b ##r ##a".split()]
WITHOUT_Z = [piece for piece in WHOLE if piece != "zebra"]


def by_hand(windows, tokenizer, model) -> float:
    """The definition, word by word: the mean of -log p over the hidden words, with all pieces of a word hidden."""
    total, count = 0.0, 0
    for window in windows:
        pieces = [tokenizer.tokenize(word) for word in window.words]
        ids, places = [tokenizer.cls_token_id], {}
        for number, word in enumerate(pieces):
            for piece in tokenizer.convert_tokens_to_ids(word):
                if number in window.hidden:
                    places[len(ids)] = piece
                ids.append(tokenizer.mask_token_id if number in window.hidden else piece)
            if number in window.hidden:
                count += 1
                if tokenizer.unk_token in word:
                    total += math.log(1_114_112) * (len(window.words[number]) + 1)
        with torch.no_grad():
            logits = model(torch.tensor([[*ids, tokenizer.sep_token_id]])).logits[0]
        total -= sum(float(logits[place].log_softmax(-1)[piece]) for place, piece in places.items())
    return total / count


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("pieces", [WHOLE, IN_PIECES, WITHOUT_Z])
def test_nats_a_word_are_those_of_the_definition(make_run, tmp_path, pieces, sparse):
    tokenizer, windows = build_tokenizer(pieces), word_windows(LINES, 3)
    config = small_config(vocab_size=len(pieces), hidden_dropout_prob=0.5)
    model = BertForMaskedLM(config)
    model.save_pretrained(tmp_path)
    model.config.sparse_prediction = sparse
    run = make_run(per_device_eval_batch_size=1)
    found = HiddenWords(windows, tokenizer).evaluate(run, model, 32).results()
    theirs = Theirs.from_pretrained(tmp_path, config=BertConfig.from_pretrained(tmp_path)).eval()
    assert found["nats_per_word"] == pytest.approx(by_hand(windows, tokenizer, theirs), rel=1e-5)
    words = [word for window in windows for word in window.words]
    assert found["pieces_per_word"] == pytest.approx(sum(len(tokenizer.tokenize(word)) for word in words) / len(words))
    assert found["unk_share"] == pytest.approx((pieces is WITHOUT_Z) / len(words))


def test_who_cannot_write_a_word_gains_nothing(make_run):
    """An untrained network gives every piece about 1 / V; a word that is [UNK] still costs its characters."""
    windows = word_windows(["zebra"], 1)
    nats = {}
    for pieces in (WHOLE, IN_PIECES, WITHOUT_Z):
        run, model = make_run(), BertForMaskedLM(small_config(vocab_size=len(pieces)))
        nats[len(pieces)] = HiddenWords(windows, build_tokenizer(pieces)).evaluate(run, model, 32).nats
    assert nats[len(WHOLE)] < nats[len(IN_PIECES)] < nats[len(WITHOUT_Z)]
    assert nats[len(WITHOUT_Z)] == pytest.approx(6 * math.log(1_114_112) + math.log(len(WITHOUT_Z)), abs=1)


def test_words_and_windows_depend_on_the_text_alone():
    lines = [f"Word{number}, ({number})" for number in range(400)]
    windows = word_windows([*lines, None, "short", None], 97)
    assert sum(len(window.hidden) for window in windows) == 97
    assert word_windows(iter([*lines, None, "short", None]), 97) == windows
    words = [word for line in lines for word in (line.split(",")[0], ",", "(", line.split("(")[1][:-1], ")")]
    for window in windows:
        start = words.index(window.words[0], 0) if window.words[0].startswith("Word") else None
        assert len(window.words) == WINDOW or window.words[-1] in (")", "short")
        assert start is None or list(window.words) == words[start : start + WINDOW]
    everything = word_windows(["a b c d", None], 1000)
    assert [len(window.hidden) for window in everything] == [1]  # 15 % of 4 words


@pytest.mark.parametrize("capacity", [1, 2, 5, 7, 30])
def test_every_piece_is_in_one_input_whatever_the_length(capacity):
    words = [[1], [2, 3], [], [4, 5, 6, 7, 8, 9, 10], [11], [12, 13, 14]]
    inputs = cut_pieces(words, capacity)
    assert [piece for part in inputs for _, pieces in part for piece in pieces] == list(range(1, 15))
    assert all(0 < sum(len(pieces) for _, pieces in part) <= capacity for part in inputs)
    whole = [number for part in inputs for number in {number for number, _ in part} if len(words[number]) <= capacity]
    assert len(whole) == len(set(whole))  # Only words that are longer than an input are cut.
    assert (len(inputs) == 1) == (capacity == 30)


@pytest.mark.parametrize("apart", [True, False])
def test_a_tokenizer_with_other_words_than_those_of_bert_is_not_compared(tmp_path, apart, monkeypatch):
    """Without ``tokenize_chinese_chars``, what stands between two spaces is one word."""
    (tmp_path / "held.txt").write_text("\u4f60\u597d \u4e16\u754c .\n" * 9)
    flags = f"--output_dir x --train_file {tmp_path}/held.txt --validation_file {tmp_path}/held.txt"
    monkeypatch.setattr(word_loss, "ASKED_FOR", 7)
    args, said = parse_arguments(PretrainingArguments, flags.split()), []
    run = SimpleNamespace(args=args, say=said.append, only_main=lambda work: work())
    vocabulary = [*SPECIALS, *"\u4f60\u597d\u4e16\u754c", "##\u597d", "##\u754c", "."]
    found = hidden_words(run, Text(args), build_tokenizer(vocabulary, tokenize_chinese_chars=apart))
    assert [sum(len(window.hidden) for window in words.windows) for words in found.values()] == [7] * apart
    assert said == [] if apart else said[0].startswith("no nats a word: this tokenizer joins or divides words of held ")

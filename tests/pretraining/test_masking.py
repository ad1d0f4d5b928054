"""bert_training/pretraining/masking.py: the rule and its statistics; the fast version equals the readable one."""

import numpy as np
import pytest
from transformers import BertTokenizer

from bert_training.engine.batches import IGNORED
from bert_training.pretraining.masking import MaskSettings, mask_batch, mask_instance, masking_rule

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = [f"word{number}" for number in range(60)]
PIECES = [f"##piece{number}" for number in range(20)]
UNUSED = [f"[unused{number}]" for number in range(10)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *UNUSED, *WORDS, *PIECES]
FIRST_WORD, FIRST_PIECE = 15, 75


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(vocab={word: number for number, word in enumerate(VOCAB)})


def random_rows(rng, batch, length, pieces=0.3):
    """Padded pairs with some [UNK] and some "##" pieces, which also stand directly after [CLS] and [SEP]."""
    ids = np.full((batch, length), PAD)
    for row in ids:
        end = rng.integers(3, length + 1)
        row[:end] = rng.integers(FIRST_WORD, FIRST_PIECE, end)
        piece = rng.random(end) < pieces
        row[:end][piece] = rng.integers(FIRST_PIECE, len(VOCAB), piece.sum())
        row[:end][rng.random(end) < 0.03] = UNK
        row[0], row[rng.integers(1, end - 1)], row[end - 1] = CLS, SEP, SEP
    return ids


def test_whole_words_need_pieces():
    """A vocabulary of byte pairs has no "##": every piece would be a word of its own, without a word about it."""
    plain = BertTokenizer(vocab={word: number for number, word in enumerate(VOCAB[:FIRST_PIECE])})
    assert not masking_rule(plain, MaskSettings()).continuation.any()
    with pytest.raises(ValueError, match="--whole_word_mask needs a vocabulary with '##' pieces"):
        masking_rule(plain, MaskSettings(whole_word_mask=True))


# --- The fast version equals the readable one -------------------------------------------------------------


@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_predictions_per_seq": 2},
        {"max_predictions_per_seq": 1, "mlm_probability": 0.5},
        {"mlm_probability": 0.4, "mask_replace_prob": 0.1, "random_replace_prob": 0.6},
        {"mlm_probability": 1.0},
    ],
)
def test_masking_a_batch_equals_masking_its_instances(tokenizer, settings, whole_word):
    rule = masking_rule(tokenizer, MaskSettings(whole_word_mask=whole_word, **settings))
    ids = random_rows(np.random.default_rng(3), 60, 40, pieces=0.6)
    ids[0, 1:-1] = UNK  # Nothing can be masked in this row.
    index = np.arange(1000, 1060)
    masked, labels = mask_batch(rule, ids.astype(np.uint16), 11, 4, index)
    for row in range(60):
        expected = mask_instance(rule, ids[row].tolist(), 11, 4, int(index[row]))
        assert (masked[row].tolist(), labels[row].tolist()) == expected
    assert (labels[0] == IGNORED).all() and np.array_equal(masked[0], ids[0])
    assert masked.dtype == labels.dtype == np.int64


# --- The rule ---------------------------------------------------------------------------------------------


def test_exact_counts_and_only_ordinary_tokens(tokenizer):
    rng = np.random.default_rng(0)
    for cap in (None, 3):
        rule = masking_rule(tokenizer, MaskSettings(max_predictions_per_seq=cap))
        ids = random_rows(rng, 400, 64)
        masked, labels = mask_batch(rule, ids, 1, 0, np.arange(400))
        chosen = labels != IGNORED
        for row in range(400):
            ordinary = sum(token > MASK for token in ids[row].tolist())
            expected = min(max(1, round(0.15 * ordinary)), ordinary, cap or ordinary)
            assert chosen[row].sum() == expected
        assert (ids[chosen] > MASK).all()
        assert np.array_equal(labels[chosen], ids[chosen])
        assert np.array_equal(masked[~chosen], ids[~chosen])


def test_one_token_is_masked_in_the_shortest_sequence(tokenizer):
    rule = masking_rule(tokenizer, MaskSettings())
    _, labels = mask_batch(rule, np.array([[CLS, 20, SEP, PAD]]), 0, 0, np.array([0]))
    assert labels.tolist() == [[IGNORED, 20, IGNORED, IGNORED]]


@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (1.0, 0.0), (0.0, 1.0), (0.3, 0.0)])
def test_mask_mix_and_uniform_choice(tokenizer, whole_word, mask, random):
    rule = masking_rule(
        tokenizer, MaskSettings(mask_replace_prob=mask, random_replace_prob=random, whole_word_mask=whole_word)
    )
    # There are 80 replacements, so a random one equals the original once in 80 times.
    ids = np.tile(np.arange(FIRST_WORD, FIRST_WORD + 60), (2000, 1))
    ids[:, 0], ids[:, -1] = CLS, SEP
    masked, labels = mask_batch(rule, ids, 5, 0, np.arange(2000))
    chosen = labels != IGNORED
    count = chosen.sum()
    assert count == 2000 * 9
    kept = (masked == ids)[chosen].mean() - random / 80
    assert (masked == MASK)[chosen].mean() == pytest.approx(mask, abs=0.012)  # 4 standard deviations
    assert kept == pytest.approx(1 - mask - random, abs=0.012)
    # Every position is chosen equally often, 2000 * 9 / 58 times, with a binomial distribution.
    assert np.abs(chosen[:, 1:-1].sum(0) - 310.3).max() < 4.5 * np.sqrt(310.3)


@pytest.mark.parametrize(("mask", "random"), [(0.0, 1.0), (0.8, 0.2)])
def test_replacements_are_real_entries_drawn_uniformly(tokenizer, mask, random):
    rule = masking_rule(
        tokenizer, MaskSettings(mask_replace_prob=mask, random_replace_prob=random, mlm_probability=1.0)
    )
    rows = round(400 / random)
    masked, _ = mask_batch(rule, np.full((rows, 60), FIRST_WORD), 9, 0, np.arange(rows))
    counts = np.bincount(masked[masked != MASK], minlength=len(VOCAB))
    assert counts[:FIRST_WORD].sum() == 0  # There are neither special tokens nor [unused] rows.
    assert np.abs(counts[FIRST_WORD:] - 300).max() < 5 * np.sqrt(300)


def test_masks_are_fresh_in_every_epoch_and_a_function_of_their_place(tokenizer):
    rule = masking_rule(tokenizer, MaskSettings())
    ids = random_rows(np.random.default_rng(2), 8, 64)
    index = np.arange(8)
    first = mask_batch(rule, ids, 1, 0, index)
    for seed, epoch, rows in ((1, 1, index), (2, 0, index), (1, 0, index + 8)):
        assert not np.array_equal(first[1], mask_batch(rule, ids, seed, epoch, rows)[1])
    part = mask_batch(rule, ids[3:5], 1, 0, index[3:5])
    assert np.array_equal(part[0], first[0][3:5]) and np.array_equal(part[1], first[1][3:5])
    wider = np.pad(ids, ((0, 0), (0, 16)))
    assert np.array_equal(mask_batch(rule, wider, 1, 0, index)[1][:, :64], first[1])


# --- Whole words ------------------------------------------------------------------------------------------


def words_of(row):
    """The positions of each word. A "##" piece continues a word only if an ordinary token stands directly before it."""
    words = []
    for position, token in enumerate(row):
        if token > MASK and token >= FIRST_PIECE and words and words[-1][-1] == position - 1:
            words[-1].append(position)
        elif token > MASK:
            words.append([position])
    return words


def test_words_are_masked_whole_and_never_too_many(tokenizer):
    rule = masking_rule(tokenizer, MaskSettings(whole_word_mask=True))
    ids = random_rows(np.random.default_rng(4), 300, 80, pieces=0.4)
    _, labels = mask_batch(rule, ids, 1, 0, np.arange(300))
    reached = 0
    for row, label in zip(ids.tolist(), labels.tolist()):
        words = words_of(row)
        if not words:  # The row contains nothing but [UNK].
            continue
        limit = max(1, round(0.15 * sum(map(len, words))))
        chosen = {position for position, value in enumerate(label) if value != IGNORED}
        assert 1 <= len(chosen) <= limit
        if min(map(len, words)) <= limit:
            assert all(set(word) <= chosen or not set(word) & chosen for word in words)
        reached += len(chosen) == limit
    assert reached > 250  # Words of a single piece fill up what is left.


def test_a_word_longer_than_the_limit_gives_its_first_pieces(tokenizer):
    rule = masking_rule(tokenizer, MaskSettings(whole_word_mask=True, mlm_probability=0.3))
    row = [CLS, 20, 76, 77, 78, 79, 80, SEP]  # This is one word of 6 pieces, of which 2 may be predicted.
    _, labels = mask_instance(rule, row, 0, 0, 0)
    assert [position for position, label in enumerate(labels) if label != IGNORED] == [1, 2]


def test_pieces_of_one_word_get_their_own_replacements(tokenizer):
    rule = masking_rule(tokenizer, MaskSettings(whole_word_mask=True, mlm_probability=0.5))
    ids = np.tile([CLS, 20, 76, 77, SEP], (500, 1))
    masked, labels = mask_batch(rule, ids, 1, 0, np.arange(500))
    assert ((labels != IGNORED).sum(1) == 2).all()  # round(1.5) pieces of the only word are chosen.
    both = (masked[:, 1] == MASK) == (masked[:, 2] == MASK)
    assert both.mean() == pytest.approx(0.8**2 + 0.2**2, abs=0.09)  # Each piece is drawn independently.


# --- The user's mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mask_replace_prob": 0.8, "random_replace_prob": 0.3}, "add up to at most 1"),
        ({"random_replace_prob": -0.1}, "shares of at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(tokenizer, settings, message):
    with pytest.raises(ValueError, match=message):
        masking_rule(tokenizer, MaskSettings(**settings))

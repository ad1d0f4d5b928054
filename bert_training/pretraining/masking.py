"""Choose and mask the tokens that a masked language model must predict (paper, section 3.1 and appendix A.1).

    my dog is hairy   ->   my dog is [MASK]    80 % of the chosen tokens
                           my dog is apple     10 %
                           my dog is hairy     10 %

Training uses ``mask_batch``, which works on whole arrays. ``mask_instance`` is the same rule for one sequence, in
readable form, and a test compares the two. Both take their random numbers from a hash of (seed, epoch, instance,
purpose, position) instead of a generator with a state. Therefore they agree exactly, and the masks of an instance
depend only on its position in the data.

Shapes: B batch, L length, V vocabulary, R replacements.
"""

import re
from dataclasses import dataclass, fields

import numpy as np
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED
from bert_training.pretraining.hashed_random import below, continue_hash, random_bits, uniform
from tokenization.bert_tokenizer import check_special_tokens
from tokenization.errors import UserError

# --- The rule -----------------------------------------------------------------------------------------------

FOR_CHINESE = (
    "To mask whole words of Chinese, put spaces between the words of the text with a segmenter, and give "
    "--tokenizer_name a vocabulary that bert-repro vocabulary --tokenize_chinese_chars false has learnt from it"
)
# What a random number is used for: a counter of `random_bits`.
_ORDER, _KIND, _REPLACEMENT = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class MaskSettings:
    """How many tokens are masked, and how; the flags of run_pretraining.py have the same names and defaults.

    Attributes:
        mlm_probability: share of the tokens to predict.
        mask_replace_prob: share of the predicted tokens to replace with [MASK].
        random_replace_prob: share of the predicted tokens to replace with a random one; the remainder stay as they are.
        whole_word_mask: choose all pieces of a word or none.
        max_predictions_per_seq: largest number of predicted tokens of a sequence; None for no limit.

    Raises:
        ValueError: a setting is out of range.
    """

    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    whole_word_mask: bool = False
    max_predictions_per_seq: int | None = None

    def __post_init__(self) -> None:
        mask, random = self.mask_replace_prob, self.random_replace_prob
        if mask < 0 or random < 0 or mask + random > 1 + 1e-9:
            raise UserError(
                f"mask_replace_prob {mask} and random_replace_prob {random}: expected shares of at least 0 that "
                "add up to at most 1 (the rest stays unchanged)"
            )


@dataclass(frozen=True, kw_only=True)
class MaskingRule(MaskSettings):
    """The settings applied to a vocabulary; made by ``masking_rule``.

    Attributes:
        mask_token_id: the id of [MASK].
        maskable: (V) bool, ids that may be chosen.
        continuation: (V) bool, ids of pieces that begin with "##".
        replacements: (R) ids from which a random replacement is drawn.
    """

    mask_token_id: int
    maskable: np.ndarray
    continuation: np.ndarray
    replacements: np.ndarray

    def num_predictions(self, num_maskable: np.ndarray | int) -> np.ndarray:
        """How many tokens to predict out of ``num_maskable``.

        It is the share ``mlm_probability``, at least 1 if there are any, at most ``max_predictions_per_seq``.
        """
        # np.rint rounds halves to even, as Python's round in Google's create_pretraining_data.py does.
        count = np.maximum(1, np.rint(np.multiply(num_maskable, self.mlm_probability)).astype(np.int64))
        if self.max_predictions_per_seq is not None:
            count = np.minimum(count, self.max_predictions_per_seq)
        return np.minimum(count, num_maskable)


def continuation_pieces(tokenizer: PreTrainedTokenizerBase) -> np.ndarray:
    """(V) bool: which pieces continue a word ("##ing")."""
    words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return np.array([word.startswith("##") for word in words])


def check_masking(tokenizer: PreTrainedTokenizerBase, whole_word_mask: bool) -> None:
    """Check that a vocabulary has what masking needs.

    Raises:
        ValueError: it lacks a special token or, for whole words, pieces that continue a word.
    """
    check_special_tokens(tokenizer, masking=True)
    if whole_word_mask and not continuation_pieces(tokenizer).any():
        raise UserError(
            "--whole_word_mask needs a vocabulary with '##' pieces, by which the pieces of a word are known; this "
            "tokenizer has none: leave the flag out (with --recipe adapt: --whole_word_mask false), or take a "
            f"WordPiece tokenizer. {FOR_CHINESE}"
        )


def masking_rule(tokenizer: PreTrainedTokenizerBase, settings: MaskSettings) -> MaskingRule:
    """The rule for the vocabulary of ``tokenizer``.

    Special tokens, including [UNK], are neither chosen nor used as replacements, and [unused] rows are not used as
    replacements either. Google's generator may replace a token by any row of the vocabulary.

    Raises:
        ValueError: as ``check_masking`` does.
    """
    check_masking(tokenizer, settings.whole_word_mask)
    words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = np.isin(np.arange(len(words)), tokenizer.all_special_ids)
    unused = np.array([re.fullmatch(r"\[unused\d+\]", word) is not None for word in words])
    return MaskingRule(
        mask_token_id=tokenizer.mask_token_id,
        maskable=~special,
        continuation=continuation_pieces(tokenizer),
        replacements=np.flatnonzero(~special & ~unused),
        **{field.name: getattr(settings, field.name) for field in fields(MaskSettings)},
    )


def mask_instance(
    rule: MaskingRule, input_ids: list[int], seed: int, epoch: int, index: int
) -> tuple[list[int], list[int]]:
    """(masked ids, labels) of one sequence; the reference for ``mask_batch``.

    Args:
        rule: what may be masked, and how.
        input_ids: the sequence (L), padded or not.
        seed: seed of all draws.
        epoch: the epoch of the sequence.
        index: its number within the epoch.
    """
    candidates: list[list[int]] = []  # positions of each word, or of each token
    for position, token in enumerate(input_ids):
        if not rule.maskable[token]:
            continue
        follows = candidates and candidates[-1][-1] == position - 1
        if rule.whole_word_mask and rule.continuation[token] and follows:
            candidates[-1].append(position)
        else:
            candidates.append([position])

    def order(candidate: list[int]) -> int:
        # The low 16 bits are the position, so that no two candidates compare equal.
        return int(random_bits(seed, epoch, index, _ORDER, candidate[0])) >> 16 << 16 | candidate[0]

    candidates.sort(key=order)
    count = int(rule.num_predictions(sum(map(len, candidates))))
    chosen: list[int] = []
    for candidate in candidates:
        if len(chosen) + len(candidate) <= count:  # a word that would exceed the count is skipped
            chosen += candidate
    if candidates and not chosen:  # every word is too long, so the first one is masked in part
        chosen = candidates[0][:count]

    masked, labels = list(input_ids), [IGNORED] * len(input_ids)
    for position in chosen:
        labels[position] = input_ids[position]
        kind = float(uniform(random_bits(seed, epoch, index, _KIND, position)))
        if kind < rule.mask_replace_prob:
            masked[position] = rule.mask_token_id
        elif kind < rule.mask_replace_prob + rule.random_replace_prob:
            draw = below(random_bits(seed, epoch, index, _REPLACEMENT, position), len(rule.replacements))
            masked[position] = int(rule.replacements[draw])
    return masked, labels


# --- The same rule on arrays --------------------------------------------------------------------------------


def mask_batch(
    rule: MaskingRule, input_ids: np.ndarray, seed: int, epoch: int, index: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(masked ids, labels), both (B, L) int64, of padded sequences; equal to ``mask_instance`` for each of them.

    Args:
        rule: what may be masked, and how.
        input_ids: the sequences (B, L).
        seed: seed of all draws.
        epoch: the epoch of the sequences.
        index: (B) the number of each sequence within the epoch.
    """
    rows = random_bits(seed, epoch, index)  # (B)
    maskable = rule.maskable[input_ids]  # (B, L)
    counts = rule.num_predictions(maskable.sum(1))  # (B)
    positions = np.arange(input_ids.shape[1])
    bits = continue_hash(continue_hash(rows, _ORDER)[:, None], positions[None])  # (B, L)
    scores = (bits >> np.uint64(16) << np.uint64(16)) | positions.astype(np.uint64)
    if rule.whole_word_mask:
        chosen = _choose_words(rule, input_ids, maskable, scores, counts)
    else:
        scores[~maskable] = np.iinfo(np.uint64).max
        ordered = np.sort(scores, axis=1)
        last = np.take_along_axis(ordered, np.maximum(counts - 1, 0)[:, None], axis=1)  # (B, 1)
        chosen = (scores <= last) & maskable

    row, column = np.nonzero(chosen)  # both (P), where P is the number of predictions
    originals = input_ids[row, column]
    labels = np.full(input_ids.shape, IGNORED, np.int64)
    labels[row, column] = originals
    kind = uniform(continue_hash(continue_hash(rows, _KIND)[row], column))
    draws = below(continue_hash(continue_hash(rows, _REPLACEMENT)[row], column), len(rule.replacements))
    replaced = np.where(kind < rule.mask_replace_prob + rule.random_replace_prob, rule.replacements[draws], originals)
    masked = input_ids.astype(np.int64)
    masked[row, column] = np.where(kind < rule.mask_replace_prob, rule.mask_token_id, replaced)
    return masked, labels


def _choose_words(
    rule: MaskingRule, input_ids: np.ndarray, maskable: np.ndarray, scores: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """(B, L) bool: the pieces of the chosen words.

    Words are tried in the order of the scores of their first pieces; a word that would exceed the count is skipped.
    """
    # Example with L = 6 and count 1:
    #
    #     column    0      1    2       3     4    5
    #     piece     [CLS]  un   ##like  ##ly  cat  [SEP]
    #     starts    no     yes  no      no    yes  no
    #     word      6      0    0       0     1    6
    #     sizes     3      1    0       0     0    0       (the column is the number of the word here)
    #
    # If `un` has the lowest score, its word is tried first and skipped, because it has 3 pieces; `cat` is chosen. If no
    # word fits, the first pieces of the word with the lowest score are chosen.
    batch, length = input_ids.shape
    after_maskable = np.zeros_like(maskable)
    after_maskable[:, 1:] = maskable[:, :-1]
    starts = maskable & ~(rule.continuation[input_ids] & after_maskable)
    word = np.cumsum(starts, axis=1) - 1  # (B, L) number of the word that each piece belongs to
    word[~maskable] = length  # number L, beyond every real word, marks positions that cannot be masked
    flat = word + np.arange(batch)[:, None] * (length + 1)
    sizes = np.bincount(flat.ravel(), minlength=batch * (length + 1)).reshape(batch, length + 1)[:, :length]
    word_scores = np.full((batch, length + 1), np.iinfo(np.uint64).max, np.uint64)
    word_scores.ravel()[flat[starts]] = scores[starts]
    order = np.argsort(word_scores[:, :length], axis=1)
    sizes = np.take_along_axis(sizes, order, axis=1)

    used = np.zeros(batch, np.int64)
    chosen_words = np.zeros((batch, length + 1), bool)
    rows = np.arange(batch)
    for rank in range(int(starts.sum(1).max(initial=0))):
        fits = used + sizes[:, rank] <= counts
        used += np.where(fits, sizes[:, rank], 0)
        chosen_words[rows, order[:, rank]] = fits
    chosen = np.take_along_axis(chosen_words, word, axis=1) & maskable
    for row in np.flatnonzero((used == 0) & (counts > 0)):
        chosen[row, np.flatnonzero(word[row] == order[row, 0])[: counts[row]]] = True
    return chosen

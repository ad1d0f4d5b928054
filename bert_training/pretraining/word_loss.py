"""Nats a word: a loss of the held-out text that can be compared between vocabularies.

A loss a piece falls by itself when pieces grow: whoever knows the beginning of a word guesses its end easily, and with
larger pieces there are fewer such ends. Here all pieces of a word are hidden together:

1. The words w of the text do not depend on the vocabulary; c is the text around w, in which w is hidden.
2. A vocabulary writes w as the pieces p_1 ... p_k. All k are [MASK], so that p(w | c) = p(p_1 | c) ... p(p_k | c).
3. So w costs -log p(w | c) = -log p(p_1 | c) - ... - log p(p_k | c) nats.
4. Nats a word is the mean of this cost over the hidden words, whose number is the same for every vocabulary.
5. The loss a piece divides the same sum by the number of pieces: nats a piece = nats a word / pieces a word.

A word that the vocabulary cannot write costs what [UNK] costs, and its characters as if they were drawn from all of
Unicode: 13.9 nats each, and one more for the end. This is a probability of the word like any other. A vocabulary
therefore gains nothing by knowing less.

**Which words.** Words, windows and the choice of hidden words are functions of the text alone, so that every
vocabulary, length, seed and number of processes is asked about the same words in the same places:

- A word is what BERT's rules take for one before the vocabulary is consulted (``BasicTokenizer``, without lowering the
  case): the characters between white space, where a punctuation mark or an ideograph is a word of its own.
- The first ``CHARACTERS`` of the text are cut into windows of ``WINDOW`` consecutive words of one document; the last
  window of a document may be shorter.
- Of a window, 15 % of the words are hidden, at least one; windows are taken until there are as many hidden words as
  asked for. A hash of the numbers of window and word decides both.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tokenizers
import torch
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED, deal_batches
from bert_training.engine.divergence import check_outputs
from bert_training.engine.run import Run, broadcast_object_list, gather_object
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.texts import read_lines
from bert_training.pretraining.encoding import load_backend
from bert_training.pretraining.hashed_random import random_bits
from bert_training.pretraining.held_out import Side
from bert_training.pretraining.text import Text
from tokenization import BasicTokenizer
from tokenization.fingerprint import tokenizer_json
from tokenization.special_tokens import text_tokenizer

# --- which words are hidden ------------------------------------------------------------------------------------------


WINDOW = 64  # words, and about 85 pieces of English
HIDDEN = 0.15  # as in training
CHARACTERS = 1 << 19  # of the text; reading and cutting them takes less than a second
_WINDOW_STREAM, _WORD_STREAM = 11, 12

Document = list[str]  # its words


@dataclass(frozen=True)
class WordWindow:
    """Consecutive words of a document, and the places of the hidden ones among them."""

    words: tuple[str, ...]
    hidden: tuple[int, ...]


def word_windows(lines: Iterable[str | None], count: int) -> list[WordWindow]:
    """Windows with ``count`` hidden words in all, or as many as the beginning of the text has, in its order.

    Args:
        lines: the paragraphs of the text, and None at the end of each document.
        count: the number of hidden words.
    """
    windows = [
        document[start : start + WINDOW] for document in _documents(lines) for start in range(0, len(document), WINDOW)
    ]
    chosen, missing = [], count
    for number in np.argsort(random_bits(_WINDOW_STREAM, np.arange(len(windows))), kind="stable").tolist():
        if not missing:
            break
        words = windows[number]
        order = np.argsort(random_bits(_WORD_STREAM, number, np.arange(len(words))), kind="stable")
        hidden = order[: min(missing, max(1, round(HIDDEN * len(words))))].tolist()
        missing -= len(hidden)
        chosen.append((number, WordWindow(tuple(words), tuple(sorted(hidden)))))
    return [window for _, window in sorted(chosen, key=lambda one: one[0])]


def words_of(line: str) -> list[str]:
    """The words of a line, the same for every vocabulary."""
    return _RULES.tokenize(line)


_RULES = BasicTokenizer(do_lower_case=False, strip_accents=False)


def _documents(lines: Iterable[str | None]) -> Iterator[Document]:
    """The documents within the first ``CHARACTERS``; the last of them may be cut after a line."""
    document: Document = []
    characters = 0
    for line in lines:
        if line is None:
            if document:
                yield document
            document = []
            continue
        document += words_of(line[: CHARACTERS - characters])
        characters += len(line)
        if characters >= CHARACTERS:
            break
    if document:
        yield document


def cut_pieces(words: Sequence[Sequence[int]], capacity: int) -> list[list[tuple[int, Sequence[int]]]]:
    """A window's pieces as inputs of at most ``capacity`` pieces each: lists of (number of the word, its pieces).

    One input if it fits. Otherwise it is cut between words into inputs of about equal length, and a word that is longer
    than an input is cut as well, so that every piece stands in exactly one input.

    Args:
        words: the pieces of each word.
    """
    total = sum(map(len, words))
    aim = -(-total // max(1, -(-total // capacity)))
    inputs: list[list[tuple[int, Sequence[int]]]] = [[]]
    used = 0
    for number, pieces in enumerate(words):
        for start in range(0, len(pieces), capacity):
            part = pieces[start : start + capacity]
            if used >= aim or used + len(part) > capacity:
                inputs.append([])
                used = 0
            inputs[-1].append((number, part))
            used += len(part)
    return inputs


# --- word loss -------------------------------------------------------------------------------------------------------


SPELLED = math.log(0x110000)  # nats of a character that is drawn from all code points of Unicode
ASKED_FOR = 2_000  # hidden words of an evaluation
_LINES_COMPARED, _MOST_DIFFERING = 200, 0.05


@dataclass(frozen=True)
class WordSums:
    """Sums over the hidden words, and over all words of their windows.

    Attributes:
        nats: what the hidden words cost.
        hidden: their number.
        words: the number of all words of the windows.
        pieces: the number of their pieces.
        unknown: the words that contain [UNK] or have no piece.
    """

    nats: float
    hidden: int
    words: int
    pieces: int
    unknown: int

    def __add__(self, other: "WordSums") -> "WordSums":
        return WordSums(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))

    def results(self) -> dict[str, float]:
        """The results, without the prefix of an evaluation."""
        return {
            "nats_per_word": self.nats / self.hidden,
            "pieces_per_word": self.pieces / self.words,
            "unk_share": self.unknown / self.words,
        }


class HiddenWords:
    """The windows of a held-out text in the pieces of a tokenizer.

    Args:
        windows: as ``word_windows`` cut them.
        tokenizer: of the network that is asked.

    Attributes:
        encoded: the pieces of each word of each window.
        spelled: nats of the characters of those hidden words that the vocabulary cannot write.
    """

    def __init__(self, windows: Sequence[WordWindow], tokenizer: PreTrainedTokenizerBase):
        self.windows, self.tokenizer = windows, tokenizer
        backend = load_backend(tokenizer_json(text_tokenizer(tokenizer)))
        self.encoded = [pieces_of_words(backend, window.words) for window in windows]
        lost = [[not ids or tokenizer.unk_token_id in ids for ids in words] for words in self.encoded]
        self.unknown = sum(map(sum, lost))
        self.spelled = math.fsum(
            SPELLED * (len(window.words[place]) + 1)
            for window, flags in zip(windows, lost)
            for place in window.hidden
            if flags[place]
        )

    def inputs(self, max_seq_length: int) -> list[tuple[list[int], list[int]]]:
        """(ids, labels) of the inputs that have hidden words, with [CLS], [SEP] and [MASK]."""
        cls, sep, mask = (getattr(self.tokenizer, f"{name}_token_id") for name in ("cls", "sep", "mask"))
        rows = []
        for window, words in zip(self.windows, self.encoded):
            hidden = set(window.hidden)
            for part in cut_pieces(words, max_seq_length - 2):
                labels = [piece if number in hidden else IGNORED for number, ids in part for piece in ids]
                ids = [mask if number in hidden else piece for number, ids in part for piece in ids]
                if any(label != IGNORED for label in labels):
                    rows.append(([cls, *ids, sep], [IGNORED, *labels, IGNORED]))
        return rows

    @torch.no_grad()
    def evaluate(self, run: Run[PretrainingArguments], model: torch.nn.Module, max_seq_length: int) -> WordSums:
        """What the hidden words cost. All processes call it and return the same bits, for any number of them.

        Raises:
            FloatingPointError: the outputs for an input are not finite.
        """
        model.eval()
        rows, size = self.inputs(max_seq_length), run.args.per_device_eval_batch_size
        costs: list[tuple[int, float]] = []
        for start, is_filler in deal_batches(range(0, len(rows), size), run):
            batch = self._batch(rows[start : start + size])
            batch = {name: tensor.to(run.device) for name, tensor in batch.items()}
            outputs, labelled = model(**batch), batch["labels"] != IGNORED
            logits = outputs["prediction_logits" if "prediction_logits" in outputs else "logits"]
            if logits.dim() == 3:  # (B, L, V); with sparse_prediction it is (P, V), at the labelled positions only
                logits = logits[labelled]
            if not is_filler:
                cost = F.cross_entropy(logits.float(), batch["labels"][labelled], reduction="none")
                costs.append((start, math.fsum(cost.tolist())))
        costs = sorted(gather_object(costs))
        precision = run.accelerator.mixed_precision
        check_outputs([start for start, cost in costs if not math.isfinite(cost)], len(rows), precision)
        return WordSums(
            nats=math.fsum([*(cost for _, cost in costs), self.spelled]),
            hidden=sum(len(window.hidden) for window in self.windows),
            words=sum(map(len, self.encoded)),
            pieces=sum(len(ids) for words in self.encoded for ids in words),
            unknown=self.unknown,
        )

    def _batch(self, rows: Sequence[tuple[list[int], list[int]]]) -> dict[str, torch.Tensor]:
        width = max(len(ids) for ids, _ in rows)
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows])
        return {
            "input_ids": ids,
            "token_type_ids": torch.zeros_like(ids),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows]),
            "labels": torch.tensor([labels + [IGNORED] * (width - len(labels)) for _, labels in rows]),
        }


def pieces_of_words(backend: tokenizers.Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The ids of each word."""
    pieces: list[list[int]] = [[] for _ in words]
    if words:
        encoding = backend.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        for word, piece in zip(encoding.word_ids, encoding.ids):
            assert word is not None  # special tokens alone belong to no word
            pieces[word].append(piece)
    return pieces


def hidden_words(
    run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase
) -> dict[str, HiddenWords]:
    """The words that evaluations ask for, by entry of ``--validation_file``; by "" if a share is held out.

    Empty where there are none; why is printed. All processes call it, and the main one reads.
    """
    args = run.args
    reason = None
    if not objective_of(vars(args)).masks:
        reason = f"--objective {args.objective} masks nothing"
    elif args.streaming and not args.validation_file:
        reason = "the stream would have to be read once more; give the held-out text with --validation_file"
    if reason is None:
        box: list[dict[str, list[WordWindow]] | str] = [{}]
        run.only_main(lambda: box.__setitem__(0, _read(text, tokenizer)))
        broadcast_object_list(box)
        if not isinstance(box[0], str):
            return {name: HiddenWords(windows, tokenizer) for name, windows in box[0].items()}
        reason = box[0]
    run.say(f"no nats a word: {reason}")
    return {}


def _read(text: Text, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[WordWindow]] | str:
    """The windows of each held-out text; or the reason why there are none."""
    backend = load_backend(tokenizer_json(text_tokenizer(tokenizer)))
    windows = {}
    for name, lines in held_out_lines(text).items():
        compared = _Compared(backend)
        windows[name] = word_windows(compared.passing(lines), ASKED_FOR)
        if not windows[name]:
            return f"{name or 'the held-out text'} has no words"
        if compared.differing > _MOST_DIFFERING * compared.lines:
            return (
                f"this tokenizer joins or divides words of {name or text.name} otherwise than BERT's rules do, so that "
                "its words are not those of other vocabularies"
            )
    return windows


def held_out_lines(text: Text) -> dict[str, Iterator[str | None]]:
    """The lines of each held-out text, as ``Text.held_out_by_name`` names it; by "" if a share is held out."""
    args = text.args
    if not args.validation_file:
        return {"": Side(args.validation_split, held_out=True).of(text.lines())}
    return {name: read_lines(files, args.text_column) for name, files in text.held_out_by_name.items()}


class _Compared:
    """Compares whether the pieces of the first lines are those of their words."""

    def __init__(self, backend: tokenizers.Tokenizer):
        self.backend, self.lines, self.differing = backend, 0, 0

    def passing(self, lines: Iterable[str | None]) -> Iterator[str | None]:
        for line in lines:
            if line is not None and self.lines < _LINES_COMPARED:
                self.lines += 1
                alone = [piece for ids in pieces_of_words(self.backend, words_of(line)) for piece in ids]
                self.differing += alone != self.backend.encode(line, add_special_tokens=False).ids
            yield line

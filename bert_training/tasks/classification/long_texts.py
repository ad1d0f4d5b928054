"""How texts of any length reach a classifier: cut, as head and tail, or in windows whose logits are pooled.

--max_seq_length 8 has room for 6 of the tokens 0 to 15 of a text:

    cut          [CLS] 0 1  2  3  4  5 [SEP]
    head_tail    [CLS] 0 1 12 13 14 15 [SEP]     a quarter of 8 from the beginning, the rest from the end
    windows      [CLS] 0 1  2  3  4  5 [SEP]     a window begins three quarters of 6 after the one before it
                 [CLS] 4 5  6  7  8  9 [SEP]
                 [CLS] 8 9 10 11 12 13 [SEP]
                 [CLS] 12 13 14 15 [SEP]

A text in windows is one example. Its windows go through the network as rows of one batch, their logits are pooled into
one row (their mean), and the loss is that of the pooled logits. Whoever wants the logits of texts calls
``text_logits``, or trains and evaluates a network after ``pool_windows``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import NUM_WINDOWS, Features
from bert_training.engine.predict import outputs_by_length
from bert_training.inputs.flags.fine_tuning import MOST_WINDOWS, GlueArguments, head_of, stride_of, way_and_windows
from bert_training.tasks.cut_texts import ROWS, Frame, check_room, encode_cut
from bert_training.tasks.stored_flags import stored_flags, stored_length
from bert_training.tasks.task_data import in_chunks
from tokenization.bert_tokenizer import TextEncoder
from tokenization.errors import UserError

CHUNK = 1_000  # texts that are tokenised together, whole
Columns = Sequence[Sequence[str]]
"""The texts, or the first and the second texts of pairs."""


@dataclass(frozen=True)
class Reading:
    """The flags that say how a text is read; see ``GlueArguments``."""

    max_seq_length: int
    long_texts: str = "cut"
    max_windows: int = MOST_WINDOWS
    label_token: Literal["cls", "last", "bilstm"] = "cls"

    @classmethod
    def of_flags(cls, args: GlueArguments) -> "Reading":
        """As the flags of a run say."""
        return cls(args.max_seq_length, *way_and_windows(args.long_texts), args.label_token)

    @classmethod
    def of_model(cls, config: PretrainedConfig) -> "Reading":
        """As the model was fine-tuned; texts are cut at its positions if its config does not say."""
        longest = stored_length(config) or config.max_position_embeddings
        flags: dict[str, Any] = {"max_seq_length": longest} | stored_flags(GlueArguments, config.to_dict())
        return cls.of_flags(GlueArguments(output_dir="none", model_name_or_path="model", **flags))

    @property
    def in_windows(self) -> bool:
        """Whether a long text is read in windows."""
        return self.long_texts == "windows"

    @property
    def limit(self) -> str:
        """The flag beyond which a text loses tokens."""
        if self.in_windows:
            return f"--long_texts windows:{self.max_windows}"
        return f"--max_seq_length {self.max_seq_length}"

    def instead(self, texts: int) -> str:
        """Ways to read what a plain cut loses, as words of a command; "" if none is left to try."""
        possible = ["head_tail", *(["windows"] if texts == 1 and self.label_token == "cls" else [])]
        return f"--long_texts {' or '.join(possible)}" if self.long_texts == "cut" else ""

    def check(self, tokenizer: PreTrainedTokenizerBase, texts: int) -> None:
        """Raise UserError if texts, or pairs of ``texts`` = 2, cannot be read in this way."""
        least = 4 if self.long_texts == "head_tail" else 1  # pieces of each text
        check_room(self.max_seq_length, tokenizer, texts, least)
        if self.in_windows and texts == 2:
            raise UserError(
                "--long_texts windows reads a single text, not pairs, of which either could be the long one; give "
                "--long_texts head_tail or cut"
            )


class ReadTexts(NamedTuple):
    """Texts or pairs as rows for the network; all lengths count the special tokens.

    Attributes:
        input_ids, token_type_ids: for every text its rows: one, or its windows.
        lengths: the tokens of every text before it is cut.
        lost: how many of them are in no row.
        needed: how many rows it takes to read all of it.
    """

    input_ids: list[list[np.ndarray]]
    token_type_ids: list[list[np.ndarray]]
    lengths: list[int]
    lost: list[int]
    needed: list[int]

    def features(self, columns: dict[str, list], pad_token_id: int, in_windows: bool) -> Features:
        """The rows as features, with further columns that have an entry for every text."""
        rows: dict[str, list] = {"input_ids": self.input_ids, "token_type_ids": self.token_type_ids}
        if in_windows:
            return WindowFeatures(rows | columns, pad_token_id)
        return Features({name: [only for (only,) in rows[name]] for name in ROWS} | columns, pad_token_id)

    def counts(self, reading: Reading) -> dict[str, int]:
        """The counts of ``CutTexts``."""
        counts = {"tokens": sum(self.lengths), "lost": sum(self.lost), "longest": max(self.lengths)}
        if reading.in_windows:
            counts["windows"] = sum(map(len, self.input_ids))
            counts["in_several"] = sum(len(rows) > 1 for rows in self.input_ids)
            counts["most_windows"] = max(self.needed)
        return counts


# --- from texts to rows -----------------------------------------------------------------------------------


def read_texts(columns: Columns, encoder: TextEncoder, reading: Reading) -> ReadTexts:
    """Tokenise texts or pairs. A "[SEP]" in a text is read as text."""
    read, found = _windows if reading.in_windows else _cut, ReadTexts([], [], [], [], [])
    for places in in_chunks(len(columns[0]), CHUNK):
        part = read([column[places] for column in columns], encoder, reading)
        for name, more in part._asdict().items():
            getattr(found, name).extend(more)
    return found


def _cut(columns: Columns, encoder: TextEncoder, reading: Reading) -> ReadTexts:
    """Of a pair, tokens of the longer text are cut first; with head and tail, from the middles of both texts."""
    head = head_of if reading.long_texts == "head_tail" else None
    rows, lengths = encode_cut(encoder, columns, reading.max_seq_length, head)
    lost = [length - len(ids) for length, ids in zip(lengths, rows["input_ids"])]
    ids, types = ([[row] for row in rows[name]] for name in ROWS)
    return ReadTexts(ids, types, lengths, lost, [1] * len(lost))


def _windows(columns: Columns, encoder: TextEncoder, reading: Reading) -> ReadTexts:
    """Of the windows that cover a text, the first ``max_windows`` are kept."""
    frame = Frame.of(encoder.tokenizer, 1)
    room = reading.max_seq_length - frame.size
    stride, most = stride_of(room), reading.max_windows
    assert most is not None  # the flags settle it
    found = ReadTexts([], [], [], [], [])
    for ids in encoder(columns[0]):
        starts = range(0, max(0, len(ids) - room) + stride, stride)
        windows = [frame.row([ids[start : start + room]]) for start in starts[:most]]
        for name in ROWS:
            getattr(found, name).append([window[name] for window in windows])
        found.lengths.append(len(ids) + frame.size)
        found.lost.append(max(0, len(ids) - (starts[:most][-1] + room)))
        found.needed.append(len(starts))
    return found


class WindowFeatures(Features):
    """Texts in windows: an entry of ``input_ids`` is the list of a text's windows.

    A batch has the windows of its texts as rows, (W, L), and ``num_windows`` (B,) says how many belong to each text.
    """

    def __init__(self, columns: dict, pad_token_id: int, seed: int = 0):
        super().__init__(columns, pad_token_id, seed)
        self.num_windows = self.lengths
        # For the order from long to short.
        self.lengths = np.array([sum(map(len, windows)) for windows in columns["input_ids"]])
        # The other columns are those of ordinary rows, for which the first windows stand here.
        others = {name: column for name, column in columns.items() if name not in ROWS}
        self._others = Features({"input_ids": [windows[0] for windows in columns["input_ids"]]} | others, pad_token_id)

    def by_length(self, batch_size: int) -> list[np.ndarray]:
        """Batches of at most ``batch_size`` windows, or of one text."""
        batches: list[list[int]] = []
        room = 0
        for index in np.argsort(-self.lengths, kind="stable").tolist():
            if not batches or self.num_windows[index] > room:
                batches.append([])
                room = batch_size
            batches[-1].append(index)
            room -= self.num_windows[index]
        return [np.array(batch) for batch in batches]

    def collate(self, indices: Sequence[int] | np.ndarray) -> dict[str, torch.Tensor]:
        """The texts at ``indices``: (W, L) for the columns of tokens, padded to the longest window, (B,) for others."""
        flat = {name: [window for index in indices for window in self.columns[name][index]] for name in ROWS}
        windows = Features(flat, self.pad_token_id)
        counts = torch.from_numpy(self.num_windows[np.asarray(indices)])
        return self._others.collate(indices) | windows.collate(range(len(windows))) | {NUM_WINDOWS: counts}


# --- from logits of windows to logits of texts --------------------------------------------------------------


def pooled(logits: torch.Tensor, num_windows: Sequence[int]) -> torch.Tensor:
    """The logits of texts (B, C) from those of their windows (W, C); one window is taken as it is."""
    # A loop over texts and not scatter_reduce, whose order of additions is not fixed on a GPU.
    parts = logits.split(list(num_windows))
    return torch.stack([part.mean(0) for part in parts])


def pool_windows(model: PreTrainedModel) -> None:
    """Make a classifier pool the logits of windows before it computes its loss.

    It is this project's network or transformers', and stays one for everybody else: two hooks are added, which are
    not saved. The loss, its weights and its divisor remain the business of the network.
    """
    counts: list[torch.Tensor | None] = [None]

    def remember(_: torch.nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        counts[0] = kwargs.pop(NUM_WINDOWS, None)
        return args, kwargs

    def pool(_: torch.nn.Module, __: tuple, logits: torch.Tensor) -> torch.Tensor:
        return logits if counts[0] is None else pooled(logits, counts[0].tolist())

    model.register_forward_pre_hook(remember, with_kwargs=True)
    model.get_submodule("classifier").register_forward_hook(pool)


def text_logits(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    columns: Columns,
    batch_size: int = 32,
) -> tuple[np.ndarray, ReadTexts]:
    """The logits (N, C) of texts or pairs, read as the model was fine-tuned, and how each of them was read.

    Everybody who asks a finished model for the labels of texts calls this.

    Args:
        model: a classifier of transformers or of this project, in this process alone.
        columns: N texts or, for pairs, N first and N second texts.
        batch_size: rows of one forward pass.

    Raises:
        ValueError: the texts cannot be read in this way.
    """
    reading = Reading.of_model(model.config)
    reading.check(tokenizer, len(columns))
    read = read_texts(columns, TextEncoder(tokenizer), reading)
    flat = {name: [row for rows in getattr(read, name) for row in rows] for name in ROWS}
    features = Features(flat, tokenizer.pad_token_id)
    found = np.empty((len(features), model.config.num_labels or 0), dtype=np.float32)
    for indices, _, outputs in outputs_by_length(model, features, batch_size, model.device):
        logits = outputs["logits"].float().cpu().numpy()
        if reading.label_token != "cls":
            logits = logits[np.arange(len(indices)), features.lengths[indices] - 1]
        found[indices] = logits
    counts = [len(rows) for rows in read.input_ids]
    return pooled(torch.from_numpy(found), counts).numpy(), read

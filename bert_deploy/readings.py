"""What a model says about a text: the values that the service answers with.

Every reading is a generator: it yields the ``Rows`` that it needs of the network, and gets their outputs. So the texts
of several requests can share a forward pass (``run``). Texts are expected as ``serve.py`` checks them. A text that the
model cannot read is a ValueError with a sentence for the user.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from bert_deploy.ask import answers_of, given_entry, windows_of
from bert_deploy.folder import OpenedModel
from bert_training.engine.batches import Features
from bert_training.inputs.flags.scripts import CHOICE, MASKED, NEXT_PIECE
from bert_training.pretraining.segments import IS_NEXT
from bert_training.tasks.classification.long_texts import pooled, read_texts
from bert_training.tasks.classification.verdicts import Verdict
from bert_training.tasks.cut_texts import encode_cut
from bert_training.tasks.ner.names import TaggedSpan, names_of_texts, rows_of_texts
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.threshold import stored_threshold
from bert_training.tasks.stored_flags import stored_settings
from modeling_bert_repro.losses import IGNORED
from modeling_bert_repro.pretraining_heads import BertLanguageModel
from tokenization.errors import UserError

ROWS_AT_ONCE, PADDED_AT_ONCE = 16, 8  # of a forward pass; an exported file computes padding
GUESSES = 8  # for a missing word
ATTENTION_PIECES = 64  # in a picture
POSITIONS = ("start_logits", "end_logits")

Row = dict[str, Any]  # input_ids and token_type_ids
Outputs = list[dict[str, np.ndarray]]
T = TypeVar("T")


@dataclass(frozen=True)
class Rows:
    """What a reading needs of the network.

    Attributes:
        encoder: the last hidden states are wanted, without the head.
        places: of a network that predicts pieces, the positions of every row, in their order, at which it has to.
    """

    rows: Sequence[Row]
    encoder: bool = False
    places: Sequence[int] = ()


Steps = Generator[Rows, Outputs, T]


def run(opened: OpenedModel, readings: Sequence[Steps[Any]]) -> list[Any]:
    """What each reading says, or the error that ended it; their rows are computed together, the longest first."""
    found = [_step(steps) for steps in readings]
    asked = {number: one for number, one in enumerate(found) if isinstance(one, Rows)}
    outputs: dict[int, Outputs] = {number: [{}] * len(one.rows) for number, one in asked.items()}
    for encoder in (False, True):
        places = [(n, row) for n, one in asked.items() if one.encoder == encoder for row in range(len(one.rows))]
        places.sort(key=lambda place: -len(asked[place[0]].rows[place[1]]["input_ids"]))
        size = ROWS_AT_ONCE if hasattr(opened.model, "base_model") else PADDED_AT_ONCE
        for begin in range(0, len(places), size):
            part = places[begin : begin + size]
            try:
                to_predict = [asked[n].places for n, _ in part]
                computed = outputs_of(opened, [asked[n].rows[row] for n, row in part], encoder, to_predict)
            except Exception as error:  # whatever it is, the other texts get their answers
                for n, _ in part:
                    found[n] = error
            else:
                for (n, row), one in zip(part, computed):
                    outputs[n][row] = one
    return [_step(readings[n], outputs[n]) if isinstance(one, Rows) else one for n, one in enumerate(found)]


def _step(steps: Steps[Any], outputs: Outputs | None = None) -> Any:
    """The rows that a reading needs or, with their outputs, what it returns; or the error that ends it."""
    try:
        return steps.send(outputs)  # type: ignore[arg-type]  # None starts a generator
    except StopIteration as end:
        return end.value
    except Exception as error:
        return error


@torch.inference_mode()
def outputs_of(opened: OpenedModel, rows: Sequence[Row], encoder: bool, places: Sequence[Sequence[int]]) -> Outputs:
    """What one forward pass says of each row; outputs that have a dimension of tokens are padded.

    Logits of pieces are those of the ``places`` of each row, (places, V): those of a whole text may be 60 MB.
    """
    columns = {name: [np.asarray(row[name]) for row in rows] for name in ("input_ids", "token_type_ids")}
    batch = Features(columns, opened.tokenizer.pad_token_id).collate(range(len(rows)))
    choices = CHOICE in opened.abilities and not encoder  # a row is a choice, (1, C, L)
    # Of an exported file, the encoder is all of it.
    network: Any = getattr(opened.model, "base_model", opened.model) if encoder else opened.model
    sparse = isinstance(network, BertLanguageModel)
    options = {"labels": _labels_at(places, batch["input_ids"]), "sparse_prediction": True} if sparse else {}
    outputs = network(**{name: tensor[None] if choices else tensor for name, tensor in batch.items()}, **options)
    tensors = {name: value for name, value in outputs.items() if torch.is_tensor(value) and value.dim()}  # no losses
    arrays: dict[str, Any] = {name: value.float().numpy() for name, value in tensors.items()}
    if not encoder and not {MASKED, NEXT_PIECE}.isdisjoint(opened.abilities):
        name = "prediction_logits" if "prediction_logits" in arrays else "logits"
        arrays[name] = _at(places, arrays[name], sparse)
    return [{name: array[0, n] if choices else array[n] for name, array in arrays.items()} for n in range(len(rows))]


def _labels_at(places: Sequence[Sequence[int]], input_ids: torch.Tensor) -> torch.Tensor:
    """Labels (B, L) that make the network predict there; which piece they name does not matter."""
    labels = torch.full_like(input_ids, IGNORED)
    for row, own in zip(labels, places):
        row[[*own]] = 0
    return labels


def _at(places: Sequence[Sequence[int]], logits: np.ndarray, sparse: bool) -> list[np.ndarray]:
    """The logits (places, V) of each row, from those of all tokens (B, L, V) or, if sparse, of these places alone."""
    if sparse:
        return np.split(logits, np.cumsum([len(own) for own in places]))
    return [of_row[[*own]] for of_row, own in zip(logits, places)]


# --- texts and numbers -----------------------------------------------------------------------------------


def _ids(opened: OpenedModel, text: str, masks: bool = False) -> list[int]:
    """The ids of a text's pieces. A "[SEP]" in it is read as five characters, but with ``masks`` not a "[MASK]"."""
    tokenizer = opened.tokenizer
    parts = text.split(str(tokenizer.mask_token)) if masks else [text]
    ids: list[int] = []
    for number, part in enumerate(opened.encoder(parts)):
        ids += [tokenizer.mask_token_id] if number else []
        ids += part.tolist()
    return ids


def row_of(opened: OpenedModel, *texts: str, masks: bool = False, closed: bool = True, cut: bool = False) -> Row:
    """One row for the model, [CLS] A [SEP] B [SEP]; without the last [SEP] unless ``closed``.

    A row that is too long is an error, or with ``cut`` loses its end, but for the last [SEP].
    """
    cls, sep = opened.tokenizer.cls_token_id, opened.tokenizer.sep_token_id
    row = {"input_ids": [cls], "token_type_ids": [0]}
    for number, text in enumerate(texts):
        ids = [*_ids(opened, text, masks), sep]
        row["input_ids"] += ids
        row["token_type_ids"] += [min(number, opened.model.config.type_vocab_size - 1)] * len(ids)
    if not closed:
        row = {name: values[:-1] for name, values in row.items()}
    length = len(row["input_ids"])
    if cut and length > opened.longest:
        row = {name: [*values[: opened.longest - 1], values[-1]] for name, values in row.items()}
    elif length > opened.longest:
        raise UserError(
            f"The text has {length:,} pieces with the special tokens, and this model reads at most "
            f"{opened.longest:,} at once; shorten it."
        )
    return row


def _rows(ids: Iterable[Any], types: Iterable[Any]) -> list[Row]:
    return [{"input_ids": row, "token_type_ids": kinds} for row, kinds in zip(ids, types, strict=True)]


def checked_loss(opened: OpenedModel, length: int, lost: int, name: str = "The text") -> int:
    """How many of the tokens are not read, as in the training. Raises ValueError if such texts are refused."""
    if lost and opened.refuses_long_texts:
        raise UserError(f"{name} has {length:,} pieces, of which this model would not read {lost:,}; shorten it.")
    return lost


def _finite(logits: np.ndarray) -> np.ndarray:
    if not np.isfinite(logits).all():
        raise UserError(
            "The model's outputs are not finite numbers: its training diverged, or its weights are damaged."
        )
    return logits


def _probabilities(logits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(_finite(logits)).double().softmax(-1)


def _logits(outputs: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Those with a name, of a network with two heads, or the only ones."""
    return outputs[name] if name in outputs else outputs["logits"]


@dataclass(frozen=True)
class Guess:
    """A piece of the vocabulary, or a text, and its probability.

    Attributes:
        lost: how many tokens of what was read for it were left out, as in the training.
    """

    text: str
    probability: float
    lost: int = 0


# --- pre-training ----------------------------------------------------------------------------------------


def masked_words(opened: OpenedModel, text: str) -> Steps[list[list[Guess]]]:
    """The most probable pieces for every [MASK] of a text or, left to right, after its end."""
    mask = opened.tokenizer.mask_token_id
    after = NEXT_PIECE in opened.abilities
    row = row_of(opened, text, masks=not after, closed=not after)
    places = [len(row["input_ids"]) - 1] if after else [n for n, id_ in enumerate(row["input_ids"]) if id_ == mask]
    if not places:
        raise UserError(f"Write {opened.tokenizer.mask_token} where a word is missing.")
    (outputs,) = yield Rows([row], places=places)
    values, ids = _probabilities(_logits(outputs, "prediction_logits")).topk(GUESSES)
    known = len(opened.tokenizer)  # the rows of the network may be more, for example rounded up to a multiple of 8
    names = [
        [str(opened.tokenizer.convert_ids_to_tokens(id_)) if id_ < known else f"(row {id_})" for id_ in row]
        for row in ids.tolist()
    ]
    return [[Guess(name, share) for name, share in zip(*gap)] for gap in zip(names, values.tolist())]


def next_sentence(opened: OpenedModel, first: str, candidates: Sequence[str]) -> Steps[list[Guess]]:
    """For each candidate the probability that it follows the first text, most probable first."""
    outputs = yield Rows([row_of(opened, first, line) for line in candidates])
    logits = np.stack([_logits(one, "seq_relationship_logits") for one in outputs])
    return _ranked(map(Guess, candidates, _probabilities(logits)[:, IS_NEXT].tolist()))


def _ranked(guesses: Iterable[Guess]) -> list[Guess]:
    return sorted(guesses, key=lambda guess: -guess.probability)


# --- fine-tuned heads ------------------------------------------------------------------------------------


def verdict(opened: OpenedModel, text: str, second: str | None = None) -> Steps[Verdict]:
    """What a model says of a text or a pair, read as in the training, with the names in their order."""
    columns = [[text]] if second is None else [[text], [second]]
    if opened.texts not in (None, len(columns)):
        other = "pairs; write a second text" if opened.texts == 2 else "single texts; leave the second one out"
        raise UserError(f"This model judges {other}.")
    if opened.reading.long_texts != "cut":
        opened.reading.check(opened.tokenizer, len(columns))
    read = read_texts(columns, opened.encoder, opened.reading)
    lost = checked_loss(opened, read.lengths[0], read.lost[0])
    rows = [
        {"input_ids": ids, "token_type_ids": types} for ids, types in zip(read.input_ids[0], read.token_type_ids[0])
    ]
    outputs = yield Rows(rows)
    at_cls = opened.reading.label_token == "cls"
    found = [one["logits"] if at_cls else one["logits"][len(row["input_ids"]) - 1] for one, row in zip(outputs, rows)]
    logits = found[0] if len(found) == 1 else pooled(torch.from_numpy(np.stack(found)), [len(found)])[0].numpy()
    return opened.judge(logits)._replace(lost=lost)


def choose(opened: OpenedModel, context: str, endings: Sequence[str]) -> Steps[list[Guess]]:
    """The endings with the probability that each is the right one."""
    columns, lengths = encode_cut(opened.encoder, [[context] * len(endings), endings], opened.longest)
    lost = [checked_loss(opened, length, max(0, length - opened.longest)) for length in lengths]
    outputs = yield Rows(_rows(columns["input_ids"], columns["token_type_ids"]))
    shares = _probabilities(np.stack([one["logits"] for one in outputs])).tolist()
    return _ranked(Guess(ending, share, lost=count) for ending, share, count in zip(endings, shares, lost))


@dataclass(frozen=True)
class Reply:
    """The answer to a question; ``start`` and ``end`` are its characters in the context.

    Attributes:
        entries: the n best spans, best first; with a threshold, one of them has the text "".
        null_odds, threshold: None for a model that always answers.
        lost: how many tokens of the question were not read.
    """

    answer: str
    start: int
    end: int
    entries: list[dict[str, Any]]
    null_odds: float | None
    threshold: float | None
    lost: int = 0


def answer(opened: OpenedModel, question: str, context: str) -> Steps[Reply]:
    """The answer to a question about a context of any number of windows."""
    config, asked = opened.model.config, Question("question", question, context)
    windows = windows_of(config, opened.tokenizer, [asked])
    (length,) = windows.question_lengths.tolist()
    lost = checked_loss(opened, length, max(0, length - stored_settings(config)["max_query_length"]), "The question")
    rows = _rows(windows.input_ids, windows.token_type_ids)
    outputs = yield Rows(rows)
    start, end = ([one[name][: len(row["input_ids"])] for one, row in zip(outputs, rows)] for name in POSITIONS)
    threshold = stored_threshold(config)
    found = answers_of(config, [asked], windows, start, end, threshold)
    best, odds = given_entry(found, asked), found.null_odds.get(asked.id)
    return Reply(best["text"], best["start"], best["end"], found.nbest[asked.id], odds, threshold, lost)


def names_in(opened: OpenedModel, text: str) -> Steps[list[TaggedSpan]]:
    """The names in a text of any length, with their kinds."""
    config = opened.model.config
    split, rows = rows_of_texts([text], config, opened.tokenizer)
    outputs = yield Rows(_rows(rows.input_ids, [np.zeros_like(ids) for ids in rows.input_ids]))
    logits = [_finite(one["logits"][: len(ids)]) for one, ids in zip(outputs, rows.input_ids)]
    (names,) = names_of_texts(split, rows, logits, config)
    return names


def vector(opened: OpenedModel, text: str, cut: bool = False) -> Steps[np.ndarray]:
    """The mean (H,) over the vectors of the last layer, as ``extract_features.py --layers -1 --pooling mean``."""
    row = row_of(opened, text, cut=cut)
    (outputs,) = yield Rows([row], encoder=True)
    if "last_hidden_state" not in outputs:
        raise UserError(
            f"The exported file gives no vectors, only {', '.join(outputs)}; bert-repro export --encoder_alone "
            "writes one that does."
        )
    return outputs["last_hidden_state"][: len(row["input_ids"])].mean(axis=0)


# --- inside the model ------------------------------------------------------------------------------------


@torch.inference_mode()
def attention(opened: OpenedModel, text: str, second: str | None, layer: int) -> tuple[list[str], np.ndarray]:
    """The pieces (L) of a text or a pair, and the weights (N, L, L) of all heads of a layer, counted from 1.

    Row i of a head says how the piece i divides its attention among all pieces; it sums to 1.
    """
    row = row_of(opened, *filter(None, (text, second)), masks=opened.tokenizer.mask_token is not None)
    if len(row["input_ids"]) > ATTENTION_PIECES:
        raise UserError(
            f"The text has {len(row['input_ids']):,} pieces, and a picture shows at most {ATTENTION_PIECES}; "
            "shorten it."
        )
    batch = {name: torch.tensor([values]) for name, values in row.items()}
    opened.model.set_attn_implementation("eager")  # the other one keeps no weights
    try:
        weights = opened.model.base_model(**batch, output_attentions=True).attentions[layer - 1][0]
    finally:
        opened.model.set_attn_implementation("sdpa")
    return list(opened.tokenizer.convert_ids_to_tokens(row["input_ids"])), weights.float().numpy()


@dataclass(frozen=True)
class Piece:
    """A piece with its id and the characters of the text that it stands for; ``word`` is None for special tokens."""

    text: str
    id: int
    word: int | None
    start: int
    end: int


@dataclass(frozen=True)
class Pieces:
    """How a text becomes pieces: its normalised form, the words, and the pieces."""

    normalised: str
    words: list[str]
    pieces: list[Piece]


def pieces(opened: OpenedModel, text: str) -> Pieces:
    """How a text becomes pieces, step by step."""
    tokenizer = opened.encoder.tokenizer
    backend = tokenizer.backend_tokenizer
    normalised = backend.normalizer.normalize_str(text) if backend.normalizer else text
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalised)]
    coded = tokenizer(text, split_special_tokens=True, return_offsets_mapping=True, verbose=False)
    texts = tokenizer.convert_ids_to_tokens(coded["input_ids"])
    columns = zip(texts, coded["input_ids"], coded.word_ids(), coded["offset_mapping"])
    return Pieces(normalised, words, [Piece(piece, id_, word, *span) for piece, id_, word, span in columns])

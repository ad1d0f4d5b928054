"""What a model says about a text: the values that the page shows, computed without the page.

Every function takes an opened model and texts, and raises ValueError with a sentence for the user if a text is empty,
too long, or not a text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from bert_training.app.folder import MASKED, NEXT_PIECE, OpenedModel, load_model
from bert_training.engine.batches import Features
from bert_training.engine.predict import predict_alone
from bert_training.pretraining.segments import IS_NEXT
from bert_training.tasks.classification.long_texts import read_texts, text_logits
from bert_training.tasks.classification.verdicts import Verdict, class_names
from bert_training.tasks.cut_texts import encode_cut
from bert_training.tasks.feature_extraction import Row as FeatureRow
from bert_training.tasks.feature_extraction import extract, pool
from bert_training.tasks.ner.raw_text import spans_of_words, stored_cutting, words_of
from bert_training.tasks.ner.schemes import plain_labels, with_types
from bert_training.tasks.ner.tagged_text import Sentence, Split, build_rows, find_tags
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.settings import stored_settings
from bert_training.tasks.squad.threshold import gives_no_answer, stored_threshold
from bert_training.tools.ask import ask
from tokenization.errors import UserError

# The most that the page reads.
CHARACTERS = 20_000  # of a text
LINES = 8  # sentences or endings to choose from
CHECKPOINTS = 12  # shown beside the final model
ATTENTION_PIECES = 64  # in a picture
SHOWN_PIECES = 512  # in the table of pieces


@dataclass(frozen=True)
class Guess:
    """A piece of the vocabulary, or a label, and its probability; for a regression, the score itself.

    Attributes:
        given: of a model that gives a text several labels, whether the probability reaches the threshold of the label.
        threshold: that threshold.
        lost: how many tokens of what was read for it were left out, as in the training.
    """

    text: str
    probability: float
    given: bool | None = None
    threshold: float | None = None
    lost: int = 0


@dataclass(frozen=True)
class CheckpointGuess:
    """What one checkpoint said: the best guesses for every gap, and the probability of the final model's guess."""

    step: int | None
    guesses: list[list[Guess]]
    final: list[float]


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


@dataclass(frozen=True)
class TaggedSpan:
    """A tagged name with its place in the text; ``probability`` is the lowest of its words' tags."""

    kind: str
    start: int
    end: int
    probability: float


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


# --- texts -----------------------------------------------------------------------------------------------


def check_text(text: str | None, name: str) -> str:
    """The text itself. Raises ValueError if it is empty, longer than ``CHARACTERS``, or holds half a character."""
    if text is not None and not isinstance(text, str):
        raise UserError(f"{name} must be a text; write something into the box.")
    if text is None or not text.strip():
        raise UserError(f"{name} is empty; write something into the box.")
    if len(text) > CHARACTERS:
        raise UserError(f"{name} has more than {CHARACTERS:,} characters, the most that this page reads; shorten it.")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise UserError(f"{name} holds half a character (a lone surrogate), which is no text; delete it.")
    return text


def check_lines(text: str | tuple[str, ...] | None, name: str, least: int) -> list[str]:
    """The lines of a text that are not blank, or those of a tuple, from ``least`` to ``LINES``.

    Each line of a tuple, which the service gives, may be as long as a text.
    """
    if isinstance(text, tuple):
        lines = [check_text(line, name).strip() for line in text]
    else:
        lines = [line.strip() for line in check_text(text, name).splitlines() if line.strip()]
    if not least <= len(lines) <= LINES:
        raise UserError(
            f"{name}: write {least} to {LINES} lines; there {'is' if len(lines) == 1 else 'are'} {len(lines)}."
        )
    return lines


def check_number(value: object, name: str, least: int, most: int) -> int:
    """The value itself. Raises ValueError if it is no whole number, below ``least`` or above ``most``."""
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} must be a whole number from {least} to {most}; choose one from the list.")
    return value


def _one_or_two(text: str | None, second: str | None) -> list[str]:
    """The texts of an input, of which the second may be empty."""
    texts = [check_text(text, "The text")]
    if second is not None and (not isinstance(second, str) or second.strip()):
        texts.append(check_text(second, "The second text"))
    return texts


def _ids(opened: OpenedModel, text: str, masks: bool = False) -> list[int]:
    """The ids of a text's pieces. A "[SEP]" in it is read as five characters, but with ``masks`` not a "[MASK]"."""
    tokenizer, reader = opened.tokenizer, opened.text_tokenizer
    parts = text.split(str(tokenizer.mask_token)) if masks else [text]
    ids: list[int] = []
    for number, part in enumerate(parts):
        ids += [tokenizer.mask_token_id] if number else []
        ids += reader(part, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
    return ids


def row_of(opened: OpenedModel, *texts: str, masks: bool = False, closed: bool = True) -> dict[str, list[int]]:
    """One row for the model, [CLS] A [SEP] B [SEP]; without the last [SEP] unless ``closed``."""
    cls, sep = opened.tokenizer.cls_token_id, opened.tokenizer.sep_token_id
    row = {"input_ids": [cls], "token_type_ids": [0]}
    for number, text in enumerate(texts):
        ids = [*_ids(opened, text, masks), sep]
        row["input_ids"] += ids
        row["token_type_ids"] += [min(number, opened.model.config.type_vocab_size - 1)] * len(ids)
    if not closed:
        row = {name: values[:-1] for name, values in row.items()}
    length = len(row["input_ids"])
    if length > opened.longest:
        raise UserError(
            f"The text has {length:,} pieces with the special tokens, and this model reads at most "
            f"{opened.longest:,} at once; shorten it."
        )
    return row


def checked_loss(opened: OpenedModel, length: int, lost: int, name: str = "The text") -> int:
    """How many of the tokens are not read, as in the training. Raises ValueError if such texts are refused."""
    if lost and opened.refuses_long_texts:
        raise UserError(f"{name} has {length:,} pieces, of which this model would not read {lost:,}; shorten it.")
    return lost


@torch.inference_mode()
def outputs_of(model: PreTrainedModel, rows: Sequence[dict[str, list[int]]], pad: int, **options: Any) -> Any:
    """The outputs for a batch of rows."""
    columns = {name: [np.array(row[name]) for row in rows] for name in ("input_ids", "token_type_ids")}
    return model(**Features(columns, pad).collate(range(len(rows))), **options)


def _probabilities(logits: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(logits).all():
        raise UserError(
            "The model's outputs are not finite numbers: its training diverged, or its weights are damaged."
        )
    return logits.double().softmax(-1)


# --- pre-training ----------------------------------------------------------------------------------------


def masked_words(opened: OpenedModel, text: str, best: int = 8) -> list[list[Guess]]:
    """The most probable pieces for every [MASK] of a text or, left to right, after its end."""
    row, places = _gaps(opened, text)
    return _guesses(opened, _probable(opened, opened.model, row, places), best)


def along_the_way(opened: OpenedModel, text: str, best: int = 3) -> list[CheckpointGuess]:
    """What the checkpoints of the pre-training say about the same gaps, in their order, and then the final model.

    At most ``CHECKPOINTS`` are asked, spread evenly.
    """
    row, places = _gaps(opened, text)
    final = _probable(opened, opened.model, row, places)
    winners = final.argmax(-1)
    asked = []
    for step, folder in evenly(opened.checkpoints, CHECKPOINTS):
        model = load_model(folder)
        if (
            model.config.vocab_size != opened.model.config.vocab_size
            or model.config.is_decoder != opened.model.config.is_decoder
        ):
            raise UserError(f"{folder.name} is of another network than the final model; remove it from the folder.")
        asked.append((step, _probable(opened, model, row, places)))
    every = torch.arange(len(places))
    return [
        CheckpointGuess(step, _guesses(opened, table, best), table[every, winners].tolist())
        for step, table in [*asked, (None, final)]
    ]


def evenly(values: Sequence[Any], most: int) -> list[Any]:
    """At most ``most`` of the values, spread evenly, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]


def _gaps(opened: OpenedModel, text: str) -> tuple[dict[str, list[int]], list[int]]:
    """The row of a text and the positions whose outputs are read: those of [MASK] or, left to right, the last one."""
    check_text(text, "The text")
    if NEXT_PIECE in opened.abilities:
        row = row_of(opened, text, closed=False)
        return row, [len(row["input_ids"]) - 1]
    assert MASKED in opened.abilities
    row = row_of(opened, text, masks=True)
    places = [place for place, id_ in enumerate(row["input_ids"]) if id_ == opened.tokenizer.mask_token_id]
    if not places:
        raise UserError(f"Write {opened.tokenizer.mask_token} where a word is missing.")
    if len(places) > LINES:
        raise UserError(f"There are {len(places)} gaps, and this page shows at most {LINES}; fill some of them.")
    return row, places


def _probable(
    opened: OpenedModel, model: PreTrainedModel, row: dict[str, list[int]], places: list[int]
) -> torch.Tensor:
    """The probabilities (gaps, V) of every piece."""
    outputs = outputs_of(model, [row], opened.tokenizer.pad_token_id)
    logits = outputs["prediction_logits"] if "prediction_logits" in outputs else outputs["logits"]
    return _probabilities(logits[0, places])


def _guesses(opened: OpenedModel, table: torch.Tensor, best: int) -> list[list[Guess]]:
    values, ids = table.topk(min(best, table.shape[-1]))
    known = len(opened.tokenizer)  # the rows of the network may be more, for example rounded up to a multiple of 8
    texts = [
        [str(opened.tokenizer.convert_ids_to_tokens(id_)) if id_ < known else f"(row {id_})" for id_ in row]
        for row in ids.tolist()
    ]
    return [[Guess(text, share) for text, share in zip(*pair)] for pair in zip(texts, values.tolist())]


def next_sentence(opened: OpenedModel, first: str, candidates: str | tuple[str, ...]) -> list[Guess]:
    """For each line of ``candidates`` the probability that it follows the first text, most probable first."""
    check_text(first, "The first sentence")
    lines = check_lines(candidates, "The sentences that may follow", 1)
    outputs = outputs_of(opened.model, [row_of(opened, first, line) for line in lines], opened.tokenizer.pad_token_id)
    logits = outputs["seq_relationship_logits"] if "seq_relationship_logits" in outputs else outputs["logits"]
    return _ranked(map(Guess, lines, _probabilities(logits)[:, IS_NEXT].tolist()))


def _ranked(guesses: Iterable[Guess]) -> list[Guess]:
    return sorted(guesses, key=lambda guess: -guess.probability)


# --- fine-tuned heads ------------------------------------------------------------------------------------


def classify(opened: OpenedModel, text: str, second: str | None = None) -> list[Guess]:
    """What a model says of a text or a pair: its classes, most probable first, or its score.

    If a text may have several labels, the probabilities are independent of each other, and the thresholds decide which
    labels are given.
    """
    said = verdict(opened, text, second).ranked()
    if said.score is not None:
        return [Guess(said.names[0], said.score, lost=said.lost)]
    shares = said.shares.tolist()
    if said.thresholds is None:
        return [Guess(name, share, lost=said.lost) for name, share in zip(said.names, shares, strict=True)]
    found = zip(said.names, shares, said.given, said.thresholds, strict=True)
    return [Guess(*one, lost=said.lost) for one in found]


def verdict(opened: OpenedModel, text: str, second: str | None = None) -> Verdict:
    """What a model says of a text or a pair, read as in the training, with the names in their order."""
    columns = [[text] for text in checked_texts(opened, text, second)]
    logits, read = text_logits(opened.model, opened.text_tokenizer, columns, opened.reading)
    return opened.judge(logits[0])._replace(lost=checked_loss(opened, read.lengths[0], read.lost[0]))


def checked_texts(opened: OpenedModel, text: str, second: str | None) -> list[str]:
    """A text, or a pair, for a classifier. Raises ValueError if it judges the other of the two."""
    texts = _one_or_two(text, second)
    if len(texts) == 1 and opened.texts == 2:
        raise UserError("This model judges pairs; write a second text.")
    if len(texts) == 2 and opened.texts == 1:
        raise UserError("This model judges single texts; leave the second one out.")
    return texts


def labels_row(opened: OpenedModel, text: str, second: str | None) -> dict[str, list[int]]:
    """The row of a text or a pair for a classifier that has one for each, and how many tokens are ``lost``."""
    columns = [[text] for text in checked_texts(opened, text, second)]
    read = read_texts(columns, opened.text_tokenizer, opened.reading)
    lost = checked_loss(opened, read.lengths[0], read.lost[0])
    return {"input_ids": read.input_ids[0][0], "token_type_ids": read.token_type_ids[0][0], "lost": [lost]}


def how_long_texts_are_read(opened: OpenedModel) -> str:
    """A sentence for the page, with a space before it."""
    ways = {
        "cut": "the beginning is read",
        "head_tail": "the beginning and the end are read",
        "windows": "overlapping windows are read, and what they say is pooled",
    }
    return f" Of a text of more than {opened.reading.max_seq_length} pieces, {ways[opened.reading.long_texts]}."


def choose(opened: OpenedModel, context: str, endings: str | tuple[str, ...]) -> list[Guess]:
    """The endings, one on each line, with the probability that each is the right one."""
    check_text(context, "The beginning")
    lines = check_lines(endings, "The endings", 2)
    rows, lengths = encode_cut(opened.text_tokenizer, [[context] * len(lines), lines], opened.longest)
    lost = [checked_loss(opened, length, max(0, length - opened.longest)) for length in lengths]
    batch = Features(rows, opened.tokenizer.pad_token_id).collate(range(len(lines)))
    with torch.no_grad():
        logits = opened.model(**{name: tensor[None] for name, tensor in batch.items()})["logits"]
    guesses = zip(lines, _probabilities(logits)[0].tolist(), lost)
    return _ranked(Guess(line, share, lost=count) for line, share, count in guesses)


def answer(opened: OpenedModel, question: str, context: str) -> Reply:
    """The answer to a question about a context of any number of windows."""
    asked = Question("question", check_text(question, "The question"), check_text(context, "The text"))
    length, most = len(_ids(opened, question)), stored_settings(opened.model.config)["max_query_length"]
    lost = checked_loss(opened, length, max(0, length - most), "The question")
    answers = ask(opened.model, opened.tokenizer, [asked])
    entries, text = answers.nbest[asked.id], answers.predictions[asked.id]
    best = next((entry for entry in entries if entry["text"] == text), {"start": 0, "end": 0})
    odds, threshold = answers.null_odds.get(asked.id), stored_threshold(opened.model.config)
    assert odds is None or threshold is None or gives_no_answer(odds, threshold) == (text == "")
    return Reply(text, best["start"], best["end"], entries, odds, threshold, lost)


def names_in(opened: OpenedModel, text: str) -> list[TaggedSpan]:
    """The names in a text, with their kinds; it is cut into words as the training data was."""
    check_text(text, "The text")
    spans = [*words_of(text, stored_cutting(opened.model.config, everywhere=True))]
    if not spans:
        raise UserError("The text has no words.")
    split = Split("the text", [Sentence([text[begin:end] for begin, end in spans], None, 0, "the text")])
    rows = build_rows(split, opened.tokenizer, min(opened.longest, 512))
    labels = with_types(class_names(opened.model.config))
    features = rows.features(split, labels, opened.tokenizer.pad_token_id)
    logits = predict_alone(opened.model, features, 8, opened.model.device)["logits"]
    (tags,) = find_tags(split, rows, logits, labels)
    shares = np.empty(len(spans))
    for numbers, positions, row in zip(rows.words, rows.positions, logits):
        shares[numbers] = _probabilities(torch.from_numpy(row[positions])).max(-1).values.numpy()
    return [
        TaggedSpan(kind, spans[first][0], spans[after - 1][1], float(shares[first:after].min()))
        for kind, first, after in spans_of_words(tags, plain_labels(labels))
        if kind != "O"
    ]


def vector_row(opened: OpenedModel, text: str) -> dict[str, list[int]]:
    """The row of a text for ``vector``."""
    return row_of(opened, check_text(text, "The text"))


def encoder_of(opened: OpenedModel) -> Any:
    """What computes hidden states: not the heads that take choices or have an LSTM; of an exported file, all of it."""
    return getattr(opened.model, "base_model", opened.model)


def vector(opened: OpenedModel, text: str) -> np.ndarray:
    """The mean (H,) over the vectors of the last layer, as ``extract_features.py --layers -1 --pooling mean``."""
    row = vector_row(opened, text)
    line = [FeatureRow(row["input_ids"], row["token_type_ids"], slice(None))]
    encoder = encoder_of(opened)
    ((ids, vectors),) = extract(encoder, [line], [-1], opened.tokenizer.pad_token_id, 1, opened.model.device)
    return pool(ids, vectors, "mean")[0, 0]


# --- inside the model ------------------------------------------------------------------------------------


def attention(opened: OpenedModel, text: str, second: str | None, layer: int) -> tuple[list[str], np.ndarray]:
    """The pieces (L) of a text or a pair, and the weights (N, L, L) of all heads of a layer, counted from 1.

    Row i of a head says how the piece i divides its attention among all pieces; it sums to 1.
    """
    texts = _one_or_two(text, second)
    layer = check_number(layer, "The layer", 1, opened.model.config.num_hidden_layers)
    row = row_of(opened, *texts, masks=opened.tokenizer.mask_token is not None)
    if len(row["input_ids"]) > ATTENTION_PIECES:
        raise UserError(
            f"The text has {len(row['input_ids']):,} pieces, and a picture shows at most {ATTENTION_PIECES}; "
            "shorten it."
        )
    batch = {name: torch.tensor([values]) for name, values in row.items()}
    with torch.no_grad():
        weights = opened.model.base_model(**batch, output_attentions=True).attentions[layer - 1][0]
    return list(opened.tokenizer.convert_ids_to_tokens(row["input_ids"])), weights.float().numpy()


def pieces(opened: OpenedModel, text: str) -> Pieces:
    """How a text becomes pieces, step by step."""
    check_text(text, "The text")
    tokenizer = opened.text_tokenizer
    backend = tokenizer.backend_tokenizer
    normalised = backend.normalizer.normalize_str(text) if backend.normalizer else text
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalised)]
    coded = tokenizer(text, split_special_tokens=True, return_offsets_mapping=True, verbose=False)
    if len(coded["input_ids"]) > SHOWN_PIECES:
        raise UserError(
            f"The text has {len(coded['input_ids']):,} pieces, and this table shows at most {SHOWN_PIECES}; shorten it."
        )
    texts = tokenizer.convert_ids_to_tokens(coded["input_ids"])
    columns = zip(texts, coded["input_ids"], coded.word_ids(), coded["offset_mapping"])
    return Pieces(normalised, words, [Piece(piece, id_, word, *span) for piece, id_, word, span in columns])

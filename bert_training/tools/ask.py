"""Ask a fine-tuned model questions about a text, or what a text is.

    bert-repro ask --model runs/squad --question "Who wrote it?" --context "It was written by Ada."
    bert-repro ask --model runs/squad --question "Who wrote it?" "When?" --context_file contexts.txt
    bert-repro ask --model runs/own --text "Please close the window." "Is it raining?"

A model of run_glue.py says of each --text, in a line with one JSON object, its class or score, or its labels, and their
probabilities; labels are those whose probability reaches the threshold that run_glue.py has stored with the model.

A context file contains one or more contexts, separated by blank lines. For every question and context, in their order,
a line with one JSON object is printed: the answer, its score (the softmax over the n-best spans), its first character
in the context and the one after its last. A model that was fine-tuned on SQuAD 2.0 may give no answer, that is, "" at
0, 0. It does so if the null odds are above the threshold that run_squad.py has stored, or above
--null_score_diff_threshold. Windows have the lengths that the model was fine-tuned with.
"""

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from bert_training.engine.batches import Features
from bert_training.engine.predict import predict_alone
from bert_training.files.compressed_files import numbered_lines
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import opened_by
from bert_training.inputs.models import check_fit, checkpoint_config
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.initial_weights import class_in, load_network
from bert_training.networks.number_types import BFLOAT16, DTYPES, FLOAT32, compute_in_bfloat16, warning_of
from bert_training.tasks.squad.answers import Answers, find_answers
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.settings import stored_settings
from bert_training.tasks.squad.threshold import stored_threshold
from bert_training.tasks.squad.windows import Windows, build_windows, check_lengths
from bert_training.tasks.task_data import KEEP_ACCENTS, OTHER_VOCABULARY
from bert_training.tools import ask_labels
from tokenization.coverage import coverage
from tokenization.errors import UserError
from tokenization.special_tokens import check_special_tokens


def ask(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Sequence[Question],
    threshold: float | None = None,
    batch_size: int = 32,
    warn: Callable[[str], None] = lambda text: None,
) -> Answers:
    """Answer every question from its context; long contexts are split into windows.

    Args:
        model: an extractive question-answering model with the interface of transformers.
        questions: with their contexts; the gold answers are not needed.
        threshold: no answer is given if the null odds are above it. The default is the one stored with the model;
            a model without a stored threshold (SQuAD 1.1) always answers.
        batch_size: windows per forward pass.
        warn: is called with a line for every question that is cut.

    Raises:
        ValueError: the lengths stored with the model leave no room for context, or the tokenizer is not a fast one.
    """
    settings = stored_settings(model.config)
    lengths = (settings["max_seq_length"], settings["doc_stride"], settings["max_query_length"])
    check_lengths(*lengths)
    windows = build_windows(questions, tokenizer, *lengths)
    most = settings["max_query_length"]
    for question, length in zip(questions, windows.question_lengths):
        if length > most:
            warn(
                f"warning: the question {question.text!r:.60} has {length:,} pieces and is cut after the {most:,} that "
                "the model was fine-tuned with (max_query_length)"
            )
    start_logits, end_logits = window_logits(model, windows, tokenizer.pad_token_id, batch_size)
    if threshold is None:
        threshold = stored_threshold(model.config)
    return find_answers(
        questions,
        windows,
        start_logits,
        end_logits,
        n_best_size=settings["n_best_size"],
        max_answer_length=settings["max_answer_length"],
        version_2_with_negative=threshold is not None,
        null_score_diff_threshold=0.0 if threshold is None else threshold,
    )


def window_logits(
    model: PreTrainedModel, windows: Windows, pad_token_id: int, batch_size: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Start and end logits of every window: for each window one float32 array (L,)."""
    logits = predict_alone(model, Features(windows.columns(), pad_token_id), batch_size, model.device)
    return logits["start_logits"], logits["end_logits"]


def answer_records(questions: Sequence[Question], answers: Answers) -> Iterator[dict]:
    """Yield the objects to print: question, answer, score, start, end, and in version 2 the null odds."""
    for question in questions:
        text, entries = answers.predictions[question.id], answers.nbest[question.id]
        no_answer = {"probability": 0.0, "start": 0, "end": 0}
        entry = next((entry for entry in entries if entry["text"] == text), no_answer)
        record = {"question": question.text, "answer": text, "score": round(entry["probability"], 6)}
        record |= {"start": entry["start"], "end": entry["end"]}
        if question.id in answers.null_odds:
            record["null_odds"] = answers.null_odds[question.id]
        yield record


def read_contexts(path: str | Path) -> list[str]:
    """The contexts of a text file, separated by blank lines.

    Raises ValueError if there is none or the file is not UTF-8.
    """
    contexts = [
        "\n".join(line for _, line in lines)
        for blank, lines in itertools.groupby(numbered_lines(path), lambda line: not line[1].strip())
        if not blank
    ]
    if not contexts:
        raise UserError(f"{path}: expected contexts with blank lines between them, got no text")
    return contexts


@dataclass(frozen=True)
class Head:
    """What is asked of a model, and the classes and the layers that can answer it.

    Attributes:
        auto: transformers' class that opens a folder; of an old checkpoint, which is always a BERT, ``cls`` does.
    """

    what: str
    cls: type[PreTrainedModel]
    auto: Any
    layers: tuple[str, ...]
    remedy: str


QUESTIONS = Head(
    "question answering",
    BertForQuestionAnswering,
    AutoModelForQuestionAnswering,
    ("qa_outputs.",),
    "give a folder that run_squad.py made",
)
TEXTS = Head(
    "texts",
    BertForSequenceClassification,
    AutoModelForSequenceClassification,
    ("classifier.", "bert.pooler."),
    "give a folder that run_glue.py made; one that reads the label from the last token is asked by run_glue.py "
    "--test_file",
)


def load(name: str, head: Head = QUESTIONS, dtype: str = FLOAT32) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a BERT from a folder, the Hub or an old checkpoint.

    Raises ValueError if they cannot be loaded or the checkpoint does not have the head.
    """
    try:
        config = checkpoint_config(name, "--model")
        tokenizer = load_tokenizer(name)
        kind = class_in(config)
        if kind and kind != head.cls.__name__:
            raise UserError(
                f"--model {name}: expected a model with a head for {head.what}, got a {kind}, of {opened_by()[kind]}; "
                f"{head.remedy}"
            )
        model, new, _ = load_network(head.auto, name, head.layers, trust_remote_code=False, config=config)
    except OSError as error:
        raise UserError(f"--model {name}: cannot be opened ({str(error).splitlines()[0]})") from error
    if new:
        raise UserError(
            f"--model {name}: has no weights for {', '.join(new)}, so it is not fine-tuned for {head.what}; "
            f"{head.remedy}"
        )
    check_special_tokens(tokenizer)
    check_fit(cast("BertConfig", model.config), tokenizer, 1)
    if dtype == BFLOAT16:
        compute_in_bfloat16(model)
    return model, tokenizer


def print_labels(name: str, texts: Sequence[str], second: str | None, dtype: str = FLOAT32) -> None:
    """Print what a model of run_glue.py says of each text."""
    model, tokenizer = load(name, TEXTS, dtype)
    read = list(texts) if second is None else [*texts, second]
    for warning in coverage(tokenizer, read).warnings("the texts", OTHER_VOCABULARY, KEEP_ACCENTS):
        print(warning, file=sys.stderr)
    for record in ask_labels.judge(model, tokenizer, texts, second, warn=lambda text: print(text, file=sys.stderr)):
        print(json.dumps(record, ensure_ascii=False))


def main(argv: list[str] | None = None) -> None:
    """Print the answers. Raises ValueError for a mistake in the arguments or the files."""
    parser = command_parser("ask", __doc__)
    parser.add_argument(
        "--model", required=True, help="The folder or the Hub name of a fine-tuned model; also an old one."
    )
    parser.add_argument("--question", nargs="+", help="One or more questions, each in quotes.")
    ask_labels.add_flags(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--context", help="The text that contains the answer.")
    source.add_argument("--context_file", help="A UTF-8 text file of contexts that are separated by blank lines.")
    parser.add_argument(
        "--null_score_diff_threshold", type=float, help="Give no answer if the null odds are above this number."
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=FLOAT32,
        help="Numbers of the network; bfloat16 is faster on processors that have it in hardware, and changes "
        "probabilities in the third decimal place.",
    )
    args = parser.parse_args(argv)
    in_text = ("context", "context_file")
    given = {name for name, value in vars(args).items() if value is not None} - {"dtype"}
    for warning in warning_of(args.dtype):
        print(warning, file=sys.stderr)
    if args.text:
        if others := given - {"model", "text", "second_text"}:
            parser.error(f"--{min(others)} is for questions; leave it out, or --text")
        print_labels(args.model, args.text, args.second_text, args.dtype)
        return
    if not args.question or not given & {*in_text} or args.second_text is not None:
        parser.error("give --question with --context or --context_file, or --text")
    contexts = read_contexts(args.context_file) if args.context_file else [args.context]
    model, tokenizer = load(args.model, dtype=args.dtype)
    for warning in coverage(tokenizer, contexts).warnings("the contexts", OTHER_VOCABULARY, KEEP_ACCENTS):
        print(warning, file=sys.stderr)  # standard output has the answers alone
    pairs = itertools.product(args.question, contexts)
    questions = [Question(str(number), question, context) for number, (question, context) in enumerate(pairs)]
    warned: set[str] = set()  # each question is asked of every context, and warned of once

    def warn(text: str) -> None:
        if text not in warned:
            print(text, file=sys.stderr)
            warned.add(text)

    answers = ask(model, tokenizer, questions, args.null_score_diff_threshold, warn=warn)
    for record in answer_records(questions, answers):
        print(json.dumps(record, ensure_ascii=False))

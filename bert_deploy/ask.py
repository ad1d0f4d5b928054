"""Ask a fine-tuned model questions about a text, or what a text is.

    bert-repro ask --model runs/squad --question "Who wrote it?" --context "It was written by Ada."
    bert-repro ask --model runs/squad --question "Who wrote it?" "When?" --context_file contexts.txt
    bert-repro ask --model runs/own --text "Please close the window." "Is it raining?"
    bert-repro ask --model runs/names --text "Ada slept in London."

A model of run_glue.py says of each --text, in a line with one JSON object, its class or score, or its labels, and their
probabilities; labels are those whose probability reaches the threshold that run_glue.py has stored with the model. One
of run_ner.py says the names in it, with their places; texts of any length are read as in its evaluation.

A context file contains one or more contexts, separated by blank lines. For every question and context, in their order,
a line with one JSON object is printed: the answer, its score (the softmax over the n-best spans), its first character
in the context and the one after its last. A model that was fine-tuned on SQuAD 2.0 may give no answer, that is, "" at
0, 0. It does so if the null odds are above the threshold that run_squad.py has stored, or above
--null_score_diff_threshold. Windows have the lengths that the model was fine-tuned with.
"""

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.engine.predict import predict_alone
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.models import check_fit, checkpoint_config
from bert_training.inputs.reading import numbered_lines
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.networks.initial_weights import load_network
from bert_training.networks.number_types import BFLOAT16, DTYPES, FLOAT32, compute_in_bfloat16, warning_of
from bert_training.tasks.classification.long_texts import text_logits
from bert_training.tasks.classification.trained_for import stored_facts
from bert_training.tasks.classification.verdicts import DIGITS, judge_of, not_read
from bert_training.tasks.ner.names import names_of_texts, rows_of_texts
from bert_training.tasks.squad.answers import Answers, find_answers
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.threshold import stored_threshold
from bert_training.tasks.squad.windows import Windows, build_windows, check_lengths
from bert_training.tasks.stored_flags import stored_settings
from bert_training.tasks.task_data import KEEP_ACCENTS, OTHER_VOCABULARY
from modeling_bert_repro import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification
from tokenization.coverage import coverage
from tokenization.errors import UserError

TAGGER = BertForTokenClassification


def load(
    name: str, cls: type[PreTrainedModel] = BertForQuestionAnswering, dtype: str = FLOAT32
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a BERT from a folder or the Hub.

    Raises ValueError if they cannot be loaded or the checkpoint lacks a weight of the class.
    """
    config = checkpoint_config(name, "--model")
    tokenizer = load_tokenizer(name)
    model = open_network(cls, name, config=config, trust_remote_code=False)
    check_fit(cast("BertConfig", model.config), tokenizer, 1)
    if dtype == BFLOAT16:
        compute_in_bfloat16(model)
    return model, tokenizer


def open_network(cls: type[PreTrainedModel], name: str, *may_be_new: str, **options: Any) -> PreTrainedModel:
    """What ``load_network`` opens, with little padding, and with torch's attention whatever config.json names."""
    model = load_network(cls, name, may_be_new, attn_implementation="sdpa", **options).model
    model.config.update({"unpad_inputs": "auto"})  # those with an LSTM do not heed it
    return model


def windows_of(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, questions: Sequence[Question]) -> Windows:
    """What a model reads for questions, in the lengths that it was fine-tuned with.

    Raises:
        ValueError: the lengths leave no room for context, or the tokenizer is not a fast one.
    """
    settings = stored_settings(config)
    lengths = (settings["max_seq_length"], settings["doc_stride"], settings["max_query_length"])
    check_lengths(*lengths)
    return build_windows(questions, tokenizer, *lengths)


def answers_of(
    config: PreTrainedConfig,
    questions: Sequence[Question],
    windows: Windows,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    threshold: float | None,
) -> Answers:
    """The answers, found as in an evaluation; without a threshold (SQuAD 1.1) there is always one."""
    settings = stored_settings(config)
    return find_answers(
        questions,
        windows,
        start_logits,
        end_logits,
        n_best_size=settings["n_best_size"],
        max_answer_length=settings["max_answer_length"],
        version_2_with_negative=threshold is not None,
        null_score_diff_threshold=threshold or 0.0,
    )


def answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    pairs: Sequence[tuple[str, str]],
    threshold: float | None,
) -> Iterator[dict[str, Any]]:
    """Yield the answer to every question and context; without a threshold, that stored with the model applies."""
    questions, config = [Question(str(number), *pair) for number, pair in enumerate(pairs)], model.config
    windows = windows_of(config, tokenizer, questions)
    logits = predict_alone(model, Features(windows.columns(), tokenizer.pad_token_id), 32, model.device)
    threshold = stored_threshold(config) if threshold is None else threshold
    found = answers_of(config, questions, windows, logits["start_logits"], logits["end_logits"], threshold)
    longest = stored_settings(config)["max_query_length"]
    for one, length in zip(questions, windows.question_lengths.tolist()):
        entry = given_entry(found, one)
        span = {"start": entry["start"], "end": entry["end"]}
        score = round(entry["probability"], DIGITS)
        yield (
            {"question": one.text, "answer": entry["text"], "score": score} | span | not_read(max(0, length - longest))
        )


def given_entry(found: Answers, question: Question) -> dict[str, Any]:
    """The entry of the n-best list that is the answer; of a context without text, nothing with the probability 0."""
    text = found.predictions[question.id]
    nothing = {"text": "", "start": 0, "end": 0, "probability": 0.0}
    return next((entry for entry in found.nbest[question.id] if entry["text"] == text), nothing)


def verdicts(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], second: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what a model of run_glue.py says of each text, read as in its training.

    A plain pipeline would leave out the stored temperature and thresholds, and read the beginning of a long text alone.

    Args:
        second: the second text of every pair, for a model that was trained on pairs.
    """
    columns = [list(texts)] if second is None else [list(texts), [second] * len(texts)]
    if stored_facts(model.config).get("texts_per_example", len(columns)) != len(columns):
        raise UserError("--second_text is for models of pairs, which need it, and for no others")
    judge = judge_of(model.config)
    logits, read = text_logits(model, tokenizer, columns)
    for text, of_text, lost in zip(texts, logits, read.lost, strict=True):
        given = {"text": text} | ({} if second is None else {"second_text": second})
        yield given | judge(of_text)._replace(lost=lost).record()


def names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield each text with its names, which are those of the service."""
    split, rows = rows_of_texts(texts, model.config, tokenizer)
    columns = {"input_ids": rows.input_ids, "token_type_ids": [np.zeros_like(ids) for ids in rows.input_ids]}
    logits = predict_alone(model, Features(columns, tokenizer.pad_token_id), 32, model.device)["logits"]
    for text, found in zip(texts, names_of_texts(split, rows, [*logits], model.config), strict=True):
        yield {"text": text, "names": [name.record(text) for name in found]}


def read_contexts(path: str | Path) -> list[str]:
    """The contexts of a text file, separated by blank lines. Raises ValueError if the file is not UTF-8."""
    return [
        "\n".join(line for _, line in lines)
        for blank, lines in itertools.groupby(numbered_lines(path), lambda line: not line[1].strip())
        if not blank
    ]


def main(argv: list[str] | None = None) -> None:
    """Print the answers. Raises ValueError for a mistake in the arguments or the files."""
    parser = command_parser("ask", __doc__)
    parser.add_argument("--model", required=True, help="the folder or the Hub name of a fine-tuned model")
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--question", nargs="+", help="one or more questions, each in quotes")
    asked.add_argument(
        "--text", nargs="+", help="one or more texts, each in quotes, for a model of run_glue.py or run_ner.py"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--context", help="the text that contains the answer")
    source.add_argument("--context_file", help="a UTF-8 text file of contexts that are separated by blank lines")
    source.add_argument("--second_text", help="the second text of a pair, for a model of pairs")
    parser.add_argument("--null_score_diff_threshold", type=float, help="no answer if the null odds are above it")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=FLOAT32,
        help="numbers of the network; bfloat16 is faster on processors that have it in hardware, and changes "
        "probabilities in the third decimal place",
    )
    args = parser.parse_args(argv)
    contexts = read_contexts(args.context_file) if args.context_file else [args.context] if args.context else []
    if bool(args.question) != bool(contexts) or (args.question and args.second_text):
        parser.error("give --question with --context or --context_file, or --text")
    config = checkpoint_config(args.model, "--model")
    # Of run_glue.py --label_token last, the head has the same class.
    tags = TAGGER.__name__ in (config.architectures or ()) and stored_facts(config).get("script") != "run_glue.py"
    if tags and args.second_text:
        parser.error("--second_text is for models of pairs; leave it out")
    head = BertForQuestionAnswering if args.question else TAGGER if tags else BertForSequenceClassification
    model, tokenizer = load(args.model, head, args.dtype)
    read = [*(args.text or contexts), *filter(None, [args.second_text])]
    warnings = coverage(tokenizer, read).warnings("the texts", OTHER_VOCABULARY, KEEP_ACCENTS)
    for warning in [*warning_of(args.dtype), *warnings]:
        print(warning, file=sys.stderr)  # standard output has the answers alone
    if head is TAGGER:
        records = names(model, tokenizer, args.text)
    elif args.text:
        records = verdicts(model, tokenizer, args.text, args.second_text)
    else:
        pairs = [*itertools.product(args.question, contexts)]
        records = answers(model, tokenizer, pairs, args.null_score_diff_threshold)
    for record in records:
        print(json.dumps(record, ensure_ascii=False))

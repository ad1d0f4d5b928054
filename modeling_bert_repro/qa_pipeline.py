"""The ``question-answering`` pipeline, which transformers 5 no longer contains.

    import transformers
    from modeling_bert_repro.qa_pipeline import register_question_answering

    register_question_answering()
    answer = transformers.pipeline("question-answering", model="runs/squad")
    answer(question="Who wrote it?", context="It was written by Ada.")
    # {"score": 0.97, "start": 18, "end": 21, "answer": "Ada"}

Long contexts are split into windows, and the answer is the best span of all windows. A span counts only in the window
in which its first token has the most context (run_squad.py of google-research/bert). The score is the softmax over the
sums of start and end logit of the best spans with different texts.
"""

import copy
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedTokenizerBase, pipelines
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import logging

logger = logging.get_logger(__name__)
TASK = "question-answering"
NO_ANSWER = {"start": 0, "end": 0, "answer": ""}


class AutoModelForQuestionAnswering(transformers.AutoModelForQuestionAnswering):
    """Opens folders with a head for question answering; transformers would draw a missing one at random.

    A saved pipeline records this name, and transformers looks for it among its own classes.
    """

    @classmethod
    def from_pretrained(cls, name: Any, *args: Any, **kwargs: Any) -> Any:
        """Raises ValueError for another folder. transformers then tries the class that the folder itself names."""
        model, info = transformers.AutoModelForQuestionAnswering.from_pretrained(
            name, *args, output_loading_info=True, **kwargs
        )
        if new := [*info["missing_keys"], *(key for key, *_shapes in info["mismatched_keys"])]:
            raise ValueError(f"{name}: has no weights for {', '.join(sorted(new))}")
        return model


def register_question_answering() -> None:
    """Make ``transformers.pipeline("question-answering", ...)`` return this pipeline, in this process only."""
    pipelines.PIPELINE_REGISTRY.register_pipeline(
        TASK, pipeline_class=QuestionAnsweringPipeline, pt_model=AutoModelForQuestionAnswering, type="text"
    )
    # Newer versions of transformers reject the names of removed tasks before they look into the registry.
    getattr(pipelines, "REMOVED_TASKS", {}).pop(TASK, None)


class QuestionAnsweringPipeline(ChunkPipeline):
    """Extractive question answering with models that pair texts as BERT does: [CLS] question [SEP] context [SEP].

    It is called with ``question=`` and ``context=``, both strings or both lists; or with a dict of these two, or a
    list, generator or data set of such dicts. It returns one result per question, or a list of results if ``top_k`` is
    above 1. A result holds ``score`` (0 to 1), ``answer``, and its ``start`` and ``end`` characters:
    ``answer = context[start:end]``.

    The options can be given to the constructor or to a call. Their defaults are the values that the model was
    fine-tuned with, if its config has them (``question_answering``), and otherwise those of Google's SQuAD runs:

        top_k: the number of results (1), at most the number of spans in the softmax (20; n_best_size in the config)
        max_answer_len: the length of the longest answer, in tokens (30)
        max_seq_len, doc_stride, max_question_len: the length of a window, the step from one window to the next and the
            length of the question, in tokens (384, 128, 64)
        handle_impossible_answer: also allow the answer "" at 0, 0; by default only if there is a threshold for it
        null_score_diff_threshold: answer "" if the score of [CLS] minus that of the best span is above this;
            by default the one in the config, otherwise 0
    """

    tokenizer: Any  # transformers declares only slow tokenizers and None

    def __init__(self, *args: Any, **kwargs: Any):
        """Raises ValueError for another kind of model, or a tokenizer that is slow, pads left or pairs otherwise."""
        super().__init__(*args, **kwargs)
        kind = type(self.model)
        if kind.__module__.startswith("transformers.models.") and "QuestionAnswering" not in kind.__name__:
            raise ValueError(
                f"{self.model.name_or_path or 'the model'}: expected a model that was fine-tuned for question "
                f"answering, got a {kind.__name__}; run_squad.py makes one"
            )
        tokenizer = self.tokenizer
        first, second, pair = (tokenizer(*texts)["input_ids"] for texts in (("a",), ("b",), ("a", "b")))
        cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        as_bert = pair == [cls, *first[1:-1], sep, *second[1:-1], sep]
        if not as_bert or not tokenizer.is_fast or tokenizer.padding_side != "right":
            raise ValueError(
                "expected a fast tokenizer that pairs texts as [CLS] question [SEP] context [SEP] and pads on the "
                "right; pass one as tokenizer="
            )
        self._reader = _text_tokenizer(tokenizer)

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_question_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        null_score_diff_threshold: float | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        windows = {"max_seq_len": max_seq_len, "doc_stride": doc_stride, "max_question_len": max_question_len}
        answers = {
            "top_k": top_k,
            "max_answer_len": max_answer_len,
            "handle_impossible_answer": handle_impossible_answer,
            "threshold": null_score_diff_threshold,
        }
        return _given(windows), {}, _given(answers)

    def __call__(self, inputs: Any = None, *, question: Any = None, context: Any = None, **options: Any) -> Any:
        if (inputs is None) == (question is None and context is None):
            raise ValueError("give question= and context=, or dicts with these two")
        if inputs is None:
            inputs = {"question": question, "context": context}
            if isinstance(question, list) and isinstance(context, list) and len(question) == len(context):
                inputs = [{"question": asked, "context": text} for asked, text in zip(question, context)]
        # The base class reads the first element of a list to recognise chats, so it cannot handle an empty list.
        return [] if isinstance(inputs, list) and not inputs else super().__call__(inputs, **options)

    def _setting(self, name: str, default: int) -> int:
        """The value with which the model was fine-tuned, if its config has it."""
        return getattr(self.model.config, "question_answering", {}).get(name, default)

    def preprocess(
        self,
        example: dict[str, str],
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_question_len: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield for each window the inputs of the model (1, length) and what ``postprocess`` needs.

        Raises:
            ValueError: the example has no question or no context, or ``max_seq_len`` leaves no room for context or
                exceeds the model's positions.
        """
        question, context = _check(example)
        longest = max_seq_len or self._setting("max_seq_length", min(384, self.model.config.max_position_embeddings))
        asked = max_question_len or self._setting("max_query_length", min(64, longest // 4))
        question_ids = self._encode(question)[0]
        if len(question_ids) > asked:
            logger.warning(
                f"a question of {len(question_ids)} tokens is cut after {asked} of them, the most of the training or "
                "of max_question_len"
            )
            question_ids = question_ids[:asked]
        ids, spans = self._encode(context)
        begin = len(question_ids) + 2
        room = longest - begin - 1
        if room < 1 or longest > self.model.config.max_position_embeddings:
            raise ValueError(
                f"max_seq_len {longest} must hold the question of {len(question_ids)} tokens, three special tokens and "
                f"some context, and not exceed the model's {self.model.config.max_position_embeddings} positions"
            )
        step = min(room, doc_stride or self._setting("doc_stride", 128))
        starts = range(0, -(-max(0, len(ids) - room) // step) * step + 1, step)
        counts = [len(ids[start : start + room]) for start in starts]
        for start, count, counted in zip(starts, counts, _max_context(list(starts), counts)):
            row = [self.tokenizer.cls_token_id, *question_ids, self.tokenizer.sep_token_id]
            row += [*ids[start : start + count], self.tokenizer.sep_token_id]
            yield {
                "input_ids": torch.tensor([row]),
                "attention_mask": torch.ones(1, len(row), dtype=torch.long),
                "token_type_ids": torch.tensor([[0] * begin + [1] * (count + 1)]),
                "window": {"begin": begin, "counted": counted, "spans": spans[start : start + count]},
                "context": context,
                "is_last": start == starts[-1],
            }

    def _encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of a text without [CLS] and [SEP], and for each of them its first character and the one after it."""
        # BERT's marks are not recognised in the text: a "[SEP]" in it is tokenised as five ordinary characters.
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        coded = self._reader(text, return_offsets_mapping=True, **options)
        return coded["input_ids"], coded["offset_mapping"]

    def _forward(self, inputs: dict[str, Any]) -> dict[str, Any]:
        names = {"input_ids", "attention_mask", "token_type_ids"} & {"input_ids", *self.tokenizer.model_input_names}
        outputs = self.model(**{name: inputs[name] for name in names})
        # On the CPU, because the GPUs of Macs have no float64.
        logits = {"start": outputs.start_logits.cpu().double(), "end": outputs.end_logits.cpu().double()}
        return logits | {name: inputs[name] for name in ("window", "context", "is_last")}

    def postprocess(
        self,
        outputs: list[dict[str, Any]],
        top_k: int = 1,
        max_answer_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        threshold: float | None = None,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """The best answers from all windows of one example, best first; a single result if ``top_k`` is 1."""
        stored = getattr(self.model.config, "null_score_diff_threshold", None)
        if handle_impossible_answer is None:
            handle_impossible_answer = stored is not None or threshold is not None
        if threshold is None:
            threshold = stored or 0.0
        longest = max_answer_len or self._setting("max_answer_length", 30)
        entries = _best_spans(outputs, self._setting("n_best_size", 20), longest)
        if handle_impossible_answer:
            null = min(float(window["start"][0, 0] + window["end"][0, 0]) for window in outputs)
            best = entries[0]["score"] if entries else -torch.inf
            entries = sorted([*entries, {"score": null, **NO_ANSWER}], key=lambda entry: -entry["score"])
            # The threshold decides whether "" comes first, even against the order of the scores.
            first = next(entry for entry in entries if (entry["answer"] == "") == (null - best > threshold))
            entries = [first, *(entry for entry in entries if entry is not first)]
        scores = torch.tensor([entry["score"] for entry in entries], dtype=torch.float64).softmax(0).tolist()
        results = [entry | {"score": score} for entry, score in zip(entries[:top_k], scores)]
        results = results or [{"score": 0.0, **NO_ANSWER}]  # the context has no tokens
        return results[0] if top_k == 1 else results


def _text_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer for ``split_special_tokens=True``, which then takes BERT's marks apart, but no added tokens.

    ``text_tokenizer`` of `tokenization/special_tokens.py` does the same; a saved pipeline cannot import it.
    """
    names = ("unk_token", "pad_token", "cls_token", "sep_token", "mask_token")
    marks = {str(getattr(tokenizer, name)) for name in names}
    backend = tokenizer.backend_tokenizer
    if all(token.content in marks or not token.special for token in backend.get_added_tokens_decoder().values()):
        return tokenizer
    rules = json.loads(backend.to_str())
    for token in rules["added_tokens"]:
        token["special"] = token["content"] in marks
    reader = copy.deepcopy(tokenizer)
    reader._tokenizer = type(backend).from_str(json.dumps(rules))
    return reader


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None; transformers merges those of the constructor with those of a call."""
    return {name: value for name, value in options.items() if value is not None}


def _check(example: Any) -> tuple[str, str]:
    """Question and context of an example. Raises ValueError if it is not a dict with these two strings."""
    found: list[Any] = [example.get(name) for name in ("question", "context")] if isinstance(example, dict) else []
    if len(found) != 2 or not all(isinstance(text, str) for text in found):
        raise ValueError(
            "expected a dict with strings as 'question' and 'context', or as many questions as contexts in two lists; "
            f"got {example!r:.80}"
        )
    return found[0], found[1]


def _max_context(starts: list[int], counts: list[int]) -> list[Tensor]:
    """For each window a bool tensor: which of its tokens count in this window (Google's ``_check_is_max_context``).

    A token counts in the window in which the smaller of its left and right context is largest; among equal windows, in
    the longer one, then in the earlier one.
    """
    total = starts[-1] + counts[-1]
    highest, best = torch.full((total,), -1.0, dtype=torch.float64), torch.zeros(total, dtype=torch.long)
    for window, (start, count) in enumerate(zip(starts, counts)):
        # One window at a time: a table of all windows and tokens would grow with the square of the context.
        left = torch.arange(count, dtype=torch.float64)
        score = torch.minimum(left, count - 1 - left) + 0.01 * count
        better = score > highest[start : start + count]
        highest[start : start + count][better] = score[better]
        best[start : start + count][better] = window
    return [best[start : start + size] == window for window, (start, size) in enumerate(zip(starts, counts))]


def _best_spans(outputs: list[dict[str, Any]], wanted: int, max_answer_len: int) -> list[dict[str, Any]]:
    """The best spans with different texts, best first; equal scores are ordered by window, start and end."""
    # `bert_training/tasks/squad/answers.py` searches in the same way, and
    # `tests/modeling_bert_repro/test_qa_pipeline.py` compares the two. Neither imports the other: a saved pipeline
    # takes this file into processes without `bert_training`, and `bert_training` must work without this package when
    # transformers' BERT replaces it.
    places: list[tuple[int, int]] = []  # for every row of scores, the index of its window and of its token therein
    rows = [torch.empty(0, max_answer_len, dtype=torch.float64)]
    for window, output in enumerate(outputs):
        begin, counted = output["window"]["begin"], output["window"]["counted"]
        part = slice(begin, begin + len(counted))
        start = output["start"][0, part].masked_fill(~counted, -torch.inf)
        end = torch.cat([output["end"][0, part], torch.full((max_answer_len - 1,), -torch.inf, dtype=torch.float64)])
        if len(counted):
            rows.append(start[:, None] + end.unfold(0, max_answer_len, 1))  # (tokens, length - 1)
            places += [(window, token) for token in range(len(counted))]
    scores, order = torch.cat(rows).flatten().sort(descending=True, stable=True)
    found: dict[str, dict[str, Any]] = {}
    for score, place in zip(scores.tolist(), order.tolist()):
        if score == -torch.inf or len(found) == wanted:
            break
        window, token = places[place // max_answer_len]
        spans, context = outputs[window]["window"]["spans"], outputs[window]["context"]
        (begin, _), (_, end) = spans[token], spans[token + place % max_answer_len]
        while end < len(context) and unicodedata.category(context[end]) == "Mn":
            end += 1  # an uncased tokenizer drops combining accents, so a token can end before its accent
        text = context[begin:end]
        if text and text not in found:
            found[text] = {"score": score, "start": begin, "end": end, "answer": text}
    return list(found.values())

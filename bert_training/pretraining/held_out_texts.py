"""What an evaluation measures besides ``evaluation.evaluate``: words, and each held-out file by itself."""

from functools import reduce

import torch
from transformers import PreTrainedTokenizerBase

from bert_training.engine.run import Run
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import evaluation
from bert_training.pretraining.corpora import Corpora
from bert_training.pretraining.coverage import check_predictable
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.phased_batches import instances_by_length
from bert_training.pretraining.text import Text
from bert_training.pretraining.word_loss import WordSums, hidden_words
from tokenization.errors import UserError


class HeldOutTexts:
    """The words of the held-out text, and its files if ``--validation_file`` names several.

    All processes make one.
    """

    def __init__(
        self, run: Run[PretrainingArguments], text: Text, tokenizer: PreTrainedTokenizerBase, corpora: Corpora
    ):
        self.words = hidden_words(run, text, tokenizer)
        self.files: dict[str, dict[int, PretrainingInstances]] = {}
        for name, corpus in corpora.held_out_files.items():
            try:
                by_length = instances_by_length(vars(run.args), corpus, tokenizer, held_out=True)
                check_predictable(run.args, by_length, len(tokenizer))
                self.files[name] = by_length
            except UserError as error:  # all files together have enough, so the run need not end
                run.say(f"{name} has no results of its own: {error}")

    def evaluate(self, run: Run[PretrainingArguments], model: torch.nn.Module, length: int) -> dict[str, float]:
        """The results on the words of all files together, and ``eval_<file>_...`` on each of several files.

        All processes call it and return the same numbers.

        Args:
            length: that of the instances, and the longest that a window of words may become.
        """
        sums = {name: words.evaluate(run, model, length) for name, words in self.words.items()}
        results = _named("eval", reduce(WordSums.__add__, sums.values())) if sums else {}
        for name, by_length in self.files.items():
            found = evaluation.evaluate(run, model, by_length[length])
            parts = {key: value for key, value in found.items() if key.endswith(("mlm_loss", "_accuracy"))}
            results |= {key.replace("eval_", f"eval_{name}_", 1): value for key, value in parts.items()}
            results |= _named(f"eval_{name}", sums[name]) if name in sums else {}
        return results

    def lines_by_file(self, results: dict[str, float]) -> list[str]:
        """A line for each of several files, with its part of the results of ``evaluate``."""
        lines = []
        for name in self.files:
            keys = (f"eval_{name}_{end}" for end in ("mlm_loss", "mlm_accuracy", "nats_per_word"))
            lines.append(f"    {', '.join(f'{key} {results[key]:.4f}' for key in keys if key in results)}")
        return lines


def _named(prefix: str, sums: WordSums) -> dict[str, float]:
    return {f"{prefix}_{name}": value for name, value in sums.results().items()}

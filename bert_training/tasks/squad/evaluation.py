"""One run that answers questions: its data and windows, what is evaluated at a step, and the files of answers."""

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_training.engine.batches import Features
from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.tasks.fine_tuning import FineTuningTask, Tuned
from bert_training.tasks.squad.answers import Answers, find_answers
from bert_training.tasks.squad.sources import SquadData, load_data
from bert_training.tasks.squad.threshold import FIELD, store_threshold, threshold_of_evaluation
from bert_training.tasks.squad.windows import build_windows, check_lengths, lost_at_lengths
from bert_training.tasks.task_data import write_rows
from bert_training.tasks.teachers import find_teacher

OF_OTHER_THRESHOLDS = ("at_", "best_", FIELD)  # scores of the validation data alone, on which they are found

LOST = {
    "cut_questions": "are longer than --max_query_length and were cut; raise it",
    "in_no_window": "have an answer that no window holds whole, and are trained on as if they had none; raise "
    "--max_seq_length, or lower --doc_stride",
    "too_long": "have an answer longer than --max_answer_length, which cannot be given; raise it",
}


class AnswerFinder(FineTuningTask[Answers]):
    """Questions about contexts, whose answers are spans.

    Attributes:
        windows: of every split, the rows of its questions.
        threshold: of the null odds, above which a question has no answer; ``reason`` says where it is from.
    """

    args: SquadArguments
    data: SquadData
    may_be_new = ("qa_outputs.", "lstm.")
    per_token = True
    shown = ("exact_match", "f1")

    def __init__(
        self,
        args: SquadArguments,
        config: BertConfig,
        tokenizer: PreTrainedTokenizerBase,
        network: type[PreTrainedModel],
    ):
        lengths = (args.max_seq_length, args.doc_stride, args.max_query_length)
        check_lengths(*lengths)
        super().__init__(args, config, tokenizer, network, load_data(args))
        if args.teacher:
            self.teacher = find_teacher(args, network, tokenizer)
        self.windows = {
            split: build_windows(part, tokenizer, *lengths, with_answers=split == "train")
            for split, part in self.data.splits.items()
        }
        self.features = {
            split: Features(part.columns(), tokenizer.pad_token_id) for split, part in self.windows.items()
        }
        self.threshold, self.reason = threshold_of_evaluation(args.null_score_diff_threshold, config)

    def describe(self, run: Run[SquadArguments], model: PreTrainedModel) -> None:
        """Record and print the windows, what the lengths lose, and the no-answer threshold."""
        run.add_facts(windows={split: len(rows) for split, rows in self.features.items()})
        run.say(", ".join(f"{len(rows):,} {split} windows" for split, rows in self.features.items()))
        limits = (self.args.max_query_length, self.args.max_answer_length)
        lost = {split: lost_at_lengths(self.data.splits[split], part, *limits) for split, part in self.windows.items()}
        run.add_facts(lost_at_lengths=lost)
        for split, counts in lost.items():
            for name, count in counts.items():
                if count:
                    run.say(f"warning: {split}: {count:,} of {len(self.data.splits[split]):,} questions {LOST[name]}")
        if self.args.version_2_with_negative:
            run.add_facts(null_score_diff_threshold=self.threshold)
            run.say(f"no-answer threshold: {self.threshold:g}, {self.reason}")

    def judge(self, run: Run[SquadArguments], model: torch.nn.Module, split: str) -> tuple[dict[str, Any], Answers]:
        """The official scores of a split, {} without gold answers, and the answers."""
        args, questions, logits = self.args, self.data.splits[split], self.predict(run, model, split)
        answers = find_answers(
            questions,
            self.windows[split],
            logits["start_logits"],
            logits["end_logits"],
            n_best_size=args.n_best_size,
            max_answer_length=args.max_answer_length,
            version_2_with_negative=args.version_2_with_negative,
            null_score_diff_threshold=self.threshold,
        )
        if split == "validation":
            return answers.score(questions), answers
        found = answers.score(questions) if self.data.scored_test else {}
        return {name: value for name, value in found.items() if not name.startswith(OF_OTHER_THRESHOLDS)}, answers

    def finish(self, run: Run[SquadArguments], model: PreTrainedModel, tuned: Tuned[Answers]) -> None:
        """Answer the test questions with the threshold of the validation data, and store it with the model."""
        if self.training and self.args.version_2_with_negative and not self.threshold:
            self.threshold = tuned.results[f"eval_{FIELD}"]
            run.say(f"no-answer threshold of the model: {self.threshold:g}, the best one for the validation data")
        super().finish(run, model, tuned)
        if self.training:
            store_threshold(model.config, self.args.version_2_with_negative, tuned.results)

    def write(self, folder: Path, split: str, outcome: Answers) -> None:
        """Write the answers, and where there are gold answers the scores of every question."""
        outcome.write(folder, "test_" if split == "test" else "")
        if split == "test":
            outcome.write_lines(folder / "test_answers.jsonl")
        if split == "validation" or self.data.scored_test:
            write_rows(folder, split, outcome.scored_rows(self.data.splits[split]))

"""Questions and answers that the lengths of windows and answers lose: counted, said, recorded, and refused if all are.

A question of which no window holds the whole answer is trained on as if it had none (``windows.py``), and no answer can
have more than --max_answer_length tokens. The scores are then low for a reason that no score names.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from training.engine.run import Run
from training.flags.fine_tuning import SquadArguments
from training.tasks.squad.questions import Question
from training.tasks.squad.windows import Windows, token_span


@dataclass(frozen=True)
class Lost:
    """What the lengths lose of a split.

    Attributes:
        questions: the number of questions.
        answerable: those of them that have an answer.
        in_no_window: those of them of which no window holds a whole answer.
        too_long: those of them whose answers are all longer than --max_answer_length.
        several_windows: questions whose context is read in several windows.
        cut_questions: questions that are longer than --max_query_length.
    """

    questions: int
    answerable: int
    in_no_window: int
    too_long: int
    several_windows: int
    cut_questions: int


def count_lost(
    questions: Sequence[Question],
    windows: Windows,
    max_query_length: int,
    max_answer_length: int,
    first_only: bool = False,
) -> Lost:
    """Count what is lost.

    Args:
        windows: the result of ``build_windows`` for these questions.
        first_only: only the first gold answer of a question counts, as in training.
    """
    answers = [question.answers[:1] if first_only else question.answers for question in questions]
    held = np.zeros(len(questions), dtype=bool)
    short = np.zeros(len(questions), dtype=bool)
    for place in range(max(map(len, answers))):
        # The first and the last token of one answer of every question; those without get a span that no window holds.
        spans = np.full((len(questions), 2), -1)
        for number, texts in enumerate(answers):
            if len(texts) > place:
                spans[number] = token_span(*texts[place], windows.offsets[number])
        first, last = spans.T
        there = (first >= 0) & (first <= last)
        short |= there & (last - first < max_answer_length)
        begin, end = first[windows.question], last[windows.question]
        inside = (windows.first_token <= begin) & (end < windows.first_token + windows.num_tokens)
        held[windows.question[inside & there[windows.question]]] = True
    answerable = np.array([bool(texts) for texts in answers])
    return Lost(
        questions=len(questions),
        answerable=int(answerable.sum()),
        in_no_window=int((answerable & ~held).sum()),
        too_long=int((answerable & ~short).sum()),
        several_windows=int((np.bincount(windows.question, minlength=len(questions)) > 1).sum()),
        cut_questions=int((windows.question_lengths > max_query_length).sum()),
    )


def report_lost(
    run: Run[SquadArguments], splits: dict[str, list[Question]], windows: dict[str, Windows], positions: int
) -> None:
    """Print a line for each kind of loss in each split, and record the counts.

    Args:
        positions: the longest input that the network can read.

    Raises:
        ValueError: no window holds an answer to a training question, in a version in which all questions have one.
    """
    args = run.args
    limits = (args.max_query_length, args.max_answer_length)
    found = {split: count_lost(splits[split], windows[split], *limits, split == "train") for split in splits}
    run.add_facts(lost_at_lengths={split: asdict(lost) for split, lost in found.items()})
    for split, lost in found.items():
        for line in _lines(split, lost, args, positions):
            run.say(line)
    train = found.get("train")
    if train and not args.version_2_with_negative and train.in_no_window == train.answerable:
        raise ValueError(
            f"no window of --max_seq_length {args.max_seq_length} holds a whole answer to any of the {train.answerable:,} "
            "training questions, so that there is nothing to learn; raise --max_seq_length, or lower --doc_stride, or "
            "shorten the answers"
        )


def _lines(split: str, lost: Lost, args: SquadArguments, positions: int) -> list[str]:
    lines = []
    if lost.several_windows:
        lines.append(f"{split}: {_share(lost.several_windows, lost.questions)} questions have several windows")
    if lost.cut_questions:
        lines.append(
            f"warning: {split}: {_share(lost.cut_questions, lost.questions)} questions are longer than "
            f"--max_query_length {args.max_query_length} and were cut; raise it"
        )
    if lost.in_no_window:
        effect = "trained on as if they had no answer" if split == "train" else "never answered rightly"
        longer = f"raise --max_seq_length (up to {positions}), " if args.max_seq_length < positions else ""
        lines.append(
            f"warning: {split}: {_share(lost.in_no_window, lost.answerable)} questions with an answer have no window that "
            f"holds all of it, so they are {effect}; {longer}lower --doc_stride, or shorten the answers"
        )
    if lost.too_long:
        effect = "the model learns them but never gives them" if split == "train" else "they are never answered rightly"
        lines.append(
            f"warning: {split}: {_share(lost.too_long, lost.answerable)} questions with an answer have none of up to "
            f"--max_answer_length {args.max_answer_length} tokens: {effect}; raise it"
        )
    return lines


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({100 * part / whole:.1f} %)"

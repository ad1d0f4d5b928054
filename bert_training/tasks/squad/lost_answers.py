"""Questions and answers that the lengths of windows and answers lose: counted, said, recorded, and refused if all are.

A question of which no window holds the whole answer is trained on as if it had none (``windows.py``), and no answer can
have more than --max_answer_length tokens. The scores are then low for a reason that no score names.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bert_training.engine.run import Run
from bert_training.inputs.flags.fine_tuning import SquadArguments
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import Windows, token_span
from tokenization.errors import UserError


@dataclass(frozen=True)
class Lost:
    """What the lengths lose of a split.

    Attributes:
        questions: the number of questions.
        answerable: those of them that have an answer.
        in_no_window: those of them of which no window holds a whole answer.
        too_long: those of them whose answers are all longer than --max_answer_length.
        unreachable: those of them of which no answer is both short enough and whole in a window.
        longest: the number of tokens of the longest answer.
        several_windows: questions whose context is read in several windows.
        cut_questions: questions that are longer than --max_query_length.
    """

    questions: int
    answerable: int
    in_no_window: int
    too_long: int
    unreachable: int
    longest: int
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
    short, reachable, longest = np.zeros(len(questions), dtype=bool), np.zeros(len(questions), dtype=bool), 0
    for place in range(max(map(len, answers))):
        given = np.array([len(texts) > place for texts in answers])
        spans = np.zeros((len(questions), 2), dtype=np.int64)
        for number in np.flatnonzero(given):
            spans[number] = token_span(*answers[number][place], windows.offsets[number])
        first, last = spans.T
        is_short = given & (last - first < max_answer_length)
        short |= is_short
        longest = max(longest, int((last - first + 1)[given].max(initial=0)))
        there = given & (first <= last)  # of the other answers, the tokenizer drops every character
        begin, end = first[windows.question], last[windows.question]
        inside = (windows.first_token <= begin) & (end < windows.first_token + windows.num_tokens)
        whole = np.zeros(len(questions), dtype=bool)
        whole[windows.question[inside & there[windows.question]]] = True
        held |= whole
        reachable |= whole & is_short
    answerable = np.array([bool(texts) for texts in answers])
    return Lost(
        questions=len(questions),
        answerable=int(answerable.sum()),
        in_no_window=int((answerable & ~held).sum()),
        too_long=int((answerable & ~short).sum()),
        unreachable=int((answerable & ~reachable).sum()),
        longest=longest,
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
        UserError: no answer of a split can be given, because none is whole in a window and short enough.
    """
    args = run.args
    limits = (args.max_query_length, args.max_answer_length)
    found = {split: count_lost(splits[split], windows[split], *limits, split == "train") for split in splits}
    run.add_facts(lost_at_lengths={split: asdict(lost) for split, lost in found.items()})
    for split, lost in found.items():
        if 0 < lost.answerable == lost.unreachable:
            longer = f"raise --max_answer_length (the longest answer has {lost.longest:,} tokens)"
            remedies = [*([longer] * (lost.too_long > 0)), *([_remedy(args, positions)] * (lost.in_no_window > 0))]
            raise UserError(
                f"{split}: no answer to any of the {lost.answerable:,} questions that have one can be given: "
                f"{lost.too_long:,} have none of up to --max_answer_length {args.max_answer_length} tokens, and "
                f"{lost.in_no_window:,} none that is whole in a window; {'; '.join(remedies)}"
            )
    for split, lost in found.items():
        for line in _lines(split, lost, args, positions):
            run.say(line)


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
        effect = "they are trained on as if they had none" if split == "train" else "no answer to them can be right"
        lines.append(
            f"warning: {split}: {_share(lost.in_no_window, lost.answerable)} questions with an answer have no window "
            f"that holds all of it: {effect}; {_remedy(args, positions)}"
        )
    if lost.too_long:
        effect = "the model learns them but cannot give them" if split == "train" else "no answer to them can be right"
        lines.append(
            f"warning: {split}: {_share(lost.too_long, lost.answerable)} questions with an answer have none of up to "
            f"--max_answer_length {args.max_answer_length} tokens: {effect}; raise it"
        )
    return lines


def _remedy(args: SquadArguments, positions: int) -> str:
    longer = f"raise --max_seq_length (up to {positions}), " if args.max_seq_length < positions else ""
    return f"{longer}lower --doc_stride, or shorten the answers"


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({100 * part / whole:.1f} %)"

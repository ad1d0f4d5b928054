"""One self-contained HTML page about the answers of a run. It needs no network and no script; all texts are escaped.

It shows the scores, and questions to browse, with the gold answers and the n-best spans marked in their contexts: at
most MOST of them, those that are answered wrongly first. Of long contexts, only the parts around the marks are there.
"""

import itertools
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bert_training.files.atomic import write_text
from bert_training.tasks.squad.answers import Answers
from bert_training.tasks.squad.questions import Question

MOST = 200
NBEST = 5
MARGIN = 250  # characters of context shown around a mark
LONGEST = 400  # characters shown of any other text

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222;background:#fff}
td{padding:.15rem .8rem .15rem 0;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}
details{border-top:1px solid #ddd;padding:.4rem 0}summary{cursor:pointer}bdi,.context{overflow-wrap:anywhere}
.kind{display:inline-block;min-width:4em;color:#555}.context{white-space:pre-wrap}mark{background:none;color:inherit}
.nbest{background:#eee}.answer{background:#ffd97a}.gold{border-bottom:3px solid #2e9e4f}.cut{color:#999}
"""


def write_page(path: Path, questions: Sequence[Question], answers: Answers, results: dict[str, float]) -> None:
    """Write the page.

    Args:
        answers: the result of ``find_answers`` for these questions.
        results: the results of the evaluation; those whose names begin with ``eval_`` are shown.
    """
    right = {row["id"]: row["exact_match"] == 100 for row in answers.scored_rows(questions)}
    shown = sorted(questions, key=lambda question: right[question.id])[:MOST]
    scores = "".join(
        f'<tr><td>{escape(name.removeprefix("eval_"))}</td><td class="n">{value:,.2f}</td></tr>\n'
        for name, value in results.items()
        if name.startswith("eval_")
    )
    name = escape(path.resolve().parent.name)
    write_text(
        path,
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        # Nothing in the data can make the browser run or fetch anything.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Answers of {name}</title>\n<style>{STYLE}</style></head>\n<body><h1>Answers of {name}</h1>\n"
        f"<h2>Scores</h2>\n<table>{scores}</table>\n<h2>Questions</h2>\n<p>{sum(right.values()):,} of "
        f"{len(questions):,} questions are answered exactly. Here are {len(shown):,} with at most {NBEST} spans each, "
        "the wrong ones first; all are in predictions.json and nbest_predictions.json. Marks: "
        '<mark class="gold">gold answer</mark>, <mark class="answer">answer</mark>, '
        '<mark class="nbest">other spans</mark>.</p>\n'
        + "\n".join(_details(question, answers, right[question.id]) for question in shown)
        + "</body></html>\n",
    )


def _details(question: Question, answers: Answers, right: bool) -> str:
    prediction, entries = answers.predictions[question.id], answers.nbest[question.id][:NBEST]
    gold = list(dict.fromkeys(text for text, _ in question.answers))
    spans = [(start, start + len(text), "gold") for text, start in question.answers]
    for entry in entries:
        if entry["text"]:
            spans.append((entry["start"], entry["end"], "answer" if entry["text"] == prediction else "nbest"))
    table = "".join(
        f'<tr><td class="n">{entry["probability"]:.4f}</td><td>{_text(entry["text"])}</td></tr>' for entry in entries
    )
    odds = f"<p>null odds {answers.null_odds[question.id]:.4g}</p>" if answers.null_odds else ""
    return (
        f'<details><summary><span class="kind">{"right" if right else "wrong"}</span> {_text(question.text)}</summary>'
        f"\n<table><tr><td>answer</td><td>{_text(prediction)}</td></tr>"
        f"<tr><td>gold</td><td>{' · '.join(map(_text, gold)) or _text('')}</td></tr></table>\n"
        f'<p class="context">{marked_context(question.context, spans)}</p>\n<table>{table}</table>{odds}'
        f"<p>{escape(question.id)}</p></details>"
    )


def marked_context(context: str, spans: Sequence[tuple[int, int, str]]) -> str:
    """The context as HTML with its spans (begin, end, class) marked; spans may overlap, and long unmarked text is cut.

    Overlapping parts are in all classes of their spans.
    """
    edges = sorted({0, len(context), *(edge for begin, end, _ in spans for edge in (begin, end))})
    parts = []
    for begin, end in itertools.pairwise(edges):
        classes = sorted({name for first, last, name in spans if first <= begin and end <= last})
        text = _shorten(context[begin:end], MARGIN)
        parts.append(f'<mark class="{" ".join(classes)}">{text}</mark>' if classes else text)
    return "".join(parts)


def _text(text: str) -> str:
    return f"<bdi>{_shorten(text, LONGEST // 2)}</bdi>" if text else '<span class="cut">(no answer)</span>'


def _shorten(text: str, margin: int) -> str:
    if len(text) <= 2.5 * margin:  # in a shorter text, the note about the cut would be about as long as what is cut
        return escape(text)
    cut = len(text) - 2 * margin
    return f'{escape(text[:margin])}<span class="cut"> … {cut:,} characters … </span>{escape(text[-margin:])}'

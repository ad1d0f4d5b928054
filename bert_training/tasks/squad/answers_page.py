"""One self-contained HTML page about the answers of a run. It needs no network and no server; all texts are escaped.

It shows the scores, for SQuAD 2.0 also over all thresholds, the kinds of errors, and questions to browse, with the gold
answers and the n-best spans marked in their contexts. The page stays small for any amount of data: it contains the
first PER_KIND questions of every kind and, of long contexts, only the parts around the marks.
"""

import html
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert_training.files.atomic import write_text
from bert_training.tasks.squad import metrics
from bert_training.tasks.squad.answers import Answers
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import Windows, max_context

KINDS = {
    "correct": "an exact match",
    "boundary": "overlaps a gold answer, but starts or ends elsewhere",
    "wrong null": "an answer to a question that has none, or no answer to one that has some",
    "missed window": "from a window that does not contain a whole gold answer",
    "other": "elsewhere in a window that contains a gold answer",
}
PER_KIND = 60
NBEST = 5
MARGIN = 250  # characters of context shown around a mark
LONGEST = 400  # characters shown of any other text
CURVE_POINTS = 300
COLOURS = {"exact": "#2e9e4f", "f1": "#5b8def"}

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:inline-block;height:.8em;background:#5b8def}
details{border-top:1px solid #ddd;padding:.4rem 0}summary{cursor:pointer}
.kind{display:inline-block;min-width:7.5em;color:#555}.context{white-space:pre-wrap;overflow-wrap:anywhere}
bdi{overflow-wrap:anywhere}mark{background:none;color:inherit;padding:.05em 0;border-radius:2px}
.nbest{background:#eee}.answer{background:#ffd97a}.gold{border-bottom:3px solid #2e9e4f}
.cut{color:#999}button{font:inherit;margin:0 .3rem .3rem 0}button[aria-pressed=true]{background:#5b8def;color:#fff}
svg text{font:12px system-ui,sans-serif;fill:#555}
"""
SCRIPT = """
const rows=[...document.querySelectorAll("details")],find=document.getElementById("find");let kind="";
function show(){const text=find.value.toLowerCase();
for(const row of rows)row.hidden=!((!kind||row.dataset.kind===kind)&&row.textContent.toLowerCase().includes(text));
document.getElementById("shown").textContent=rows.filter(row=>!row.hidden).length;
for(const button of document.querySelectorAll("button"))button.setAttribute("aria-pressed",button.value===kind);}
for(const button of document.querySelectorAll("button"))button.onclick=()=>{kind=button.value;show();};
find.oninput=show;show();
"""


def write_page(
    path: Path, questions: Sequence[Question], windows: Windows, answers: Answers, results: dict[str, float]
) -> None:
    """Write the page.

    Args:
        windows, answers: the results of ``build_windows`` and ``find_answers`` for these questions.
        results: the results of the evaluation; those whose names begin with ``eval_`` are shown.
    """
    kinds = error_kinds(questions, windows, answers)
    curve = threshold_curve(questions, answers, results["eval_null_score_diff_threshold"]) if answers.null_odds else ""
    name = _escape(path.resolve().parent.name)
    write_text(
        path,
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        # Only the scripts and styles of this file are allowed: nothing in the data can make the browser fetch anything.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\">\n"
        f"<title>Answers of {name}</title>\n<style>{STYLE}</style></head>\n<body><h1>Answers of {name}</h1>\n"
        f"<h2>Scores</h2>\n{_scores(results)}\n{curve}\n<h2>Kinds of answers</h2>\n{_kind_table(kinds)}\n"
        f"<h2>Questions</h2>\n{_question_list(questions, answers, kinds)}\n<script>{SCRIPT}</script></body></html>\n",
    )


def error_kinds(questions: Sequence[Question], windows: Windows, answers: Answers) -> list[str]:
    """The kind of every question's answer, a key of ``KINDS``.

    They are tried in the order correct, wrong null, boundary, missed window, other.
    """
    bounds = np.searchsorted(windows.question, np.arange(len(questions) + 1))
    rows = [range(first, after) for first, after in itertools.pairwise(bounds)]
    return [_kind(question, windows, of_question, answers) for question, of_question in zip(questions, rows)]


def _kind(question: Question, windows: Windows, rows: range, answers: Answers) -> str:
    prediction, negative = answers.predictions[question.id], bool(answers.null_odds)
    gold = {question.id: [text for text, _ in question.answers]}
    scores = metrics.score(gold, {question.id: prediction}, negative)
    if scores["exact" if negative else "exact_match"] == 100:
        return "correct"
    if negative and bool(prediction) != bool(question.answers):
        return "wrong null"
    if not prediction:  # a context without tokens
        return "other"
    best = next(entry for entry in answers.nbest[question.id] if entry["text"] == prediction)
    places = [(start, start + len(text)) for text, start in question.answers]
    if any(begin < best["end"] and best["start"] < end for begin, end in places):
        return "boundary"
    begin, end = _window_of(windows, rows, best["start"])
    return "other" if any(begin <= first and last <= end for first, last in places) else "missed window"


def _window_of(windows: Windows, rows: range, character: int) -> tuple[int, int]:
    """(first character, end) of the window that gives the token at ``character`` its largest context."""
    spans = windows.offsets[windows.question[rows[0]]]
    token = int(np.searchsorted(spans[:, 0], character))
    firsts, counts = windows.first_token[rows], windows.num_tokens[rows]
    first, count = next(
        (first, count)
        for first, count, counted in zip(firsts, counts, max_context(firsts, counts))
        if 0 <= token - first < count and counted[token - first]
    )
    return int(spans[first, 0]), int(spans[first + count - 1, 1])


# --- scores ----------------------------------------------------------------------------------------------


def _scores(results: dict[str, float]) -> str:
    rows = [
        f'<tr><td>{_escape(name.removeprefix("eval_"))}</td><td class="n">{_number(value)}</td></tr>'
        for name, value in results.items()
        if name.startswith("eval_")
    ]
    return "<table>" + "\n".join(rows) + "</table>"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _kind_table(kinds: list[str]) -> str:
    rows = []
    for kind, meaning in KINDS.items():
        share = kinds.count(kind) / len(kinds)
        rows.append(
            f'<tr><td>{kind}</td><td class="n">{kinds.count(kind):,}</td><td class="n">{share:.1%}</td>'
            f'<td><span class="bar" style="width:{8 * share:.2f}rem"></span></td><td>{meaning}</td></tr>'
        )
    return "<table>" + "\n".join(rows) + "</table>"


def threshold_curve(questions: Sequence[Question], answers: Answers, best: float) -> str:
    """An SVG of exact match and F1 over the threshold; two marks show the threshold in use and ``best``."""
    thresholds, lines = threshold_scores(questions, answers)
    shown = thresholds[np.abs(thresholds) < 1e6]  # a context without tokens has odds near infinity
    low, high = min(0.0, shown.min(initial=0.0)), max(0.0, shown.max(initial=0.0))
    margin = 0.03 * (high - low) or 1.0
    marks = {"used here": answers.threshold, "best F1": best}
    return _svg(np.append(low - margin, thresholds), lines, low - margin, high + margin, marks)


def threshold_scores(questions: Sequence[Question], answers: Answers) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The null odds of Q questions in rising order (Q,), and by name the scores in per cent (Q + 1,).

    The first score is that of no answers at all, the others are those with the answers up to each of the null odds.
    """
    ids = [question.id for question in questions]
    gold = {question.id: [text for text, _ in question.answers] for question in questions}
    odds = np.array([answers.null_odds[id_] for id_ in ids])
    order = np.argsort(odds, kind="stable")
    lines = {}
    for name in COLOURS:
        kept = np.array([metrics.score_answer(name, gold[id_], answers.span_predictions[id_]) for id_ in ids])
        emptied = np.array([not gold[id_] for id_ in ids], dtype=float)
        totals = emptied.sum() + np.concatenate([[0.0], np.cumsum((kept - emptied)[order])])
        lines[name] = 100 * totals / len(ids)
    return odds[order], lines


def _svg(thresholds: np.ndarray, lines: dict, low: float, high: float, marks: dict[str, float]) -> str:
    width, height, left, right, bottom = 700, 260, 45, 25, 30

    def x(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * (width - left - right)

    def y(percent: float) -> float:
        return 10 + (100 - percent) / 100 * (height - bottom - 10)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="scores over thresholds">']
    for percent in (0, 25, 50, 75, 100):
        parts.append(f'<path d="M{left} {y(percent):.1f}H{width - right}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(percent) + 4:.1f}" text-anchor="end">{percent}</text>')
    for value in np.linspace(low, high, 6):
        parts.append(f'<text x="{x(value):.1f}" y="{height - 12}" text-anchor="middle">{value:.3g}</text>')
    for number, (name, value) in enumerate(marks.items()):
        parts.append(f'<path d="M{x(value):.1f} 10V{height - bottom}" stroke="#c33" stroke-dasharray="4"/>')
        parts.append(f'<text x="{x(value) + 4:.1f}" y="{height - bottom - 8 - 14 * number}">{name}</text>')
    steps = np.unique(np.linspace(0, len(thresholds) - 1, min(len(thresholds), CURVE_POINTS)).round().astype(int))
    for number, (name, scores) in enumerate(lines.items()):
        points = " ".join(f"{x(thresholds[step]):.1f},{y(scores[step]):.1f}" for step in steps)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        parts.append(f'<text x="{left + 8 + 60 * number}" y="24" style="fill:{COLOURS[name]}">{name}</text>')
    caption = "Scores if questions whose null odds are above the threshold get no answer. "
    caption += ", ".join(f"{name}: {value:g}" for name, value in marks.items())
    return "<h2>Thresholds</h2>\n" + "\n".join(parts) + f"</svg><p>{caption}.</p>"


# --- questions -------------------------------------------------------------------------------------------


def _question_list(questions: Sequence[Question], answers: Answers, kinds: list[str]) -> str:
    left, rows = dict.fromkeys(KINDS, PER_KIND), []
    for question, kind in zip(questions, kinds):
        left[kind] -= 1
        if left[kind] >= 0:
            rows.append(_details(question, answers, kind))
    buttons = [f'<button value="{kind}">{kind}</button>' for kind in KINDS if kind in kinds]
    return (
        f"<p>Here are {len(rows):,} of {len(questions):,} questions: the first {PER_KIND} of every kind, with at most "
        f"{NBEST} spans each. All are in predictions.json and nbest_predictions.json. Marks: "
        '<mark class="gold">gold answer</mark>, <mark class="answer">answer</mark>, '
        '<mark class="nbest">other spans</mark>.</p>\n'
        f'<p><button value="">all</button>{"".join(buttons)} <input id="find" type="search" '
        f'placeholder="find a word"> <span id="shown">{len(rows)}</span> shown</p>\n' + "\n".join(rows)
    )


def _details(question: Question, answers: Answers, kind: str) -> str:
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
        f'<details data-kind="{kind}"><summary><span class="kind">{kind}</span> {_text(question.text)}</summary>\n'
        f"<table><tr><td>answer</td><td>{_text(prediction)}</td></tr>"
        f"<tr><td>gold</td><td>{' · '.join(map(_text, gold)) or _text('')}</td></tr></table>\n"
        f'<p class="context">{marked_context(question.context, spans)}</p>\n<table>{table}</table>{odds}'
        f"<p>{_escape(question.id)}</p></details>"
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
        return _escape(text)
    cut = len(text) - 2 * margin
    return f'{_escape(text[:margin])}<span class="cut"> … {cut:,} characters … </span>{_escape(text[-margin:])}'


def _escape(text: str) -> str:
    return html.escape(text)

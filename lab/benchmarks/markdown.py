"""Tables in Markdown."""

from collections.abc import Iterable


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]], text_columns: int = 1) -> str:
    """A Markdown table; the first ``text_columns`` contain text, the others numbers, which are aligned right."""
    head = list(head)
    alignment = ["---"] * text_columns + ["---:"] * (len(head) - text_columns)
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(alignment)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "".join(f"{line}\n" for line in lines)

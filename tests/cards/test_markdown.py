"""Names stay text in Markdown."""

import itertools

import pytest

from bert_training.cards.markdown import code, one_line, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n---\n# b", "a\\\\n---\\\\n# b"),
        ("a\u202eb", "a\\\\u202eb"),
        ("runs/a_b-2 é 中", "runs/a_b-2 é 中"),
        (1e-4, "0.0001"),
    ],
)
def test_text_stays_text(text, shown):
    assert plain(text) == shown


MARKS = ("\\", "[x]", "(https://a.b)", "|", "`", "<b>", "&lt;", "n")


@pytest.mark.parametrize("before", ["", "| a |\n|---|\n| "])
def test_a_reader_of_markdown_shows_the_text_itself(before):
    """All texts of three of the marks, in a paragraph and in a cell; the reader is markdown-it."""
    read = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True}).enable("table")
    for parts in itertools.product(MARKS, repeat=3):
        text = "".join(parts)
        tokens = read.parse(f"{before}{plain(text)}{' |' if before else ''}")
        (inline,) = [token for token in tokens if token.type == "inline"][-1:]
        assert {child.type for child in inline.children} <= {"text", "text_special"}, text
        assert "".join(child.content for child in inline.children) == text


def test_code_and_lines():
    assert code("a`b|c") == "`a'b\\|c`"
    assert one_line("a\r\nb") == "a\\r\\nb"

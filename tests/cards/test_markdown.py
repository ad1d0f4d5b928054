"""Names stay text in Markdown."""

import pytest

from bert_training.cards.markdown import code, one_line, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<img src=x>", "&lt;img src=x>"),
        ("a | b", "a \\| b"),
        ("[x](javascript:y)", "\\[x\\](javascript:y)"),
        ("`rm`", "\\`rm\\`"),
        ("a\n---\n# b", "a\\n---\\n# b"),
        ("a\u202eb", "a\\u202eb"),
        ("runs/a_b-2 é 中", "runs/a_b-2 é 中"),
        (1e-4, "0.0001"),
    ],
)
def test_text_stays_text(text, shown):
    assert plain(text) == shown


def test_code_and_lines():
    assert code("a`b|c") == "`a'b\\|c`"
    assert one_line("a\r\nb") == "a\\r\\nb"

"""Text of unknown origin in Markdown: names of folders, files, tasks and labels stay text, whatever is in them."""

import re

# A tag, a cell's end, code and a link begin with these, and a backslash undoes the one that is put before them. Others,
# such as * and _, can only change how a text looks, and names often have them.
MARKUP = re.compile(r"[\\<|`\[\]]|&(?=#?\w+;)")
BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


def plain(text: object) -> str:
    """The text on one line, so that Markdown shows it as it is and makes no tag, link, cell or heading of it."""
    return MARKUP.sub(lambda match: "&lt;" if match[0] == "<" else f"\\{match[0]}", one_line(text))


def code(text: object) -> str:
    """The text as code within a line. Code ends at the next backtick, so those of the text become apostrophes."""
    return "`" + one_line(text).replace("`", "'").replace("|", "\\|") + "`"


def one_line(text: object) -> str:
    """The text with line ends, other control characters and changes of direction spelled out."""
    return BREAKS.sub(lambda match: ascii(match[0])[1:-1], str(text))

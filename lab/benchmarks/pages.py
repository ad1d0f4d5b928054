"""Put the table of a record into the page that shows it."""

import re
from pathlib import Path

from lab import tables


def put_table(page: Path, record: str) -> None:
    """Replace what stands between the two comments that enclose the table of a record.

    Args:
        record: the name of a file of lab/records/.
    """
    text, name = page.read_text(encoding="utf-8"), re.escape(record)
    pattern = rf"(<!-- python lab/benchmarks/tables\.py {name} -->\n).*?(<!-- end -->)"
    table = tables.output([record])
    text, count = re.subn(pattern, lambda match: match[1] + table + match[2], text, flags=re.DOTALL)
    assert count == 1, f"{page}: expected one table of {record}, found {count}"
    page.write_text(text, encoding="utf-8")

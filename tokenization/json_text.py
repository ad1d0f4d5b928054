"""JSON of unknown origin: whatever is wrong with a text, the error is a ``json.JSONDecodeError``.

``json.loads`` alone raises RecursionError for thousands of nested brackets and a bare ValueError for a number of
thousands of digits, which callers forget.
"""

import json
from typing import Any


def parse_json(text: str) -> Any:
    """The content of a text of JSON.

    Raises:
        json.JSONDecodeError: it is not JSON, is nested too deeply, or has a number that is too long.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deeply", text, 0) from None
    except ValueError as error:  # of int()
        raise json.JSONDecodeError(str(error).partition(";")[0], text, 0) from None

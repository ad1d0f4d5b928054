"""A mistake planted in a function of a source, found by the names of the function and the form of its code."""

import ast
from collections.abc import Iterator


def plant(source: str, places: tuple[str, ...], correct: str, faulty: str) -> str:
    """The source with `faulty` for `correct`, one expression or statement, wherever the places have it.

    places: names such as "BertPooler.forward", a class for what stands in its body, or the target of an assignment
    outside all functions. Code is compared as syntax: its format, comments and the rest of the file may change.
    Raises ValueError for a place that the source does not have, and for one without the correct code.
    """
    scopes = dict(named_scopes(ast.parse(source)))
    old, new = (ast.parse(code).body[0] for code in (correct, faulty))
    if isinstance(old, ast.Expr) and isinstance(new, ast.Expr):
        wanted, text = ast.dump(old.value), f"({faulty})"  # in parentheses it fits into any expression
    else:
        wanted, text = ast.dump(old), faulty
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    spans = set()
    for place in places:
        if place not in scopes:
            raise ValueError(f"no function, class or assignment {place!r}; adapt the table of planted faults")
        found = [node for node in ast.walk(scopes[place]) if ast.dump(node) == wanted]
        if not found:
            raise ValueError(f"{place} does not hold {correct!r}; adapt the table of planted faults")
        spans |= {
            (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
            for node in found
        }
    content = source.encode()
    for begin, end in sorted(spans, reverse=True):
        content = content[:begin] + text.encode() + content[end:]
    return content.decode()


def named_scopes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Functions, classes and module-level assignments with their full names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from named_scopes(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign) and not prefix:
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))

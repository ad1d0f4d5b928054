"""Plant a mistake in a function of a source file. The function is found by its name, the code by its syntax tree."""

import ast
from collections.abc import Iterator


def plant(source: str, places: tuple[str, ...], correct: str, faulty: str) -> str:
    """Return the source with `faulty` in the place of `correct` wherever `correct` stands in one of the places.

    Both are one expression or one statement. A place is the name of a function such as "BertPooler.forward", the name
    of a class, which stands for its whole body, or the target of an assignment outside all functions. Syntax trees are
    compared, so that formatting, comments and the rest of the file may change.
    Raises ValueError if the source does not have a place, or if a place does not contain the correct code.
    """
    scopes = dict(named_scopes(ast.parse(source)))
    old, new = (ast.parse(code).body[0] for code in (correct, faulty))
    if isinstance(old, ast.Expr) and isinstance(new, ast.Expr):
        wanted, text = ast.dump(old.value), f"({faulty})"  # The parentheses let it fit into any expression.
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
    """Every function, class and module-level assignment, with its full name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from named_scopes(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign) and not prefix:
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))

"""The columns of labelled texts: which of a table's columns are the text, the label and the index.

The columns of a task of GLUE are those of its official files. In the user's own data, columns are named by flags or
have usual names. Nothing is guessed, because a model that reads a number or a comment in place of the text looks good
and is of no use.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bert_training.tasks.classification.glue import OWN_LABELS, OWN_TEXTS, Task
from bert_training.tasks.classification.labels import NUMBER
from tokenization.errors import UserError

IDS = ("index", "id", "idx")
INDEX_COLUMNS = ("", *IDS, "guid", "uid", "row", "__index_level_0__")
NAME_THE_TEXT = "name the text with --text_column (two names for a pair)"


@dataclass(frozen=True)
class Columns:
    """The names of the columns to read; the name of the label or the index is None if the file does not have it.

    Attributes:
        weight, group: those that flags name, in training data.
        hot: the columns of 0 and 1, one for each label; then there is no other label.
    """

    texts: tuple[str, ...]
    label: str | None
    index: str | None
    categories: tuple[str, ...] = ()
    weight: str | None = None
    group: str | None = None
    hot: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """All names, without None."""
        others = (self.label, *self.hot, self.index, self.weight, self.group, *self.categories)
        return list(dict.fromkeys([*self.texts, *(name for name in others if name is not None)]))


def find_columns(task: Task, header: list[str], labelled: bool, training: bool = False) -> Columns:
    """The task's columns in a header.

    Args:
        labelled: whether there must be a label.
        training: whether there must be the columns of weights and groups, if flags name them.

    Raises:
        ValueError: the header lacks a column, or several columns may be the one.
    """
    named, everything = task.named, header
    hot = _hot(task, header, labelled)
    others = {*named.columns, *hot}
    header = [name for name in everything if name not in others]
    label = None if hot else _label(task, header, labelled)
    header = [name for name in everything if name not in others - _group_of_texts(task)]
    texts = _texts(task, header, label)
    if texts is None:
        raise _no_text(task, header, label)
    categories = tuple(name for name in task.categories if name in header)
    index = _index(task, everything, (*texts, label), labelled)
    if training:
        for flag, name in (("weight_column", named.weight), ("group_column", named.group)):
            if name is not None and name not in everything:
                raise _no_such_column(flag, name, everything)
    weight, group = (named.weight, named.group) if training else (None, None)
    return Columns(texts, label, index, categories, weight, group, hot)


def _group_of_texts(task: Task) -> set[str | None]:
    """The column of the group if it may be a text as well: the rows of one text may belong together."""
    own_texts = {name for names in task.text_columns for name in names}
    return ({task.named.group} & own_texts) - {task.named.id}


def _hot(task: Task, header: list[str], labelled: bool) -> tuple[str, ...]:
    """The columns of 0 and 1, one for each label; () if there are none. ValueError if only some are there."""
    wanted = task.hot_columns or task.trained_hot
    missing = [name for name in wanted if name not in header]
    if missing and (len(missing) < len(wanted) or (labelled and task.hot_columns)):
        whose = "--label_column names" if task.hot_columns else "the model was trained on"
        raise UserError(
            f"expected the columns of labels that {whose}, {_listed([*wanted])}, got {_listed(header)}; "
            f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing"
        )
    return () if missing else wanted


def _index(task: Task, header: list[str], taken: tuple[str | None, ...], labelled: bool) -> str | None:
    """The column that identifies the rows: the one of the flag, of the model's training, or of a usual name.

    Raises:
        ValueError: of data to predict, the column of the flag is missing, or several have a usual name.
    """
    named = task.named
    if named.id is not None:
        if named.id not in header and not labelled:
            raise _no_such_column("id_column", named.id, header)
        return named.id if named.id in header else None
    if named.trained_id in header and named.trained_id not in taken:
        return named.trained_id
    found = [name for name in header if name.lower() in IDS and name not in taken and name not in named.columns]
    if len(found) > 1 and not labelled and not task.files:
        raise UserError(f"{len(found)} candidates for the id of a row: {_listed(found)}; name it with --id_column")
    return found[0] if found else None


def _no_such_column(flag: str, name: str, header: list[str]) -> UserError:
    return UserError(f"--{flag} {name}: there is no such column, only {_listed(header)}; correct the name")


def _label(task: Task, header: list[str], labelled: bool) -> str | None:
    found = [name for name in task.label_columns if name in header]
    if not labelled:
        named = len(task.label_columns) == 1  # by a flag, or by the training data of this command
        if not named and (task.trained_label or task.hot_columns or task.trained_hot):
            found = [name for name in found if name in ("label", task.trained_label)]  # "score" may be anything here
        return found[0] if found else None
    certain = ("label", task.trained_label)
    several = len(found) > 1 and not task.files and found[0] in OWN_LABELS and found[0] not in certain
    if several:
        raise UserError(f"expected one column with labels, got {_listed(found)}; name one with --label_column")
    if not found:
        remedy = "rename the label column" if task.files else "name the label column with --label_column"
        if not task.files and len(header) > 3:
            remedy += ", or all of them if each label has a column of 0 and 1"
        raise UserError(
            f"expected a column {_or(task.label_columns)}, got {_listed(header)}; {_remedy(task, header, remedy)}"
        )
    return found[0]


def _texts(task: Task, header: list[str], label: str | None) -> tuple[str, ...] | None:
    """The names of the text columns by the names that the task knows; None if they are not among them.

    Raises:
        ValueError: several columns of the user's own data have usual names.
    """
    there = [names for names in task.text_columns if set(names) <= set(header)]
    first = task.text_columns[0]  # of the flag or of the model's training; others by their usual names only if certain
    if task.files or (task.text_columns is not OWN_TEXTS and first in there):
        return there[0] if there else None
    # "question" and "sentence" are a pair, and not a single "sentence" as well.
    there = [names for names in there if label not in names and not any(set(names) < set(other) for other in there)]
    if len(there) == 1:
        return there[0]
    if task.trained_on and set(task.trained_on) <= set(header) - {label}:
        return task.trained_on
    if there:
        raise _several(" and ".join(map(repr, names)) for names in there)
    return None


def _no_text(task: Task, header: list[str], label: str | None) -> UserError:
    """What to do about a header without a column of texts."""
    neither = (label, task.named.group)
    left = [name for name in header if name not in neither and name.lower() not in INDEX_COLUMNS]
    own = task.text_columns is OWN_TEXTS
    if own and left and not _looks_like_an_example(header):
        return _several(map(repr, left))
    remedy = "is this the right file for the task?" if task.files else NAME_THE_TEXT
    expected = _or(" and ".join(names) for names in task.text_columns)
    if not own and task.text_columns[0] == task.trained_on:
        expected = f"{_or([' and '.join(task.trained_on)])} as in the model's training, or usual names"
    return UserError(f"expected the columns {expected}, got {_listed(header)}; {_remedy(task, header, remedy)}")


def _several(candidates: Iterable[str]) -> UserError:
    listed = list(candidates)
    return UserError(
        f"{len(listed)} candidate{'s' * (len(listed) > 1)} for the text: {', '.join(listed)}; {NAME_THE_TEXT}; only "
        "usual names such as 'text', or 'premise' and 'hypothesis', need no flag"
    )


def _remedy(task: Task, header: list[str], otherwise: str) -> str:
    """What to do about a header that lacks a column."""
    wanted = {name for names in task.text_columns for name in names} | set(task.label_columns)
    if padded := [name for name in header if name.strip() != name and name.strip() in wanted]:
        return f"remove the spaces around {padded[0]!r}"
    if _looks_like_an_example(header):
        example = {1: "text", 2: "text,label"}.get(len(header), "id,text,label")
        return f"if the first line is an example, add a header line such as {example} above it; otherwise {otherwise}"
    return otherwise


def _looks_like_an_example(header: list[str]) -> bool:
    """Whether a header is probably the first example of a file without one."""
    return any(NUMBER.fullmatch(cell) or len(cell.split()) > 3 or len(cell) > 60 for cell in header)


def _or(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _listed(header: list[str]) -> str:
    return ", ".join(repr(name if len(name) < 40 else name[:40] + "...") for name in header)


def text_problem(text: object) -> str | None:
    """What is wrong with a cell of a text column; None if it is a text.

    A text of spaces and control characters, which the tokenizer drops, is empty as well.
    """
    if not isinstance(text, str):
        return f"got {text!r:.60}"
    if not any(character.isprintable() and not character.isspace() for character in text):
        return f"got the empty {text!r:.60}" if text else "got an empty field"
    return None

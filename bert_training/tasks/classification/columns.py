"""The columns of labelled texts: those of a task of GLUE, and those of the user's own tables.

Of the user's own data they are those that flags name, or that the model was trained on, or ``text`` (``sentence1`` and
``sentence2`` for pairs), ``label`` (or ``labels``) and ``id``. Nothing else is guessed, because a model that reads a
number or a comment in place of the text looks good and is of no use.

Nothing here imports torch, so that a column that is missing is said before torch is loaded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bert_training.inputs.flags.fine_tuning import GlueArguments, names_in
from bert_training.inputs.flags.parsing import refuse
from bert_training.inputs.rows import Column, check_files, chosen, header_of, own_files
from bert_training.tasks.classification.glue import BUILTIN_TASKS, GLUE_TASKS, PAIR, Task
from bert_training.tasks.classification.trained_for import TrainedFor
from tokenization.errors import UserError

NAME_THE_TEXT = "name the text with --text_column (two names for a pair)"
TEXTS = ("text1", "text2")  # the roles of the columns
HOT = "label: "  # begins the role of the column of one label of several


@dataclass(frozen=True)
class Columns:
    """The names of the columns that were read; the name of the label or the index is None if there is none.

    Attributes:
        weight, group: those that flags name, in training data.
        hot: the columns of 0 and 1, one for each label; then there is no other label.
    """

    texts: tuple[str, ...]
    label: str | None
    index: str | None
    weight: str | None = None
    group: str | None = None
    hot: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """All names, without None."""
        others = (self.label, *self.hot, self.index, self.weight, self.group)
        return list(dict.fromkeys([*self.texts, *(name for name in others if name is not None)]))


def task_columns(task: Task, labelled: bool) -> list[Column]:
    """The columns of a task of the table."""
    texts = [Column(role, names) for role, names in zip(TEXTS, zip(*task.text_columns))]
    index = Column("id", ("index", "id", "idx"), needed=False)
    return [*texts, Column("label", task.label_columns, needed=labelled), index]


def own_columns(args: GlueArguments, stored: TrainedFor, labelled: bool, training: bool) -> list[Column]:
    """The columns of the user's own data: those of the flags, those that the model was trained on, or the usual names.

    Args:
        stored: what the model was trained on; nothing where there is training data.
        labelled: whether there must be labels.
        training: whether flags name columns of weights and groups.
    """
    names = list(args.text_column or stored.text_columns) or ["text", "sentence2"]
    texts = [
        Column(role, (name,) if args.text_column else tuple(dict.fromkeys((name, usual))), "--text_column")
        for role, name, usual in zip(TEXTS, names, PAIR if len(names) == 2 else ("text",))
    ]
    if not args.text_column and not stored.text_columns:
        texts = [Column("text", ("text",), needed=False, filled=True)] * (stored.texts != 2)
        texts += [Column(name, (name,), needed=stored.texts == 2, filled=True) for name in PAIR if stored.texts != 1]
    named = names_in(args.label_column)
    hot = named if len(named) > 1 else stored.hot_columns if not named and not args.label_separator else ()
    labels = [Column(HOT + name, (name,), "--label_column", needed=labelled) for name in hot]
    usual = dict.fromkeys((*([stored.label_column] if stored.label_column else []), "label", "labels"))
    if not hot:
        names_of_label, gaps = named or tuple(usual), args.abstains or stored.abstains
        labels = [Column("label", names_of_label, "--label_column", needed=labelled, lists=True, gaps=gaps)]
    stored_id = [stored.id_column] if stored.id_column else []
    others = [
        Column("id", (args.id_column,) if args.id_column else (*stored_id, "id"), "--id_column", needed=False),
        *(
            Column(role, (name,), f"--{role}_column")
            for role, name in (("weight", args.weight_column), ("group", args.group_column))
            if name and training
        ),
    ]
    return [*texts, *labels, *others]


def name_of_task(args: GlueArguments) -> str | None:
    """The task of the table that the flags ask for; None for the user's own data."""
    given = [flag for flag, there in (("--data_dir", args.data_dir), ("--dataset_name", args.dataset_name),
                                      ("--train_file, --validation_file or --test_file", own_files(args)))
             if there]  # fmt: skip
    name, tasks = args.task_name or (None if given else "builtin_pair"), GLUE_TASKS | BUILTIN_TASKS
    problems = {
        f"give only one of {' and '.join(given)}": len(given) > 1,
        f"--task_name: expected one of {', '.join(tasks)}; got {name!r}": name and name not in tasks,
        f"--task_name {name} takes no data; leave out {' and '.join(given)}": name in BUILTIN_TASKS and given,
        "--data_dir needs --task_name: official files differ from task to task": args.data_dir and not name,
    }
    refuse(problems)
    return name


def roles_of_texts(roles: Iterable[str], header: Sequence[str], source: str) -> list[str]:
    """The roles of the columns with texts: of one, or of two for pairs. UserError if it is not certain which."""
    found = [role for role in (*TEXTS, "text", *PAIR) if role in roles]
    if found not in (["text1"], ["text1", "text2"], ["text"], [*PAIR]):
        raise UserError(
            f"{source}: expected a column 'text', or 'sentence1' and 'sentence2' for pairs; got "
            f"{' and '.join(map(repr, found)) or 'neither'} among {', '.join(map(repr, header))[:400]}; {NAME_THE_TEXT}"
        )
    return found


def check_columns(args: GlueArguments) -> None:
    """Refuse tasks and files that are not there, and training data of the user's own whose header lacks a column."""
    name_of_task(args)
    check_files(args)
    if args.train_file and not args.task_name and (header := header_of(args.train_file, args.delimiter or ",")):
        columns = own_columns(args, TrainedFor(), labelled=True, training=True)
        roles_of_texts(chosen(header, columns, args.train_file), header, args.train_file)

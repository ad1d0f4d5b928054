"""Commands about data, runs and models; without a name, `bert-repro` says where to begin, with --help it lists them.

A command is an entry point of the group ``bert_repro.commands`` (pyproject.toml): its name, and the function that is
called with its words. Its module is imported when the command runs. Other packages can add commands in the same way.
"""

import ast
import difflib
import sys
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

OWN = ("bert_training", "modeling_bert_repro", "tokenization")  # a missing module of these is a mistake of ours
BEGINNING = """\
BERT from raw text to a folder that every Hugging Face tool opens. Where to begin (in a checkout: python run_...):

  run_pretraining.py --recipe fast --output_dir runs/first      learn from built-in text, in minutes
  run_glue.py --model_name_or_path runs/first --train_file a.csv --validation_split 0.1 --output_dir runs/own
                                                                learn the column label from the column text
  bert-repro ask --model runs/own --text "Is it raining?"       ask the result
  bert-repro serve runs/own                                     try it in the browser, call it over HTTP

--help explains the flags of each; bert-repro --help lists the commands."""


def source_of(module: str) -> Path | None:
    """The file of a module, found without importing it; None if its package is not there."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin else None


def commands() -> dict[str, EntryPoint]:
    """The commands whose modules are there, by their names."""
    found = entry_points(group="bert_repro.commands")
    return {point.name: point for point in sorted(found, key=lambda point: point.name) if source_of(point.module)}


def overview() -> str:
    """The list of commands, each with the first sentence of its module's docstring."""
    lines = []
    for name, point in commands().items():
        source = source_of(point.module)
        text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) if source else None
        lines.append(f"  {name:14}{' '.join((text or '').split()).partition('. ')[0].rstrip('.')}")
    return "\n".join(["usage: bert-repro COMMAND ... (--help after a command lists its flags)", "", *lines])


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status, see `report_errors`; 2 for an unknown command or a missing package."""
    name, *words = (sys.argv[1:] if argv is None else argv) or [""]
    if not name:
        print(BEGINNING)
        return 0
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    known = commands()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "bert-repro --help lists the commands"
        print(f"bert-repro: error: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    # Imported here because it imports torch, which the list of commands does not need.
    from bert_training.engine.errors import report_errors

    try:
        command = known[name].load()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", *OWN, *sys.stdlib_module_names):
            raise
        extra = "deploy" if known[name].module.startswith("bert_deploy.") else "train"
        needed = f'needs the package {package}, which is not installed; run pip install "modeling-bert-repro[{extra}]"'
        print(f"bert-repro {name}: error: {needed}", file=sys.stderr)
        return 2
    sys.argv[0] = f"bert-repro {name}"  # error messages begin with it
    return report_errors(lambda: command(words))


if __name__ == "__main__":
    sys.exit(main())

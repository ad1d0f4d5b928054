"""Commands about data, runs and models; `bert-repro` without a name lists them."""

import difflib
import importlib
import sys

# name: (module whose `main(argv)` is called, what the command does)
COMMANDS = {
    "builtin_data": ("bert_training.builtin_data.documentation", "write the built-in corpus and its tasks as files"),
    "vocabulary": ("bert_training.tools.vocabulary", "learn a WordPiece vocabulary from files"),
    "corpus": ("bert_training.tools.corpus", "prepare the corpus of a text, alone or as one of many tasks"),
    "plan": (
        "bert_training.tools.budget",
        "say what pre-training fits into the hours at hand, after a few timed steps",
    ),
    "inspect": (
        "bert_training.tools.inspect_run",
        "say why a pre-training loss does not fall, measure the data of a run, or print the instances of a step",
    ),
    "curves": ("bert_training.cards.curves", "draw the training curves of a run"),
    "report": ("bert_training.tools.report", "put finished runs side by side in a table and a picture"),
    "score": ("bert_training.tools.score", "score a file of answers with the official SQuAD metrics"),
    "submission": ("bert_training.tasks.classification.submission", "make or check a zip for the GLUE server"),
    "verify": ("bert_training.tools.verify", "compute again what a finished folder claims, and say what differs"),
    "ask": ("bert_training.tools.ask", "ask a fine-tuned model about a text"),
    "serve": ("bert_training.app.serve", "serve a finished model over HTTP, with a page to try it on; or make a Space"),
    "export": (
        "bert_training.tools.export",
        "write a finished model as ONNX or OpenVINO, also in 8 bits; refuse the result if its score has fallen",
    ),
    "convert": (
        "bert_training.tools.convert",
        "turn a TensorFlow or other old checkpoint into a folder that current transformers opens",
    ),
    "upload": ("bert_training.cards.hub_upload", "upload a finished folder to the Hub"),
}
EXTRAS = {"serve": "train,serve"}
OWN = ("bert_training", "modeling_bert_repro", "tokenization")  # a missing module of these is a mistake of ours


def overview() -> str:
    """The list of commands, with one line for each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: bert-repro COMMAND ... (--help after a command lists its flags)", "", *lines])


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit status, see `report_errors`; 2 for an unknown command or a missing package."""
    name, *words = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help", "help"):
        print(overview())
        return 0
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else "bert-repro lists the commands"
        print(f"bert-repro: error: no command {name!r}; {hint}", file=sys.stderr)
        return 2
    # Imported here because it imports torch, which the list of commands does not need.
    from bert_training.engine.errors import report_errors

    try:
        module = importlib.import_module(COMMANDS[name][0])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", *OWN, *sys.stdlib_module_names):
            raise
        needed = (
            f'needs the package {package}, which is not installed; run pip install ".[{EXTRAS.get(name, "train")}]"'
        )
        print(f"bert-repro {name}: error: {needed}", file=sys.stderr)
        return 2
    sys.argv[0] = f"bert-repro {name}"  # error messages begin with it
    return report_errors(lambda: module.main(words))


if __name__ == "__main__":
    sys.exit(main())

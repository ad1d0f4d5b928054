"""Show a model on a page in the browser, or write that page as a Space for the Hub.

    bert-repro app --model runs/squad
    bert-repro app --model runs/squad --space spaces/squad

The page offers what the model's head can do: masked words, next sentence, classification, question answering, names or
multiple choice; and for every model attention and pieces. It is served on this machine alone and needs no network.
It needs Gradio: pip install ".[train,app]"
"""

import importlib.util

import transformers

from bert_training.app.folder import open_folder
from bert_training.app.server import free_port
from bert_training.app.space import write_space
from bert_training.inputs.flags.app import AppArguments
from bert_training.inputs.flags.parsing import parse_arguments
from tokenization.errors import UserError


def main(argv: list[str] | None = None) -> None:
    """Serve the page until Ctrl-C, or write the Space.

    Raises:
        ValueError: the folder cannot be shown, the port is taken, the Space's folder exists, or Gradio is missing.
    """
    args = parse_arguments(AppArguments, argv)
    if importlib.util.find_spec("gradio") is None:
        raise UserError('the page needs Gradio, which is not installed; run pip install ".[train,app]"')
    transformers.utils.logging.disable_progress_bar()
    if args.space is not None:
        write_space(open_folder(args.model), args.space)
        return
    port = free_port(args.port)
    opened = open_folder(args.model)

    from bert_training.app import page  # imported late, because Gradio takes seconds

    url, thread = page.launch(page.build(opened), port)
    print(f"{opened.name}: {url} (Ctrl-C ends it; keep the address to yourself)", flush=True)
    thread.join()

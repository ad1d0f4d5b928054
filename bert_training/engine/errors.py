"""How a script ends: its exit status, and which errors are one line for the user.

A mistake of the user's is a ``UserError``, with a sentence that says what was expected, what came and what to do.
Libraries and mistakes of ours cause other ValueErrors, such as that of ``int("x")``; their messages would send the user
to look for something wrong in the input, so they keep their traceback.
"""

import atexit
import contextlib
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable

import torch

from bert_training.files.atomic import DiskError
from bert_training.inputs.flags.scripts import SCRIPTS
from tokenization.errors import UserError

AUTO = "--resume_from_checkpoint auto"
UNEXPECTED = (
    "This is not one of the messages about flags and files, but an error that the program did not expect.\n"
    "Please report it as an issue, with the command and all lines above."
)

MORE_MEMORY = "free some memory, or take a machine with more, and give the same command again"
LESS_MEMORY = (  # for the scripts that train
    "earlier checkpoints are complete, and --resume_from_checkpoint auto continues from the newest one. Free some "
    "memory, or give smaller batches: a smaller --per_device_train_batch_size with more "
    "--gradient_accumulation_steps gives the same training"
)


def report_errors(main: Callable[[], None], without_memory: str = MORE_MEMORY) -> int:
    """Run a script's ``main`` and return its exit status; if it is not 0, one line on stderr says why.

    The status is 2 for a mistake of the user's (``is_for_the_user``), 1 if the training diverged (FloatingPointError)
    or there is no more memory, and 130 for Ctrl-C outside of the training steps; during these, the process exits with
    ``files/processes.py: STOPPED``. With ``BERT_REPRO_TRACEBACK=1`` the traceback is printed as well.

    Characters that the encoding of the terminal lacks are printed as escapes.

    Args:
        without_memory: what to do if there is no more memory; for the scripts that train it is LESS_MEMORY.

    Raises:
        Exception: any other error, so that Python prints its traceback and exits with status 1. To a ValueError, which
            could be taken for a message about the input, a note is added that says it is none.
    """
    atexit.unregister(end_without_searching)  # once is enough, however many commands a process runs
    atexit.register(end_without_searching)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return _status(main, without_memory)


def end_without_searching() -> None:
    """Collect garbage for the last time.

    When Python ends, it searches all objects of all modules for garbage, several times. With torch and transformers,
    that takes two thirds of a second, a tenth of the time of a short command.
    """
    gc.collect()
    gc.freeze()


def _status(main: Callable[[], None], without_memory: str) -> int:
    program = os.path.basename(sys.argv[0])
    resumes = f"{program.removesuffix('.py')}.py" in SCRIPTS
    try:
        main()
        sys.stdout.flush()  # here and not when Python ends, so that an error is one line
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    except (ValueError, OSError, FloatingPointError, KeyboardInterrupt, MemoryError, RuntimeError) as error:
        no_memory = is_out_of_memory(error)
        unexpected = isinstance(error, ValueError) and not is_for_the_user(error)
        if unexpected:
            error.add_note(UNEXPECTED)
        if unexpected or (isinstance(error, RuntimeError) and not no_memory):
            raise
        if os.environ.get("BERT_REPRO_TRACEBACK") == "1":
            traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            text, status = "interrupted", 130
        elif no_memory:
            remedy = LESS_MEMORY if resumes else without_memory
            text, status = f"error: out of memory ({_first_line(error)}); {remedy}", 1
        else:
            text, status = f"error: {error}", 1 if isinstance(error, FloatingPointError) else 2
            printing = isinstance(error, BrokenPipeError)
            if printing:
                _print_no_more()
                if not resumes:  # `bert-repro inspect ... | head` has printed all that was wanted
                    return 0
            if (isinstance(error, DiskError) or printing) and resumes and AUTO not in " ".join(sys.argv):
                text += f"; add {AUTO} to go on from the newest checkpoint"
        print(f"{program}: {text}", file=sys.stderr)
        return status
    return 0


def _print_no_more() -> None:
    """Keep Python from writing the rest to standard output when it ends, which would fail again."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a file, as in the tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that this machine or its GPU has no more memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    signs = ("DefaultCPUAllocator", "bad_alloc", "Cannot allocate memory")
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error) for sign in signs)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def is_for_the_user(error: Exception) -> bool:
    """Whether the error is a message about the user's flags, files or folders, or about the disk or the network."""
    return isinstance(error, UserError | OSError)

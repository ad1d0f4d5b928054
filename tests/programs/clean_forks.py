"""Python code in forks of a process that has imported transformers, and nothing of this project.

tests/helpers/clean_process.py starts this program once. It reads one JSON object a line,

    {"code": "print(sys.argv[1])", "arguments": ["a"], "folder": "/...", "home": "/.../home"}

runs the code in a fork, in the folder and with these arguments, and writes one line with the exit status and what was
printed. Only the imports are shared: what the code changes in its process ends with it.
"""

import json
import os
import signal
import sys
import tempfile

PROJECT = ("modeling_bert_repro", "tokenization", "bert_training", "bert_tools", "bert_deploy")
SECONDS = 900  # after which a fork that hangs is ended


def run(code: str, arguments: list[str], folder: str, home: str) -> None:
    """Run the code in this process, which is a fork."""
    from transformers import dynamic_module_utils

    signal.alarm(SECONDS)
    os.chdir(folder)
    sys.argv = ["-c", *arguments]
    dynamic_module_utils.HF_MODULES_CACHE = os.path.join(home, "modules")
    exec(compile(code, "<the code of a test>", "exec"), {"__name__": "__main__", "sys": sys})


def in_a_fork(request: dict) -> dict:
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            status = 1
            try:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                run(**request)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        file.seek(0)
        return {"status": status, "printed": file.read().decode(errors="replace")}


if __name__ == "__main__":
    for name in PROJECT:
        sys.modules[name] = None  # An import of it is an error, as if it were not installed.
    from transformers import AutoModel, AutoTokenizer, pipeline  # noqa: F401  # the forks need them

    for line in sys.stdin:
        print(json.dumps(in_a_fork(json.loads(line))), flush=True)

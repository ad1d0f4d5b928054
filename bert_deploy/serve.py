"""Serve a finished model over HTTP, with a page to try it on.

    bert-repro serve runs/own
    curl -s http://127.0.0.1:8000/predict -H 'content-type: application/json' -d '{"text": "Please close the window."}'

The address that is printed is that of the page. POST /predict says what the model's head can say: classes, names,
answers, masked words, next sentences, endings; POST /embed gives vectors of texts. The answers are those of
`bert-repro ask`. /docs describes the requests, /health and /metrics are for those who watch over the service. SIGTERM
lets it finish what it has. With --space, a Space for the Hub is written instead.

It is served on this machine alone unless --host is given; there is no password. It needs FastAPI and uvicorn:
pip install ".[deploy]"
"""

import argparse
import signal
import sys
from dataclasses import replace

import torch
import transformers
import uvicorn
from starlette.middleware.trustedhost import TrustedHostMiddleware

from bert_deploy.exported import BACKENDS, TORCH
from bert_deploy.folder import open_folder
from bert_deploy.service import make_service
from bert_deploy.space import write_space
from bert_training.inputs.flags.parsing import command_parser
from bert_training.networks.number_types import DTYPES, FLOAT32, warning_of

LOCAL = {"127.0.0.1": "127.0.0.1", "localhost": "localhost", "::1": "[::1]"}  # addresses, as requests name them
CONNECTIONS = 256
STOP_SECONDS = 30  # for what has begun when the service is stopped


def main(argv: list[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, or write the Space. Raises ValueError for a folder that cannot be served."""
    args = _arguments(argv)
    transformers.utils.logging.disable_progress_bar()
    threads = torch.get_num_threads() if args.batch_size > 1 else 1
    if threads > 1:  # that compute side by side, with one core each: two cores together do less than twice as much
        torch.set_num_threads(1)
    opened = open_folder(args.folder, args.backend, args.dtype)
    if args.space:
        write_space(opened, args.space)
        return
    for line in warning_of(args.dtype):
        print(line, file=sys.stderr)
    opened = replace(opened, refuses_long_texts=args.refuse_long_texts)
    app = make_service(opened, args.batch_size, args.max_queue, threads)
    if args.host in LOCAL:  # against web pages whose own name points to this machine
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL.values()])
    config = uvicorn.Config(
        app,
        args.host,
        args.port,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    with config.bind_socket() as listener:
        listener.listen(config.backlog)  # who reads the address may connect at once
        host = f"[{args.host}]" if ":" in args.host else args.host
        print(f"{opened.name}: http://{host}:{listener.getsockname()[1]}/ (SIGTERM or Ctrl-C ends it)", flush=True)
        # uvicorn raises the signal again when all is answered.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(config).run([listener])


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_parser("serve", __doc__)
    parser.add_argument("folder", help="The folder of a model, as a script of this project or transformers saved it.")
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen on; the default is this machine alone.")
    parser.add_argument("--port", type=int, default=8000, help="Port; 0 takes one that is free.")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=TORCH,
        help="What computes; onnx takes a folder of bert-repro export, and its file in 8 bits if any.",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=FLOAT32,
        help="Numbers of torch; bfloat16 is faster where processors have it, and changes the third decimal place.",
    )
    parser.add_argument(
        "--batch_size",
        type=int,
        choices=(1, 2, 4, 8, 16, 32, 64),
        default=1,
        help="Texts of simultaneous requests that share a forward pass. 1 gives every text the digits that it has "
        "elsewhere; more is faster, and changes probabilities by less than 0.00001.",
    )
    parser.add_argument(
        "--max_queue",
        type=int,
        choices=(64, 256, 1024, 4096),
        default=256,
        help="Texts that may wait; a request beyond them gets status 503.",
    )
    parser.add_argument(
        "--refuse_long_texts",
        action="store_true",
        help="Refuse a text that is not read whole; without this, tokens_not_read says how many tokens are left out.",
    )
    parser.add_argument("--space", help="Write the model as a Space for the Hub into this new folder instead.")
    return parser.parse_args(argv)

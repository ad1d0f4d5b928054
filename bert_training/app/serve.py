"""Serve a finished model over HTTP.

    bert-repro serve runs/own
    curl -s http://127.0.0.1:8000/predict -H 'content-type: application/json' -d '{"text": "Please close the window."}'

POST /predict says what the model's head can say: classes, names, answers, masked words, next sentences, endings; POST
/embed gives vectors of texts. The answers are those of `bert-repro ask` and `bert-repro app`. /docs describes the
requests, /health and /metrics are for those who watch over the service. SIGTERM lets it finish what it has.

It is served on this machine alone unless --host is given; there is no password. It needs FastAPI and uvicorn:
pip install ".[train,serve]"
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import transformers

from bert_training.app.exported import BACKENDS, TORCH
from bert_training.app.folder import OpenedModel, open_folder
from bert_training.inputs.flags.parsing import command_parser
from bert_training.networks.number_types import DTYPES, FLOAT32, warning_of
from tokenization.errors import UserError

ENDS = (signal.SIGTERM, signal.SIGINT)
LOCAL = ("127.0.0.1", "localhost", "::1")
BACKLOG = 256


def main(argv: list[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. Raises ValueError for a mistake in the flags, the folder or the port."""
    args = _arguments(argv)
    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise UserError('the service needs FastAPI and uvicorn; run pip install ".[train,serve]"')
    transformers.utils.logging.disable_progress_bar()
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # of the workers, which import the library anew
    with on_signals(leave):
        _open_and_serve(args)


def _open_and_serve(args: argparse.Namespace) -> None:
    from bert_training.app.service_requests import reads_single_rows

    local = _is_local(args.host)
    opened = open_folder(args.folder, args.backend, args.dtype)
    with _listening(args.host, args.port) as listener:
        if not local:
            print(
                f"warning: --host {args.host}: who reaches this address may use the model; there is no password and "
                "no encryption. Put a proxy that has both before it",
                file=sys.stderr,
            )
        host = f"[{args.host}]" if ":" in args.host else args.host
        print(f"{opened.name}: http://{host}:{listener.getsockname()[1]}/docs (SIGTERM or Ctrl-C ends it)", flush=True)
        for line in _notes(args, opened):
            print(line, file=sys.stderr)
        side_by_side = reads_single_rows(opened)
        del opened  # every worker opens its own
        _serve(args, listener, (*LOCAL, args.host) if local else None, side_by_side)


@contextlib.contextmanager
def on_signals(handler: Callable[..., None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C call this for a while."""
    earlier = {number: signal.signal(number, handler) for number in ENDS}
    try:
        yield
    finally:
        for number, before in earlier.items():
            signal.signal(number, before)


def leave(*_: Any) -> None:
    """What a signal does before anything is served: there is nothing to finish."""
    raise SystemExit(0)


def _notes(args: argparse.Namespace, opened: OpenedModel) -> Iterator[str]:
    if args.backend != TORCH:
        yield f"it computes with {getattr(opened.model, 'file', '')}"
    yield from warning_of(args.dtype)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_parser("serve", __doc__)
    parser.add_argument("folder", help="The folder of a model, as a script of this project or transformers saved it.")
    parser.add_argument("--host", default="127.0.0.1", help="Address to listen on; the default is this machine alone.")
    parser.add_argument("--port", type=int, default=8000, help="Port; 0 takes one that is free.")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default=TORCH,
        help="What computes; onnx and openvino take a folder that bert-repro export wrote, and its file in 8 bits if "
        "it has one.",
    )
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=FLOAT32,
        help="Numbers of torch; bfloat16 is faster on processors that have it in hardware, and changes probabilities "
        "in the third decimal place.",
    )
    parser.add_argument("--workers", type=int, default=1, help="Processes, each with the model in its memory.")
    parser.add_argument(
        "--batch_size",
        type=int,
        default=1,
        help="Texts of simultaneous requests that share a forward pass. 1 gives every text the digits that it has "
        "elsewhere; more is faster, and changes probabilities by less than 0.00001.",
    )
    parser.add_argument(
        "--max_wait_ms",
        type=float,
        default=5.0,
        help="With --batch_size above 1, the longest that questions, tagged texts and texts in windows wait for "
        "others.",
    )
    parser.add_argument(
        "--max_queue", type=int, default=256, help="Texts that may wait; a request beyond them gets status 503."
    )
    parser.add_argument(
        "--refuse_long_texts",
        action="store_true",
        help="Refuse, with status 422, a text that is not read whole. Without this it is read as in the training, and "
        "tokens_not_read in the answer says how many tokens that leaves out.",
    )
    args = parser.parse_args(argv)
    ranges = {"port": (0, 65535), "workers": (1, 64), "batch_size": (1, 64), "max_wait_ms": (0, 1000)}
    for name, (least, most) in (ranges | {"max_queue": (1, 100_000)}).items():
        if not least <= getattr(args, name) <= most:
            raise UserError(f"--{name} {getattr(args, name)}: expected a number from {least} to {most:,}")
    return args


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    """A socket that accepts connections. Raises ValueError if there cannot be one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UserError(
            f"--host {host} --port {port}: cannot be opened ({error.strerror or error}); another program may use it. "
            "Give another port, or 0 for one that is free"
        ) from error


def _serve(
    args: argparse.Namespace, listener: socket.socket, hosts: tuple[str, ...] | None, side_by_side: bool
) -> None:
    import torch
    import uvicorn

    from bert_training.app.service import Settings, server_config
    from bert_training.app.service_workers import Workers, serve_until_signal

    threads = max(1, torch.get_num_threads() // args.workers)
    settings = Settings(
        args.folder, hosts, args.batch_size, args.max_wait_ms / 1000, args.max_queue, args.workers, threads
    )
    settings = dataclasses.replace(settings, backend=args.backend, dtype=args.dtype, side_by_side=side_by_side)
    settings = dataclasses.replace(settings, refuse_long_texts=args.refuse_long_texts)
    config = server_config(settings, factory=True, workers=args.workers)
    if args.workers > 1:
        Workers(config, [listener]).run()
        return
    serve_until_signal(uvicorn.Server(config), [listener])

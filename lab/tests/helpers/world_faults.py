"""More faults that lab/tests/programs/fault_runs.py prepares in a run: files that change, odd numbers."""

import importlib
import os
import shutil
import signal
from pathlib import Path
from typing import Any


def named(place: str) -> tuple[object, str]:
    """The object and the attribute that "package.module:Class.attribute" names."""
    module, _, path = place.partition(":")
    owner: object = importlib.import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    return owner, name


def at_call(place: str, number: int, action: str, arguments: dict[str, Any] | None = None) -> None:
    """Do something before the call with this number, counted from 1, of a function.

    Args:
        place: the function, as "package.module:Class.function".
        action: another function, which is called with the arguments.
    """
    owner, name = named(place)
    called, calls = getattr(owner, name), 0

    def counted(*values, **options):
        nonlocal calls
        calls += 1
        if calls == number:
            getattr(*named(action))(**(arguments or {}))
        return called(*values, **options)

    setattr(owner, name, counted)


def kill_this_process() -> None:
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def change_file(path: str, how: str, other: str = "") -> None:
    """Change a file, or a folder, as other people's programs do.

    Args:
        how: "appended", "truncated" and "flipped" write into the file; "replaced" puts the content of ``other`` in its
            place; "deleted"; "touched" and "written again" leave the content as it is.
    """
    target = Path(path)
    if how == "deleted":
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    elif how == "replaced" and target.is_dir():
        target.rename(f"{path}.old")
        shutil.copytree(other, target)
    elif how == "replaced":
        Path(f"{path}.new").write_bytes(Path(other).read_bytes())
        os.replace(f"{path}.new", path)
    elif how == "written again":
        target.write_bytes(target.read_bytes())
    elif how == "touched":
        os.utime(target, (1, 1))
    else:
        with open(target, "rb+") as file:
            size = target.stat().st_size
            file.seek(size if how == "appended" else size // 2)
            {"appended": lambda: file.write(b"\nthe end .\n"), "flipped": lambda: file.write(b"\x01")}.get(
                how, file.truncate
            )()


def is_here(rank: int | None) -> bool:
    """Whether this process has the given rank; True for None."""
    return rank is None or int(os.environ.get("RANK", "0")) == rank


def poison_gradients(steps: list[int], value: float, rank: int | None = None) -> None:
    """Make one number of a gradient NaN or infinite in the steps of this start, before the processes exchange them."""
    from bert_training.engine import loop

    original, calls = loop._forward_backward, 0

    def poisoned(run, model, micro_batches, counts):
        nonlocal calls
        calls += 1
        if calls not in steps or not is_here(rank):
            return original(run, model, micro_batches, counts)
        parameter = next(parameter for parameter in model.parameters() if parameter.requires_grad)

        def spoil(gradient):
            gradient = gradient.clone()
            gradient.view(-1)[0] = value
            return gradient

        handle = parameter.register_hook(spoil)
        try:
            return original(run, model, micro_batches, counts)
        finally:
            handle.remove()

    loop._forward_backward = poisoned


def poison_evaluation(network: str, field: str, rows: list[int], call: int = 1) -> None:
    """Make outputs of a network NaN in its forward pass with this number among those without training."""
    import modeling_bert_repro

    owner = getattr(modeling_bert_repro, network)
    original, calls = owner.forward, 0

    def poisoned(self, *values, **options):
        nonlocal calls
        outputs = original(self, *values, **options)
        if not self.training:
            calls += 1
            if calls == call:
                outputs[field].data[rows] = float("nan")
        return outputs

    owner.forward = poisoned


def keep_weights(path: str) -> None:
    """Write the weights that the network has before every step, the last time before one that is not finite."""
    from safetensors.torch import save_file

    from bert_training.engine import loop

    original = loop._forward_backward

    def kept(run, model, *rest):
        weights = run.accelerator.unwrap_model(model).state_dict()
        if run.is_main:
            save_file({name: tensor.clone() for name, tensor in weights.items()}, path)
        return original(run, model, *rest)

    loop._forward_backward = kept

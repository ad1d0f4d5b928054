"""Rules that every script of fine-tuning keeps, checked in each script's own tests.

``start(folder, *more)`` runs the script in this process, with its usual flags and some more.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bert_training.tasks import fine_tuning
from tests.helpers.records import events, read


def fast_paths_are_on(start: Callable, folder: Path, taken: set[str]) -> None:
    """``taken`` is the fixture ``fast_paths``."""
    start(folder / "on", "--max_steps=1")
    assert taken == {"unpadded", "dropout"}
    assert not {"unpad_inputs", "fast_dropout"} & set(read(folder / "on", "config.json"))


@contextmanager
def stopped_after_saving(step: int) -> Iterator[None]:
    """The run that begins here is stopped as soon as it has saved the checkpoint of this step."""
    save = fine_tuning.save_checkpoint

    def save_then_stop(run, saved, state):
        save(run, saved, state)
        if saved == step:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fine_tuning, "save_checkpoint", save_then_stop)
        yield


def resumed_equals_uninterrupted(start: Callable, folder: Path, names: Iterable[str]) -> None:
    """A run that ends right after its first checkpoint and is resumed writes these files with the same bytes."""
    whole, broken, saving = folder / "whole", folder / "broken", ("--save_steps=2", "--max_steps=5")
    start(whole, *saving)
    with stopped_after_saving(step=2):
        start(broken, *saving)
    assert not (broken / "model.safetensors").exists()
    start(broken, *saving, "--resume_from_checkpoint=auto")
    for name in ("model.safetensors", "metrics.jsonl", *names):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def control_and_accumulation_have_the_same_losses(start: Callable, folder: Path, rel: float) -> list[float]:
    """Of 8 rows at once, with transformers' network, and of 2 x 4 rows; returns the losses."""
    losses = []
    for number, more in enumerate(([], ["--model_impl=transformers"], ["--gradient_accumulation_steps=2"])):
        rows = 4 if number == 2 else 8
        start(folder / str(number), "--learning_rate=1e-3", f"--per_device_train_batch_size={rows}", *more)
        losses.append([event["loss"] for event in events(folder / str(number), "train")])
    assert losses[1] == pytest.approx(losses[0], rel=rel)
    assert losses[2] == pytest.approx(losses[0], rel=rel)
    return losses[0]


def code_of_the_card_runs(finished: Path, monkeypatch) -> None:
    """From the folder above: the card names its folder."""
    monkeypatch.chdir(finished.parent)
    card = (finished / "README.md").read_text(encoding="utf-8")
    exec(compile(card.split("```python\n")[1].split("```")[0], "model card", "exec"), {})

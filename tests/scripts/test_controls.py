"""--lr_scheduler_type and --class_weights in the scripts; tests/tasks and tests/engine have what each computes."""

import json
import math
import shutil

import pytest

from tests.helpers.glue_runs import train
from tests.helpers.records import events, read
from tests.helpers.same_runs import check_same
from tests.helpers.script_checks import stopped_after_saving

CONTROLS = ("--lr_scheduler_type=cosine", "--learning_rate=1e-3")

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_all_at_once_and_resumed_with_the_same_bits(tmp_path, pretrained, glue_files):
    """The network has dropout."""
    model = shutil.copytree(pretrained, tmp_path / "model")
    config = read(model, "config.json") | {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    given = ("--eval_steps=2", "--max_steps=6", "--save_steps=2", "--save_total_limit=0")
    file = tmp_path / "weights.json"
    file.write_text('{"acceptable": 0.5, "unacceptable": 2}')
    given += (*CONTROLS, f"--class_weights={file}", "--warmup_steps=0")
    whole, broken = tmp_path / "whole" / "run", tmp_path / "broken" / "run"
    train(whole, model, glue_files, "cola", *given)

    logged = [event["learning_rate"] for event in events(whole, "train")]
    assert logged == pytest.approx([1e-3 * (1 + math.cos(math.pi * step / 6)) / 2 for step in range(6)])

    card = (whole / "README.md").read_text(encoding="utf-8")
    assert "in the training loss: unacceptable 2, acceptable 0.5." in card

    with stopped_after_saving(step=4):
        train(broken, model, glue_files, "cola", *given)
    again = (*given, "--resume_from_checkpoint=auto")
    file.write_text('{"acceptable": 0.5, "unacceptable": 3}')
    with pytest.raises(ValueError, match="belongs to a run on other data"):
        train(broken, model, glue_files, "cola", *again)
    file.write_text('{"acceptable": 0.5, "unacceptable": 2}')
    train(broken, model, glue_files, "cola", *again)
    check_same(whole, broken)

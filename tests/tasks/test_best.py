"""The best weights are kept, and interrupted runs do the same."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from bert_training.files.atomic import damage
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks.classification import sources
from bert_training.tasks.fine_tuning import Best
from bert_training.tasks.task_data import metric_of
from tests.helpers.glue_runs import train
from tests.helpers.records import events

KEEP = ("--load_best_model_at_end", "--eval_steps=2", "--learning_rate=3e-3")

pytestmark = pytest.mark.usefixtures("no_pictures")


def best_of(make_run, **flags) -> Best:
    run = make_run()
    run.args.load_best_model_at_end = True
    run.output_dir.mkdir(exist_ok=True)
    return Best(run, flags.pop("metric", "eval_accuracy"), [])


def resumed(run, *evaluations: tuple[int, float]) -> Best:
    """What a run has that resumes from a checkpoint with these steps and scores."""
    best = Best(run, "eval_accuracy", [(step, {"eval_accuracy": value}) for step, value in evaluations])
    best.go_on()
    return best


class Model(torch.nn.Module):
    """The smallest possible model. Its only weight is the number of the step at which it was saved."""

    def __init__(self, value: float = 0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(value))

    def save_pretrained(self, folder, state_dict=None):
        save_file(self.state_dict(), folder / "model.safetensors")


def add_all(best: Best, values: list, steps=None) -> None:
    for step, value in zip(steps or range(1, len(values) + 1), values):
        best.add(step, {best.metric: value}, Model(float(step)))


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        ("eval_accuracy", [0.5, 0.7, 0.7, 0.6], 2),  # Of equal scores, the first one counts.
        ("eval_loss", [0.5, 0.7, 0.4, 0.6], 3),
        ("eval_mnli_m_loss", [0.5, 0.7, 0.6], 1),
        ("eval_spearmanr", [None, -0.2, None], 2),  # An undefined correlation is worse than any other.
        ("eval_spearmanr", [None, None], 1),
    ],
)
def test_the_best_evaluation_is_restored(make_run, metric, values, expected):
    best = best_of(make_run, metric=metric)
    add_all(best, values)
    model = Model()
    assert best.restore(model) == {metric: values[expected - 1], "best_step": expected}
    assert model.weight.item() == expected
    assert len(list(best.run.output_dir.glob("checkpoint-best-*"))) == 1
    best.clear()
    assert not list(best.run.output_dir.glob("checkpoint-*"))


def test_what_was_the_best_at_the_newest_checkpoint_stays(make_run):
    """A run that is resumed from checkpoint-4 must find the weights of step 3, although step 6 was better."""
    best = best_of(make_run)
    add_all(best, [0.1, 0.2, 0.3])
    (best.run.output_dir / "checkpoint-4").mkdir()
    add_all(best, [0.4, 0.5], steps=[5, 6])
    names = sorted(path.name for path in best.run.output_dir.glob("checkpoint-best-*"))
    assert names == ["checkpoint-best-3", "checkpoint-best-6"]
    evaluations = [(n, n / 10) for n in (1, 2, 3)]
    again = resumed(best.run, *evaluations)
    assert again.step == 3
    assert again.restore(Model())["best_step"] == 3
    shutil.rmtree(best.run.output_dir / "checkpoint-best-3")
    with pytest.raises(ValueError, match=r"checkpoint-best-3: .* cannot be used: no such folder; resume without"):
        resumed(best.run, *evaluations)


def test_every_checkpoint_keeps_what_was_the_best_by_then(make_run):
    """The newest one may turn out to be damaged."""
    best = best_of(make_run)
    for start, values in ((2, [0.1, 0.2]), (4, [0.3, 0.4]), (None, [0.5, 0.6])):
        add_all(best, values, steps=[len(best.evaluations) + 1, len(best.evaluations) + 2])
        if start:
            (best.run.output_dir / f"checkpoint-{start}").mkdir()
    names = sorted(path.name for path in best.run.output_dir.glob("checkpoint-best-*"))
    assert names == ["checkpoint-best-2", "checkpoint-best-4", "checkpoint-best-6"]
    shutil.rmtree(best.run.output_dir / "checkpoint-2")  # beyond --save_total_limit
    add_all(best, [0.7], steps=[7])
    names = sorted(path.name for path in best.run.output_dir.glob("checkpoint-best-*"))
    assert names == ["checkpoint-best-4", "checkpoint-best-7"]


def test_the_checkpoint_of_the_last_step_keeps_what_was_the_best_before_its_evaluation(make_run):
    """It is written before that evaluation, and its records end there; folders of a lost branch do not displace it."""
    best = best_of(make_run)
    add_all(best, [0.1, 0.2])
    (best.run.output_dir / "checkpoint-3").mkdir()
    add_all(best, [0.3], steps=[3])
    names = sorted(path.name for path in best.run.output_dir.glob("checkpoint-best-*"))
    assert names == ["checkpoint-best-2", "checkpoint-best-3"]
    again = resumed(best.run, (1, 0.1), (2, 0.2))  # whose folder still has the weights of step 3
    assert again.step == 2
    (best.run.output_dir / "checkpoint-4").mkdir()
    add_all(again, [0.6], steps=[5])
    assert (best.run.output_dir / "checkpoint-best-2").is_dir()


def test_best_weights_are_sealed_and_damaged_ones_refused(make_run):
    best = best_of(make_run)
    add_all(best, [0.1, 0.2])
    folder = best.run.output_dir / "checkpoint-best-2"
    assert damage(folder) is None
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1  # safetensors loads a file with one changed bit without an error.
    (folder / "model.safetensors").write_bytes(data)
    message = r"checkpoint-best-2: the weights of .* cannot be used: model\.safetensors does not match its checksum"
    with pytest.raises(ValueError, match=message):
        best.restore(Model())
    with pytest.raises(ValueError, match=message):
        resumed(best.run, (2, 0.2))  # A resumed run says so before it trains.


def test_the_best_weights_of_the_run_that_is_continued_in_another_folder(make_run, tmp_path):
    best = best_of(make_run)
    add_all(best, [0.3, 0.2])
    other = make_run(
        output_dir=str(tmp_path / "other"), resume_from_checkpoint=str(best.run.output_dir / "checkpoint-2")
    )
    other.args.load_best_model_at_end = True
    evaluations = [(1, 0.3), (2, 0.2)]
    model, again = Model(), resumed(other, *evaluations)
    assert again.restore(model) == {"eval_accuracy": 0.3, "best_step": 1} and model.weight.item() == 1
    again.clear()
    assert (best.run.output_dir / "checkpoint-best-1").is_dir()
    (best.run.output_dir / "checkpoint-best-1" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="checkpoint-best-1: the weights of the best evaluation so far cannot be used"):
        resumed(other, *evaluations)
    # A finished run has deleted them. The checkpoint of the same step is as good.
    other.args.resume_from_checkpoint = str(best.run.output_dir / "checkpoint-1")
    (best.run.output_dir / "checkpoint-1").mkdir()
    Model(1.0).save_pretrained(best.run.output_dir / "checkpoint-1")
    (best.run.output_dir / "checkpoint-1" / "config.json").write_text("{}")
    shutil.rmtree(best.run.output_dir / "checkpoint-best-1")
    assert resumed(other, *evaluations).restore(model)["best_step"] == 1


def test_an_interrupted_run_keeps_the_same_model(tmp_path, pretrained, glue_files, monkeypatch):
    flags = ("--max_steps=12", "--save_steps=5", *KEEP, "--metric_for_best_model=eval_loss")
    unbroken = train(tmp_path / "unbroken", pretrained, glue_files, "rte", *flags)
    add = Best.add

    def stop_after_step_8(self, step, *state):
        add(self, step, *state)
        if step == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Best, "add", stop_after_step_8)
        train(tmp_path / "broken", pretrained, glue_files, "rte", *flags)
    resumed = train(tmp_path / "broken", pretrained, glue_files, "rte", *flags, "--resume_from_checkpoint=auto")
    assert (resumed["best_step"], resumed["eval_loss"]) == (unbroken["best_step"], unbroken["eval_loss"])
    assert events(tmp_path / "broken", "train") == events(tmp_path / "unbroken", "train")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("unbroken", "broken"))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("task", "asked", "expected"),
    [
        ("cola", None, "eval_matthews_correlation"),
        ("mrpc", None, "eval_f1"),  # Table 1 of the paper has F1 for QQP and MRPC, and Spearman for STS-B.
        ("stsb", None, "eval_spearmanr"),
        ("mnli", None, "eval_mnli_m_accuracy"),
        ("mnli", "mnli_mm_accuracy", "eval_mnli_mm_accuracy"),
        ("mrpc", "loss", "eval_loss"),
        ("mrpc", "pearson", "expected one of eval_accuracy, eval_f1, eval_loss; got 'pearson'"),
        ("mnli", "accuracy", "expected one of eval_mnli_m_accuracy, eval_mnli_m_loss, eval_mnli_mm_accuracy"),
    ],
)
def test_the_metric_that_decides(glue_files, task, asked, expected, capsys):
    given = ["--output_dir=x", "--model_name_or_path=y", f"--task_name={task}", f"--data_dir={glue_files / task}"]
    args = parse_arguments(
        GlueArguments, [*given, *([f"--metric_for_best_model={asked}", "--load_best_model_at_end"] if asked else [])]
    )
    data = sources.load_data(args)
    if expected.startswith("eval_"):
        assert metric_of(args, data) == expected
        return
    with pytest.raises(ValueError) as caught:
        metric_of(args, data)
    assert expected in str(caught.value)

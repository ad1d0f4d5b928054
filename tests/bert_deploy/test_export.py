"""bert_deploy/export.py: what is refused, the gate on the score, and real files where onnxruntime is there.

Most tests put torch's own network in the place of a file, because torch's exporter takes seconds.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer

from bert_deploy import export, export_scores, onnx_files, verify
from bert_training.engine.errors import report_errors
from bert_training.inputs.flags.scripts import HEADS
from bert_training.tasks.classification.scores import value_of
from tests.helpers import short_runs
from tests.helpers.ecosystem import needed
from tests.helpers.embedders import add_modules
from tests.helpers.model_folders import edit_json
from tests.helpers.repository import ROOT
from tests.helpers.small_networks import small_config


@pytest.fixture(scope="module")
def model_of(tmp_path_factory, tokenizer_folder, vocab):
    """A function that saves a random network of a class with its tokenizer, once."""

    def save(name: str, **config) -> Path:
        folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(0)
        config = small_config(vocab_size=len(vocab), max_position_embeddings=64, initializer_range=0.3, **config)
        getattr(transformers, name)(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(tokenizer_folder).save_pretrained(folder)
        return folder

    return save


@pytest.fixture
def torch_as_file(monkeypatch):
    """Files hold the factor by which the numbers of torch's network are wrong: 1 in float32, and here 8 bits' own."""
    factors = dict.fromkeys((export.WHOLE, export.SMALL), 1.0)
    networks = []

    def write(model, outputs, example, path):
        networks.append((model, outputs))
        path.write_text("whole")

    class File:
        def __init__(self, path):
            self.factor = factors[f"{path.parent.name}/{path.name}"]

        def __call__(self, batch):
            (model, outputs) = networks[-1]
            with torch.inference_mode():
                found = model(**{name: torch.from_numpy(values) for name, values in batch.items()})
            return {name: self.factor * found[name].numpy() for name in outputs}

    monkeypatch.setattr(export, "needed_packages", dict)
    monkeypatch.setattr(export, "write_onnx", write)
    monkeypatch.setattr(export, "quantize", lambda whole, small: small.write_text("small"))
    monkeypatch.setattr(export, "OnnxFile", File)
    monkeypatch.setattr(export, "ROUNDS", 1)
    return factors


def status(*words) -> int:
    return report_errors(lambda: export.main([str(word) for word in words]))


SCORES = {"run_glue": "eval_accuracy", "run_squad": "eval_f1", "run_ner": "eval_f1", "run_swag": "eval_accuracy"}


@pytest.mark.parametrize("script", SCORES)
def test_a_file_is_scored_as_the_run_was(finished_runs, torch_as_file, tmp_path, script, capsys):
    """The score is that of all_results.json, of SQuAD 2.0 at the stored threshold, and all decisions are torch's."""
    assert not status(finished_runs[script], "--quantize", "--output_dir", tmp_path / "out")
    record = json.loads((tmp_path / "out/export.json").read_text())
    results = json.loads((finished_runs[script] / "all_results.json").read_text())
    assert record["metric"] == SCORES[script] and record["forced"] == []
    recorded = results["eval_at_best_f1" if script == "run_squad" else SCORES[script]]
    for one in (record["torch"], *record["files"].values()):
        assert one["score"] == pytest.approx(recorded * (1 if script == "run_squad" else 100))
    assert {one["changed"] for one in record["files"].values()} == {0}
    assert "| onnx/model_quantized.onnx | " in capsys.readouterr().out
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert "auto_map" not in config and (tmp_path / "out/tokenizer.json").is_file()


@pytest.mark.parametrize("script", SCORES)
def test_the_rows_that_a_file_answers_differently_are_counted(copy_of_run, torch_as_file, tmp_path, script, capsys):
    """Texts, sentences, questions and choices; here numbers with the other sign turn all of them around."""
    torch_as_file[export.SMALL], folder = -1.0, copy_of_run(script)
    if script == "run_squad":  # otherwise it answers nothing, whatever the numbers are
        edit_json(folder / "config.json", null_score_diff_threshold=1000.0)
    words = (folder, "--quantize", "--force", "--output_dir", tmp_path / "out")
    assert not status(*words)
    record = json.loads((tmp_path / "out/export.json").read_text())
    (whole, small), rows = record["files"].values(), record["rows"]
    facts = json.loads((folder / "run.json").read_text())["data"]["splits"]["validation"]
    assert rows == facts["examples"] and (whole["changed"], small["changed"]) == (0, rows)
    assert f"| {rows:,} of {rows:,} | " in capsys.readouterr().out


def test_several_labels_change_as_a_whole_and_scores_do_not_count():
    logits = np.array([[2.0, -2.0], [0.5, 3.0]])
    several = transformers.BertConfig(problem_type="multi_label_classification", num_labels=2)
    several.fine_tuning = {"thresholds": [0.9, 0.1]}
    assert export_scores.answers_of({"validation": logits}, several) == [[False, True], [False, True]]
    one = transformers.BertConfig(num_labels=2)
    assert export_scores.answers_of({"a": logits, "b": -logits}, one) == [0, 1, 1, 0]
    assert export_scores.answers_of({"validation": logits[:, :1]}, one) == [None, None]


def scored(folder: Path, metric: str | None = None, **flags) -> tuple[str, float]:
    """The metric of an evaluation, and the score, of a run that was told to choose the best weights by a metric."""
    run = json.loads((folder / "run.json").read_text())
    run["flags"] |= {"metric_for_best_model": metric, **flags}
    compute = export.open_model(folder, False).torch_outputs
    found = export_scores.Validation(folder, run, []).evaluate(compute)
    return found.metric, found.score


@pytest.mark.parametrize("threshold", [-1000.0, 1000.0])
def test_answers_are_scored_at_the_threshold_that_the_model_applies(copy_of_run, threshold):
    """Without answers, the score is the share of the questions that have none; that flag of the training has no say."""
    folder = copy_of_run("run_squad")
    edit_json(folder / "config.json", null_score_diff_threshold=threshold)
    results = json.loads((folder / "all_results.json").read_text())
    none = 100 * results["eval_NoAns_total"] / results["eval_total"]
    for metric in ("best_f1", "exact", "eval_best_exact", None):
        name, score = scored(folder, metric, null_score_diff_threshold=-threshold)
        assert name == {"best_f1": "eval_f1", None: "eval_f1"}.get(metric, "eval_exact")
        assert (score == pytest.approx(none)) == (threshold < 0)


@pytest.fixture
def finished(pretrained, tmp_path, no_pictures):
    """A function: rows, and more flags -> the finished folder of a run of run_glue.py on them."""

    def make(rows: str, *more: str, name: str = "own.csv") -> Path:
        (tmp_path / name).write_text(rows)
        data = [f"--train_file={tmp_path / name}"]
        data += [] if "--validation_split" in " ".join(more) else [f"--validation_file={tmp_path / name}"]
        given = [*data, f"--model_name_or_path={pretrained}", "--max_seq_length=24", "--max_steps=1"]
        short_runs.start("run_glue", [*given, f"--output_dir={tmp_path / 'run'}", *more])
        return tmp_path / "run"

    return make


@pytest.mark.parametrize(("stored", "expected"), [(0.0, 2200 / 23), (1.0, 0.0)])
def test_labels_are_scored_at_the_thresholds_that_the_model_stores(finished, stored, expected):
    """They are not found anew. Texts have 11 of 12 labels, and get all or none: F1 is 2 * 11 / (12 + 11), or 0."""
    rows = [{"text": f"the old house {'. ' * number}", "label": ["x", "y"][: 1 + (number > 0)]} for number in range(6)]
    run = finished("".join(json.dumps(row) + "\n" for row in rows), name="own.jsonl")
    config = json.loads((run / "config.json").read_text())
    edit_json(run / "config.json", fine_tuning=config["fine_tuning"] | {"thresholds": [stored] * 2})
    assert scored(run) == ("eval_f1_micro", pytest.approx(expected))


METRICS = {
    "f1_macro": "eval_f1_macro",
    "eval_recall_macro": "eval_recall_macro",
    "recall:x": "eval_recall:x",
    "loss": "eval_accuracy",
    "ece": "eval_accuracy",
    "no_such": "eval_accuracy",
    None: "eval_accuracy",
}


def test_the_metric_is_that_by_which_the_best_weights_were_chosen(finished):
    """One that is lower for better weights, or that is not among the results, leaves the usual one of the task."""
    rows = "".join(f"the old house {'. ' * number},{'xyz'[number % 3]}\n" for number in range(8))
    run = finished("text,label\n" + rows)
    results = json.loads((run / "all_results.json").read_text())
    for metric, name in METRICS.items():
        expected = 100 * value_of(results, name)
        assert scored(run, metric) == (name, pytest.approx(expected)), metric


def test_the_part_held_out_of_the_training_data_is_scored(torch_as_file, finished, tmp_path):
    """Its rows alone. The labels are such that all rows together have another score."""
    words = ["the old house", "the king walked", "he went home", "a small red house"]
    rows = "".join(f"{words[number % 4]} {'. ' * number},{'xy'[number % 3 == 0]}\n" for number in range(16))
    folder = finished("text,label\n" + rows, "--validation_split=0.25")
    assert not status(folder, "--quantize", "--output_dir", tmp_path / "out")
    record = json.loads((tmp_path / "out/export.json").read_text())
    results = json.loads((folder / "all_results.json").read_text())
    assert record["validation"] == "the part of own.csv that was held out" and record["rows"] == 4
    assert record["torch"]["score"] == pytest.approx(100 * results["eval_accuracy"])
    assert {one["changed"] for one in record["files"].values()} == {0}
    run = json.loads((folder / "run.json").read_text()) | {"thresholds": "found"}
    assert "other thresholds" in export_scores.Validation(folder, run, []).missing


def test_windows_of_a_text_are_pooled_as_in_the_run(finished):
    """Long texts have several windows; rows that are taken for texts would be those of others."""
    texts = ["the old house", "the king walked . " * 6]
    rows = "".join(f"{texts[number % 2]} {'. ' * number},{'xy'[number % 2]}\n" for number in range(8))
    flags = "--long_texts windows --max_seq_length 12 --max_steps 40 --learning_rate 1e-3"
    run = finished("text,label\n" + rows, *flags.split())
    assert json.loads((run / "all_results.json").read_text())["eval_accuracy"] == 1
    assert scored(run) == ("eval_accuracy", 100)


def test_other_data_of_the_same_name_scores_nothing(finished_runs, monkeypatch):
    folder = finished_runs["run_glue"]
    run, other = json.loads((folder / "run.json").read_text()), {"splits": {"validation": {"sha256": "other"}}}
    opened = export_scores.Opened(transformers.BertConfig(), lambda *_: ({}, None), "eval_accuracy", other)
    monkeypatch.setattr(export_scores, "open_script", lambda script, flags: opened)
    assert export_scores.Validation(folder, run, []).missing == "the data at hand is not that in run.json"


def test_a_score_that_cannot_be_known_needs_the_data_or_force(torch_as_file, finished, tmp_path, capsys):
    run = finished("text,label\n" + "the old house,x\nthe king walked,y\n" * 4, "--validation_split=0.5")
    (tmp_path / "moved").mkdir()
    (tmp_path / "own.csv").rename(tmp_path / "moved" / "own.csv")
    words = (run, "--quantize", "--output_dir", tmp_path / "out")
    assert status(*words) == 2 and not (tmp_path / "out").exists()
    error = capsys.readouterr().err
    assert "the validation data cannot be scored" in error and "give --data with the folder that has it" in error
    assert not status(*words, "--data", tmp_path / "moved")
    shutil.rmtree(tmp_path / "out")
    assert not status(*words, "--force")
    assert json.loads((tmp_path / "out/export.json").read_text())["validation"] is None


@pytest.fixture(scope="module")
def learned(tmp_path_factory, pretrained, run_data) -> Path:
    """A finished folder of run_glue.py that gives every text its label."""
    place = tmp_path_factory.mktemp("learned") / "run_glue"
    with pytest.MonkeyPatch.context() as patch:
        short_runs.no_pictures(patch)
        more = ["--max_steps", "40", "--learning_rate", "1e-3"]
        short_runs.start("run_glue", short_runs.flags("run_glue", run_data, place, pretrained, *more))
    assert json.loads((place / "all_results.json").read_text())["eval_accuracy"] == 1
    return place


def test_a_worse_file_leaves_nothing_behind(learned, torch_as_file, tmp_path, capsys):
    torch_as_file[export.SMALL] = -1.0  # turns every decision around
    words = (learned, "--quantize", "--output_dir", tmp_path / "out")
    assert status(*words) == 2
    error = capsys.readouterr().err
    assert "onnx/model_quantized.onnx: eval_accuracy fell from 100.00 to 0.00" in error and error.count("\n") == 1
    assert "--max_drop 0.5; 8 of 8 rows are answered differently" in error
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.incomplete"))
    assert not status(*words, "--force")
    assert "kept because of --force" in capsys.readouterr().out
    assert json.loads((tmp_path / "out/export.json").read_text())["forced"]


def verified(*words) -> int:
    try:
        return report_errors(lambda: verify.main([str(word) for word in words]))
    except SystemExit as end:
        return int(end.code)


def test_an_export_is_verified_by_its_record(learned, torch_as_file, tmp_path, capsys):
    out = tmp_path / "out"
    assert not status(learned, "--quantize", "--output_dir", out)
    (out / "notes.txt").write_text("mine")
    assert verified(out) == 0
    said = capsys.readouterr().out
    assert "not in the record  notes.txt\n" in said and 'labels: ["x", "y"]' in said
    (out / "onnx/model.onnx").write_text("other weights")
    edit_json(out / "config.json", id2label={"0": "y", "1": "x"})
    assert verified(out, "--brief") == 1
    said = capsys.readouterr().out
    assert "onnx/model.onnx: the file has changed" in said and "labels: " in said
    edit_json(out / "export.json", rows=9)
    assert verified(out) == 1 and "export.json: damaged or edited" in capsys.readouterr().out.replace(f"{out}/", "")


def test_without_validation_data_the_outputs_are_compared(model_of, torch_as_file, tmp_path, capsys):
    folder = model_of("BertForMaskedLM")
    assert not status(folder, "--quantize", "--output_dir", tmp_path / "out")
    assert "no validation data; no run of this head was fine-tuned" in capsys.readouterr().out
    torch_as_file[export.SMALL] = 3.0
    assert status(folder, "--quantize", "--output_dir", tmp_path / "bad") == 2
    assert "its outputs differ from torch's by up to" in capsys.readouterr().err
    for factor, message in (
        (1.01, "its outputs differ"),
        (float("nan"), "its outputs differ from torch's by up to nan"),
    ):
        torch_as_file[export.WHOLE] = factor
        assert status(folder, "--output_dir", tmp_path / "bad") == 2 and not (tmp_path / "bad").exists()
        assert message in capsys.readouterr().err


def test_the_encoder_of_any_model_is_read_by_sentence_transformers(finished_runs, torch_as_file, tmp_path):
    assert not status(finished_runs["run_pretraining"], "--encoder_alone", "--output_dir", tmp_path / "out")
    modules = json.loads((tmp_path / "out/modules.json").read_text())
    assert [one["type"].split(".")[-1] for one in modules] == ["Transformer", "Pooling", "Normalize"]
    assert json.loads((tmp_path / "out/config.json").read_text())["architectures"] == ["BertModel"]
    record = json.loads((tmp_path / "out/export.json").read_text())
    assert record["outputs"] == ["last_hidden_state"]


@pytest.mark.parametrize("kinds", [("Pooling",), ("Pooling", "Dense", "Normalize")])
def test_vectors_are_pooled_and_normalised_as_the_folder_says(model_of, torch_as_file, tmp_path, kinds):
    folder = shutil.copytree(model_of("BertModel"), tmp_path / "model")
    add_modules(folder, *kinds)
    assert not status(folder, "--output_dir", tmp_path / "out")
    name = "config_sentence_transformers.json"
    assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    written = json.loads((tmp_path / "out/modules.json").read_text())
    assert tuple(one["type"].split(".")[-1] for one in written) == ("Transformer", *kinds)
    assert json.loads((tmp_path / "out/1_Pooling/config.json").read_text())["pooling_mode_max_tokens"]
    assert (tmp_path / "out/2_Dense/model.safetensors").is_file() == ("Dense" in kinds)


def rewritten(folder: Path, place: Path, **fields) -> Path:
    shutil.copytree(folder, place)
    edit_json(place / "config.json", **fields)
    return place


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"architectures": ["BertForTokenClassification"]},
            "of a BertForTokenClassification, with transformers' names",
        ),
        ({"architectures": ["BertFeatureTagger"]}, "expected in 'architectures' one of"),
        (
            {"id2label": {"0": "b", "1": "a"}, "label2id": {"a": 0, "b": 1}},
            "expected the labels of the run in its order, which it does not record",
        ),
    ],
)
def test_refused_in_one_line(model_of, torch_as_file, tmp_path, capsys, fields, message):
    folder = rewritten(model_of("BertForMaskedLM"), tmp_path / "model", **fields)
    capsys.readouterr()
    assert status(folder, "--output_dir", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert any(part in error for part in message.split("|")) and error.count("\n") == 1, error
    assert not (tmp_path / "out").exists()


def test_weights_have_seven_bits_where_sums_of_eight_overflow(monkeypatch):
    x86 = {"architecture": "x86_64"}
    for found, expected in ((x86, False), (x86 | {"avx_vnni": True}, True), ({"architecture": "arm64"}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found)
        assert onnx_files.has_vnni() == expected


# --- real files ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # torch's exporter warns of its own code.
@pytest.mark.parametrize(
    "name", [name for name, head in HEADS.items() if head.exported and name != "BertForPreTraining"]
)
def test_files_compute_what_torch_does(model_of, tmp_path, name, record_property):
    """At other batch sizes and lengths than those of the export."""
    for package in onnx_files.PACKAGES:
        pytest.importorskip(package)
    model = export.open_model(model_of(name), False)
    whole, small = tmp_path / "model.onnx", tmp_path / "model_quantized.onnx"
    onnx_files.write_onnx(model.network, model.outputs, model.batch(model.rows()[:3]), whole)
    difference, share = export.difference_of(model, onnx_files.OnnxFile(whole))
    record_property("largest difference", difference)
    assert share < 1e-4
    onnx_files.quantize(whole, small)
    _, share = export.difference_of(model, onnx_files.OnnxFile(small))
    assert share < export.MOST_DIFFERENCE["8 bits"]


@pytest.mark.slow
@pytest.mark.tried("onnxruntime", "`examples/labels_from_onnx.py`: an exported classifier in 8-bit integers")
@pytest.mark.filterwarnings("default")
def test_the_example_needs_nothing_of_this_project(learned, tmp_path):
    """It labels texts as torch does, in a process in which torch and transformers cannot be imported."""
    for package in onnx_files.PACKAGES:
        needed(package)
    assert not status(learned, "--quantize", "--max_drop", 100, "--output_dir", tmp_path / "own8")
    closed = "import runpy, sys\nfor name in ('torch', 'transformers', 'bert_training'): sys.modules[name] = None\n"
    program = f"{closed}runpy.run_path({str(ROOT / 'examples' / 'labels_from_onnx.py')!r}, run_name='__main__')"
    texts = ["Please close the window.", "Is it raining?"]
    words = [sys.executable, "-P", "-c", program, str(tmp_path / "own8"), *texts]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    expected = transformers.pipeline("text-classification", str(learned))(texts)
    assert done.stdout.splitlines() == [f"{one['label']}: {text}" for one, text in zip(expected, texts)], done.stderr

"""A network with one segment (type_vocab_size 1) reads both texts of a pair as segment 0, wherever it reads."""

import copy
import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, pipeline

import run_glue
import run_pretraining
from bert_training.tasks import teachers as rooms
from tests.helpers import short_runs
from tests.helpers.records import read
from tests.helpers.small_networks import save_random_network
from tokenization.errors import UserError

NOTE = "note: the model has one segment (type_vocab_size 1), so both texts of a pair are read as segment 0\n"
PAIRS = [("the old house .", "the king walked ."), ("the queen", "the night was old .")]
pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def one_segment(tmp_path_factory, tokenizer_folder, pretrained_config) -> Path:
    config = copy.deepcopy(pretrained_config)
    config.type_vocab_size = 1
    return save_random_network(tmp_path_factory.mktemp("one_segment"), tokenizer_folder, config)


@pytest.fixture(scope="module")
def pair_data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    short_runs.write_data(folder)
    rows = [["sentence1", "sentence2", "label"], *[[*pair, label] for pair, label in zip(PAIRS, "xy")] * 4]
    with open(folder / "run_glue.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, one_segment, pair_data) -> Path:
    """A finished classifier of pairs."""
    folder = tmp_path_factory.mktemp("runs") / "classifier"
    with pytest.MonkeyPatch.context() as patch:
        short_runs.no_pictures(patch)
        run_glue.main(short_runs.flags("run_glue", pair_data, folder, one_segment, "--learning_rate=1e-2"))
    return folder


@pytest.mark.parametrize("impl", ["repro", pytest.param("transformers", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "script", ["run_glue", *(pytest.param(name, marks=pytest.mark.slow) for name in ("run_squad", "run_swag"))]
)
def test_every_script_trains_on_pairs_and_saves_a_tokenizer_without_segments(
    script, impl, one_segment, pair_data, tmp_path, capsys
):
    out = tmp_path / "run"
    short_runs.start(script, short_runs.flags(script, pair_data, out, one_segment, "--model_impl", impl))
    assert capsys.readouterr().out.count(NOTE) == 1
    assert [*AutoTokenizer.from_pretrained(out)(*PAIRS[0])] == ["input_ids", "attention_mask"]
    short_runs.start(script, short_runs.flags(script, pair_data, tmp_path / "again", out, "--model_impl", impl))


def test_pipelines_of_transformers_give_the_scores_of_the_script(classifier):
    predicted = pipeline("text-classification", model=str(classifier), top_k=None)
    with open(classifier / "predictions_validation.csv", newline="") as file:
        rows = list(csv.DictReader(file))[: len(PAIRS)]
    for (first, second), row in zip(PAIRS, rows):
        found = {one["label"]: one["score"] for one in predicted({"text": first, "text_pair": second})}
        assert found == pytest.approx({label: float(row[f"p_{label}"]) for label in "xy"}, abs=1e-5)


def test_answers_are_those_of_the_plain_network(one_segment, pair_data, tmp_path):
    """transformers' own network, which is given no segments, against the evaluation."""
    out = tmp_path / "run"
    short_runs.start("run_squad", short_runs.flags("run_squad", pair_data, out, one_segment, "--learning_rate=1e-2"))
    plain, tokenizer = AutoModelForQuestionAnswering.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    question, context = "house ?", "the old house by the river ."
    batch = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    offsets = batch.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        logits = plain(**batch)
    text = range(batch["input_ids"][0].tolist().index(tokenizer.sep_token_id) + 1, len(offsets) - 1)
    spans = [(first, last) for first in text for last in text if first <= last]
    first, last = max(spans, key=lambda span: logits.start_logits[0, span[0]] + logits.end_logits[0, span[1]])
    assert read(out, "predictions.json")["q0"] == context[offsets[first][0] : offsets[last][1]]


@pytest.mark.parametrize("teachers", ["one", "two"])
def test_a_teacher_and_its_student_each_read_the_segments_they_have(
    teachers, one_segment, pretrained, pair_data, tmp_path, monkeypatch
):
    networks = {"one": one_segment, "two": pretrained}
    (students,) = {*networks} - {teachers}
    teacher = tmp_path / "teacher"
    run_glue.main(short_runs.flags("run_glue", pair_data, teacher, networks[teachers]))
    flags = short_runs.flags("run_glue", pair_data, tmp_path / "student", networks[students], "--teacher", str(teacher))
    said, predict = [], rooms.predict
    monkeypatch.setattr(rooms, "predict", lambda *given: said.append(predict(*given)["logits"]) or {"logits": said[0]})
    run_glue.main(flags)
    predicted = pipeline("text-classification", model=str(teacher), top_k=None, function_to_apply="none")
    for (first, second), logits in zip(PAIRS, said[0]):
        scores = {one["label"]: one["score"] for one in predicted({"text": first, "text_pair": second})}
        np.testing.assert_allclose(logits, [scores["x"], scores["y"]], atol=1e-5)


@pytest.mark.parametrize("flag", ["--model_name_or_path", "--config_name"])
@pytest.mark.parametrize("objective", ["mlm_nsp", "mlm_sop"])
def test_pairs_of_segments_cannot_be_learnt(flag, objective, one_segment, short_data, tmp_path):
    out = tmp_path / "run"
    given = short_runs.flags("run_pretraining", short_data, out, one_segment, "--objective", objective)
    given[given.index("--model_name_or_path")] = flag
    with pytest.raises(UserError, match=f"--objective {objective} needs two segments, and {one_segment} has one"):
        run_pretraining.main([*given, "--tokenizer_name", str(one_segment)])
    assert not (out / "run.json").exists()

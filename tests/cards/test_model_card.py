"""Model cards have valid metadata, code that runs, and no claim that the run does not support."""

import json
import re

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

from bert_training.cards.model_card import write_model_card
from bert_training.cards.publishing import MODEL_NAME

BUILT_IN = "the documentation carried by this Python installation"
PRETRAINING = {"eval_mlm_loss": 5.5, "eval_mlm_accuracy": 0.21, "eval_nsp_accuracy": 0.75, "eval_perplexity": 244.7}


def records(script="run_pretraining.py", **flags):
    flags = {
        "output_dir": "x",
        "seed": 42,
        "max_steps": -1,
        "per_device_train_batch_size": 32,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-4,
        "max_seq_length": 64,
        "model_name_or_path": None,
        "push_to_hub": False,
        **flags,
    }
    return {
        "script": script,
        "flags": flags,
        "hub_names": ["google-bert/bert-base-uncased"],
        "command": [script, "--output_dir", "a folder"],
        "started": "2026-01-01T00:00:00+00:00",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "datasets": "not installed"},
        "commit": "abc",
        "device": "cpu, x86_64, 2 threads",
        "processes": 2,
        "mixed_precision": "no",
        "parameters": 1234567,
        "total_steps": 1000,
    }


def card(folder, kind, metrics, datasets=(BUILT_IN,), facts=None, **more):
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps((facts or records()) | {"format": 1, "script": f"run_{kind}.py"}))
    path = write_model_card(folder, datasets=list(datasets), metrics=metrics, **more)
    assert path == folder / "README.md"
    return ModelCard.load(path)


def words(made: ModelCard) -> str:
    """The text of the card without its line ends."""
    return " ".join(made.text.split())


def run_code(made: ModelCard, capsys) -> str:
    """The output of the Python code in the card, which has one line that an upload replaces."""
    (code,) = re.findall(r"```python\n(.*?)```", made.text, re.DOTALL)
    assert MODEL_NAME.findall(made.text) == ["model_name = './model'"] and "./model" not in MODEL_NAME.sub(
        "", made.text
    )
    exec(compile(code, "model card", "exec"), {})
    return capsys.readouterr().out


@pytest.fixture
def saved(tmp_path, tokenizer_folder, monkeypatch):
    """A function that saves a small network of a class with its tokenizer and returns the folder.

    The current folder is the one above, where the code of a card runs.
    """
    monkeypatch.chdir(tmp_path)

    def save(cls, **config):
        torch.manual_seed(0)
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
        small = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
        folder = tmp_path / "model"
        cls(BertConfig(vocab_size=len(tokenizer), **small, **config)).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.mark.parametrize("phases, listed", [("8:1:4", {"gradient_accumulation_steps"}), ("8:1:4x1@1:2", set())])
def test_batches_that_the_phases_replace_are_not_listed(tmp_path, phases, listed):
    made = card(tmp_path / "run", "pretraining", PRETRAINING, facts=records(phases=phases))
    names = {"per_device_train_batch_size", "gradient_accumulation_steps"}
    assert {name for name in names if f"| {name} |" in made.text.replace("`", "")} == listed


def test_the_metadata_of_pretraining(tmp_path):
    made = card(tmp_path / "first", "pretraining", PRETRAINING)
    data = made.data.to_dict()
    assert data["library_name"] == "transformers" and data["pipeline_tag"] == "fill-mask" and data["language"] == "en"
    assert "license" not in data and "base_model" not in data and "datasets" not in data
    assert made.data.model_name == "first"
    results = {result.metric_name: result.metric_value for result in made.data.eval_results}
    assert results["Masked-piece accuracy"] == 0.21 and results["Perplexity of masked pieces"] == 244.7
    assert {result.dataset_name for result in made.data.eval_results} == {BUILT_IN}


def test_the_metadata_of_glue_from_the_hub(tmp_path):
    facts = records("run_glue.py", task_name="mrpc", model_name_or_path="google-bert/bert-base-uncased")
    metrics = {"eval_accuracy": 0.86, "eval_f1": 0.9, "eval_spearmanr": float("nan"), "train_runtime": 10.0}
    made = card(tmp_path / "A title", "glue", metrics, ["mrpc"], facts)
    assert made.data.base_model == "google-bert/bert-base-uncased" and made.data.datasets == ["nyu-mll/glue"]
    assert made.data.metrics == ["accuracy", "f1"]
    values = {
        (result.dataset_type, result.dataset_config, result.metric_type, result.metric_value)
        for result in made.data.eval_results
    }
    assert values == {("nyu-mll/glue", "mrpc", "accuracy", 0.86), ("nyu-mll/glue", "mrpc", "f1", 0.9)}
    assert made.text.startswith("\n# A title") and "| Spearman correlation | not defined |" in made.text


def test_local_names_are_not_taken_for_names_of_the_hub(tmp_path):
    base = tmp_path / "runs" / "base"
    base.mkdir(parents=True)
    facts = records("run_glue.py", task_name="mrpc", data_dir="glue", model_name_or_path=str(base))
    made = card(tmp_path / "x", "glue", {"eval_accuracy": 0.7}, ["mrpc"], facts)
    assert made.data.base_model is None and made.data.datasets is None
    assert made.data.eval_results[0].dataset_type == "mrpc" and "starting from `base`" in made.text
    assert str(tmp_path) not in made.text


@pytest.mark.parametrize(("loss", "verdict"), [(5.5, "it has learnt from context"), (6.9, "has not learnt anything")])
def test_the_card_says_how_small_the_run_was(tmp_path, loss, verdict):
    (tmp_path / "metrics.jsonl").write_text('{"event": "corpus", "unigram_entropy": 6.4}\n')
    made = card(tmp_path, "pretraining", {**PRETRAINING, "eval_mlm_loss": loss})
    # 1,000 steps of 32 x 2 sequences on 2 processes are compared with 1,000,000 steps of 256.
    assert "128,000 sequences of up to 64 pieces, 0.05 % of the 256 million sequences of up to 512" in words(made)
    assert verdict in words(made) and "not measured" not in words(made)


def test_an_adapted_model_is_not_said_to_have_seen_little(tmp_path):
    facts = records("run_pretraining.py", model_name_or_path="google-bert/bert-base-uncased")
    made = card(tmp_path, "pretraining", PRETRAINING, facts=facts)
    assert "Scale: this run has seen 128,000 sequences of up to 64 pieces. What the weights had seen" in words(made)
    assert "Do not expect their quality" not in words(made)


@pytest.mark.parametrize(("loss", "verdict"), [(5.5, "it has learnt more"), (5.8, "it has hardly learnt more")])
def test_the_card_says_what_was_counted(tmp_path, loss, verdict):
    events = [{"event": "corpus", "unigram_entropy": 6.4}, {"event": "train", "step": 1, "mlm_loss": 5.9, "loss": 6.6}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    facts = records("run_pretraining.py", objective="mlm_nsp", initial_weights="counted")
    made = card(tmp_path, "pretraining", {**PRETRAINING, "eval_mlm_loss": loss}, facts=facts)
    assert "starting from weights that were counted in the text" in words(made) and "random weights" not in words(made)
    assert f"the counted initial weights began at 5.90: {verdict} than the counts." in words(made)


def test_a_model_that_was_only_evaluated_is_not_said_to_be_trained(tmp_path):
    facts = records("run_glue.py", model_name_or_path="runs/own", num_train_epochs=3.0)
    facts |= {"data": {"splits": {"validation": {"examples": 30}}}, "total_steps": 0}
    made = card(tmp_path, "glue", {"eval_accuracy": 0.5, "train_steps": 0}, ["custom"], facts)
    assert "with the weights of `own`; nothing was trained here" in made.text
    assert "- Evaluated on: custom." in made.text and "## Evaluation data" in made.text
    for claim in ("fine-tuned", "Trained on", "learning_rate", "num_train_epochs", "with one seed", "last step"):
        assert claim not in made.text, claim


def test_the_scores_of_test_data_are_on_the_card(tmp_path):
    facts = records("run_glue.py", model_name_or_path="runs/first", validation_split=0)
    scored = {"test_accuracy": 0.875, "test_f1_macro": 0.75, "test_loss": 0.5, "test_by_class": {}}
    text = card(tmp_path, "glue", {**scored, "train_steps": 9}, ["custom"], facts).text
    assert "| on held-out data, last step | |" in text and "Nobody knows" not in text and "None:" not in text
    assert "| Loss, test data | 0.5 |\n| Accuracy, test data | 0.875 |\n| Macro F1, the mean over the cl" in text
    assert "It was trained without validation data. The results were measured on test data, after the last" in text
    facts = records("run_glue.py", model_name_or_path="runs/first")
    text = card(tmp_path, "glue", {"eval_accuracy": 1.0, **scored, "train_steps": 9}, ["custom"], facts).text
    assert "| Accuracy | 1 |\n| Loss, test data | 0.5 |" in text and "Nothing was measured on a test" not in text
    assert "Apart from those of test data, the results were measured on validation data, after the last" in text


def test_the_card_names_the_command_the_flags_and_the_versions(tmp_path):
    (tmp_path / "training_curves.png").write_bytes(b"")
    facts = {**records(), "corpus": {"documents": 12000, "tokens": 2000000}}
    text = card(tmp_path, "pretraining", PRETRAINING, facts=facts).text
    assert "python run_pretraining.py --output_dir 'a folder'" in text
    assert "| `learning_rate` | 0.0001 |" in text and "`max_steps`" not in text and "| total_steps | 1000 |" in text
    assert "12,000 documents, 2,000,000 word pieces" in text and "![training curves](training_curves.png)" in text
    assert "python 3.11.7, torch 2.13.0\n" in text and "Commit: abc." in text


def test_fill_mask_code_runs(saved, capsys):
    printed = run_code(card(saved(BertForPreTraining), "pretraining", PRETRAINING), capsys)
    assert printed.count("'") == 10  # five predictions in quotation marks


def test_left_to_right_code_runs(saved, capsys):
    made = card(saved(BertForMaskedLM), "pretraining", PRETRAINING, facts=records(objective="ltr"))
    assert run_code(made, capsys).startswith("torch.Size([1, ") and made.data.pipeline_tag is None


@pytest.mark.parametrize("texts", [1, 2])
@pytest.mark.parametrize("task", ["builtin_pair", "custom"])
def test_classification_code_runs_with_as_many_texts_as_the_data_has(saved, capsys, task, texts):
    folder = saved(BertForSequenceClassification, id2label={0: "no", 1: "yes"})
    facts = records("run_glue.py") | {"texts_per_example": texts}
    made = card(folder, "glue", {"eval_accuracy": 0.5}, [task], facts)
    assert re.search(r"'label': '(no|yes)'", run_code(made, capsys))
    assert ("text_pair" in made.text) == (texts == 2)
    facts["flags"] = facts["flags"] | {"max_seq_length": 6}
    made = card(saved(BertForSequenceClassification), "glue", {"eval_accuracy": 0.5}, [task], facts)
    assert "truncation=True, max_length=6)" in made.text  # A pipeline does not cut by itself.
    assert "'label'" in run_code(made, capsys)


def test_regression_code_gives_scores_and_no_probabilities(saved, capsys):
    folder = saved(BertForSequenceClassification, num_labels=1, problem_type="regression")
    model = BertForSequenceClassification.from_pretrained(folder)
    model.classifier.bias.data.fill_(4.0)
    model.save_pretrained(folder)
    made = card(
        folder,
        "glue",
        {"eval_pearson": 0.5},
        ["stsb"],
        records("run_glue.py", task_name="stsb") | {"texts_per_example": 2},
    )
    assert float(re.search(r"'score': ([\d.]+)", run_code(made, capsys))[1]) > 2


def test_answer_code_finds_the_best_span(saved, capsys):
    folder = saved(BertForQuestionAnswering)
    made = card(
        folder, "squad", {"eval_exact_match": 10.0, "eval_f1": 20.0}, ["train-v1.1.json"], records("run_squad.py")
    )
    assert "| F1, per cent | 20 |" in made.text
    printed = run_code(made, capsys).strip()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForQuestionAnswering.from_pretrained(folder)
    question, context = (
        re.search(rf'^{name} = "(.*)"$', made.text, re.MULTILINE)[1] for name in ("question", "context")
    )
    inputs = tokenizer(question, context, return_tensors="pt")
    start, end = (scores[0].tolist() for scores in model(**inputs, return_dict=True).to_tuple()[:2])
    places = [i for i, part in enumerate(inputs.sequence_ids(0)) if part == 1]
    spans = [(start[i] + end[j], i, j) for i in places for j in places if i <= j < i + 30]
    _, first, last = max(spans)
    assert printed == tokenizer.decode(inputs["input_ids"][0][first : last + 1])


@pytest.mark.parametrize(("threshold", "answers"), [(1e6, True), (-1e6, False)])
def test_answer_code_gives_no_answer_where_the_threshold_says_so(saved, capsys, threshold, answers):
    folder = saved(BertForQuestionAnswering, null_score_diff_threshold=threshold)
    facts = records("run_squad.py", version_2_with_negative=True)
    made = card(folder, "squad", {"eval_exact_match": 10.0, "eval_f1": 20.0}, ["train-v2.0.json"], facts)
    assert bool(run_code(made, capsys).strip()) == answers


@pytest.mark.parametrize("how", [None, "windows", "head_tail"])
def test_several_labels_are_those_above_their_thresholds(saved, capsys, how):
    folder = saved(
        BertForSequenceClassification,
        id2label={0: "never", 1: "always"},
        label2id={"never": 0, "always": 1},
        problem_type="multi_label_classification",
        fine_tuning={"thresholds": [1.0, 0.0]},
    )
    flags = {"long_texts": f"{how}:3" if how == "windows" else how}
    data = {"labels": ["never", "always"], "several_labels": True}
    facts = records("run_glue.py", **flags) | {"texts_per_example": 1, "data": data, "thresholds": "found"}
    scores = {"threshold": 0.0, "precision": 0.5, "recall": None, "f1": 0.25, "average_precision": 0.1, "support": 3}
    made = card(folder, "glue", {"eval_f1_micro": 0.5, "eval_by_class": {"a|b": scores}}, ["custom"], facts)
    assert run_code(made, capsys).strip() == "['always']"
    assert "| a\\|b | 0.000 | 0.500 | not defined | 0.250 | 0.100 | 3 |" in made.text


@pytest.mark.parametrize(
    ("how", "texts", "last"),
    [(None, 2, False), ("windows", 2, False), ("head_tail", 1, True)],
)
def test_calibrated_probabilities(saved, capsys, how, texts, last):
    """The program of the card divides by the temperature: with a very large one, all classes are equally likely."""
    cls = BertForTokenClassification if last else BertForSequenceClassification
    folder = saved(cls, id2label={0: "no", 1: "yes"}, fine_tuning={"temperature": 1e9})
    flags = {"long_texts": f"{how}:3" if how == "windows" else how} | ({"label_token": "last"} if last else {})
    facts = records("run_glue.py", **flags) | {"texts_per_example": texts, "data": {"labels": ["no", "yes"]}}
    made = card(folder, "glue", {"eval_ece": 0.01, "eval_ece_uncalibrated": 0.2}, ["custom"], facts)
    assert eval(run_code(made, capsys)) == {"no": pytest.approx(0.5), "yes": pytest.approx(0.5)}
    assert "error on validation data: 0.0100; without it, 0.2000." in words(made)


def test_scores_by_class_and_names_that_are_no_markdown(tmp_path):
    classes = {f"c{n}": {"precision": 1.0, "recall": 1.0, "f1": n / 40, "support": 1000} for n in range(40)}
    classes["<b>|"] = {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    text = card(tmp_path, "glue", {"test_by_class": classes}, ["<i>"], records("run_glue.py")).text
    assert "| &lt;b>\\| | 0.000 | 0.000 | 0.000 | 1 |" in text and "| c28 |" in text and "| c29 |" not in text
    assert "These are 30 of 41 classes" in text
    assert "| c1 | 1.000 | 1.000 | 0.025 | 1,000 |" in text and "Trained on: &lt;i>." in text

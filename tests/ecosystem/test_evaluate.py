"""evaluate: our metrics beside its own interface, its combinations and its evaluators, without a network."""

from itertools import pairwise

import datasets
import evaluate
import numpy as np
import pytest
import sklearn.metrics
from transformers import pipeline

from bert_training.tasks import evaluate_metrics
from bert_training.tasks.squad.metrics import squad_metric
from modeling_bert_repro import BertForQuestionAnswering
from modeling_bert_repro.qa_pipeline import QuestionAnsweringPipeline
from tests.helpers.bert_pairs import randomise
from tests.helpers.ecosystem import PLAIN, TRUSTED, WAYS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning:evaluate")]
TEXTS = ["the old house", "a king walked by the river", "the queen opened the letter .", "the night was old ."] * 3


@pytest.mark.tried("evaluate", '`evaluate.load("accuracy")` without a network')
@pytest.mark.xfail(
    strict=True,
    raises=(ConnectionError, FileNotFoundError),
    reason="the package contains no metrics and fetches their code from the Hub: "
    "`bert_training/tasks/evaluate_metrics.py` has those of GLUE and of named entities, with the same keys",
)
def test_metrics_of_the_hub():
    evaluate.load("accuracy")


@pytest.mark.tried("evaluate", "`evaluate.combine` of our metrics, batch by batch: the numbers of scikit-learn")
def test_our_metrics_are_combined():
    generator = np.random.default_rng(0)
    predictions, references = generator.integers(0, 2, (2, 60)).tolist()
    both = evaluate.combine([evaluate_metrics.Accuracy(), evaluate_metrics.F1()])
    for start in range(0, 60, 20):
        both.add_batch(predictions=predictions[start : start + 20], references=references[start : start + 20])
    assert both.compute() == {
        "accuracy": pytest.approx(sklearn.metrics.accuracy_score(references, predictions)),
        "f1": pytest.approx(sklearn.metrics.f1_score(references, predictions)),
    }


NO_EVALUATOR = "version 0.4.6 asks for `transformers.TFPreTrainedModel`, which transformers 5 no longer has"


@pytest.mark.tried("evaluate", '`evaluator("text-classification")` with a finished folder and our metric')
@pytest.mark.xfail(strict=True, raises=AttributeError, reason=NO_EVALUATOR)
@pytest.mark.parametrize("way", [PLAIN, TRUSTED])
def test_the_evaluator_of_texts(way, classifier):
    classify = pipeline("text-classification", str(classifier), trust_remote_code=way == TRUSTED, device="cpu")
    assert type(classify.model).__module__.startswith(WAYS[way])
    names = [answer["label"] for answer in classify(TEXTS)]
    labels = [classify.model.config.label2id[name] for name in names]
    labels[::3] = [(label + 1) % 3 for label in labels[::3]]
    scores = evaluate.evaluator("text-classification").compute(
        model_or_pipeline=classify,
        data=datasets.Dataset.from_dict({"text": TEXTS, "label": labels}),
        metric=evaluate_metrics.Accuracy(),
        label_mapping=classify.model.config.label2id,
    )
    assert scores["accuracy"] == pytest.approx(8 / 12)


@pytest.mark.tried("evaluate", "`add_batch` and `compute` of our SQuAD metric with the answers of our pipeline")
def test_answers_of_the_pipeline_are_scored(finished, tokenizer):
    model = randomise(BertForQuestionAnswering.from_pretrained(finished)).eval()
    answer = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    metric, contexts = squad_metric(), [f"{text} {other}" for text, other in pairwise(TEXTS[:4])]
    for number, context in enumerate(contexts):
        found = answer(question="the king", context=context)
        assert found["answer"] == context[found["start"] : found["end"]]
        text = found["answer"] if number == 0 else "mountain"
        metric.add_batch(
            predictions=[{"id": str(number), "prediction_text": found["answer"]}],
            references=[{"id": str(number), "answers": {"text": [text], "answer_start": [0]}}],
        )
    assert metric.compute() == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(100 / 3)}

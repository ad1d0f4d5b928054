"""The question-answering pipeline gives the answers of the post-processing that is scored, and those worked by hand."""

import copy
import inspect
import json

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer, BertConfig, pipelines
from transformers.pipelines import PIPELINE_REGISTRY

import modeling_bert_repro
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.stored_flags import DEFAULTS
from modeling_bert_repro import qa_pipeline
from modeling_bert_repro.qa_pipeline import QuestionAnsweringPipeline, register_question_answering
from tests.helpers.clean_process import run_clean
from tests.helpers.evaluated_answers import evaluated
from tests.helpers.model_folders import save_model
from tests.helpers.words import WORDS

CONTEXT = "the old doctor opened a small red house by the river ."
LENGTHS = {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 6, "max_answer_length": 4, "n_best_size": 7}


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return AutoTokenizer.from_pretrained(tokenizer_folder)


def network(tokenizer, settings: dict | None = None, threshold: float | None = None, stock: bool = True):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.5, **sizes)
    if settings:
        config.question_answering = settings
    if threshold is not None:
        config.null_score_diff_threshold = threshold
    module = transformers if stock else modeling_bert_repro
    return module.BertForQuestionAnswering(config).eval()


def sure_of(model, tokenizer, word: str):
    """A copy of the network whose best span is the given word. All other logits are random and small."""
    model = copy.copy(model)
    forward, wanted = model.forward, tokenizer.convert_tokens_to_ids(word)

    def planted(input_ids, **batch):
        outputs = forward(input_ids=input_ids, **batch)
        for name in ("start_logits", "end_logits"):
            outputs[name] = 0.01 * outputs[name] + 9.0 * (input_ids == wanted)
        return outputs

    model.forward = planted
    return model


def same_result(found: dict, expected: dict) -> None:
    assert found == {**expected, "score": pytest.approx(expected["score"], rel=1e-5)}


def random_questions(count: int) -> list[Question]:
    rng, questions = np.random.default_rng(7), []
    for i in range(count):
        glue = ["", "", "", ",", "\u0301", "\u200d", "-x", "\u4e2d", "[SEP]"]
        words = [str(w) + str(rng.choice(glue)) for w in rng.choice(WORDS, rng.integers(0, 60))]
        context = "".join(w + str(rng.choice([" ", "  ", "\n"])) for w in words)
        questions.append(Question(f"q{i}", " ".join(rng.choice(WORDS, rng.integers(1, 12))), context))
    return [*questions, Question("empty", "old", " \u200b")]


@pytest.mark.parametrize(("threshold", "batch_size"), [(None, 5), (0.0, 1), (1.5, 5), (-2.0, 1)])
def test_answers_are_those_of_the_post_processing(tokenizer, threshold, batch_size):
    model = network(tokenizer, LENGTHS, threshold)
    questions = random_questions(25)
    expected = evaluated(model, tokenizer, questions)
    pipe = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    found = pipe(question=[q.text for q in questions], context=[q.context for q in questions], batch_size=batch_size)
    every = pipe([{"question": q.text, "context": q.context} for q in questions], top_k=99, batch_size=batch_size)
    for question, one, results in zip(questions, found, every):
        answer = expected.predictions[question.id]
        assert one["answer"] == answer == question.context[one["start"] : one["end"]]
        same_result(one, results[0])
        expected_entries = expected.nbest[question.id] or [{"text": "", "probability": 0.0, "start": 0, "end": 0}]
        by_text = {e["text"]: (e["start"], e["end"]) for e in expected_entries}
        assert {r["answer"]: (r["start"], r["end"]) for r in results} == by_text
        shares = {e["text"]: e["probability"] for e in expected_entries}
        assert {r["answer"]: r["score"] for r in results} == pytest.approx(shares, rel=1e-4)
        # The answer comes first, then the others in the order of the n-best list.
        assert [r["answer"] for r in results] == [answer, *(text for text in by_text if text != answer)]
    if threshold == 1.5:
        assert 0 < list(expected.predictions.values()).count("") < len(questions)


class RandomLogits(torch.nn.Module):
    """Start and end logits that depend on nothing but the window. They are integers, so that many scores are equal."""

    def __init__(self, config: BertConfig, seed: int):
        super().__init__()
        self.config, self.seed, self.device = config, seed, torch.device("cpu")

    def forward(self, input_ids, **_):
        rows = []
        for ids in input_ids.tolist():
            rng = np.random.default_rng([self.seed, *(token for token in ids if token)])  # Padding is token 0.
            rows.append(torch.from_numpy(rng.integers(-3, 4, (2, 64))[:, : len(ids)]).float())
        start, end = torch.stack(rows, dim=1)
        return transformers.utils.ModelOutput(start_logits=start, end_logits=end)


@pytest.mark.parametrize("wanted", [1, 7, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_both_searches_give_the_same_n_best_on_random_logits(tokenizer, wanted, seed):
    """Both lists have the same spans in the same order, also where scores are equal."""
    settings = LENGTHS | {"n_best_size": wanted}
    stock = network(tokenizer, settings)
    model, questions = RandomLogits(stock.config, seed), random_questions(12)
    expected = evaluated(model, tokenizer, questions).nbest
    pipe = QuestionAnsweringPipeline(model=stock, tokenizer=tokenizer, device="cpu")
    pipe.model = model
    ties = 0
    for question in questions:
        windows = [
            pipe._forward(row) for row in pipe.preprocess({"question": question.text, "context": question.context})
        ]
        found = qa_pipeline._best_spans(windows, wanted, settings["max_answer_length"])
        assert [(one["answer"], one["start"], one["end"], one["score"]) for one in found] == [
            (one["text"], one["start"], one["end"], one["start_logit"] + one["end_logit"])
            for one in expected[question.id]
        ]
        ties += len(found) - len({one["score"] for one in found})
    assert ties > 0 or wanted == 1


def about(answer: dict) -> dict:
    """The same answer, with a score that may differ in its last digits.

    On some processors the last digit of a sum depends on where in the memory the numbers are.
    """
    return answer | {"score": pytest.approx(answer["score"], rel=1e-9)}


def test_every_form_of_call_gives_the_same_answer(tokenizer):
    model = sure_of(network(tokenizer), tokenizer, "red")
    pipe = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    example = {"question": "what ?", "context": CONTEXT}
    one = pipe(**example)
    assert one == {"score": pytest.approx(1.0, abs=1e-2), "start": 30, "end": 33, "answer": "red"}
    assert pipe(example) == about(one)
    assert pipe([example, example]) == [about(one)] * 2
    assert pipe(question=["what ?"] * 2, context=[CONTEXT] * 2) == [about(one)] * 2
    assert list(pipe(example for _ in range(2))) == [about(one)] * 2
    assert pipe([]) == []
    several = pipe(**example, top_k=3)
    assert several[0] == about(one) and len(several) == 3
    assert [r["score"] for r in several] == sorted((r["score"] for r in several), reverse=True)
    assert len(tokenizer.tokenize(pipe(**example, max_answer_len=1, top_k=9)[8]["answer"])) == 1


def test_an_answer_in_a_late_window(tokenizer):
    model = sure_of(network(tokenizer), tokenizer, "red")
    pipe = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    filler = "the old garden and the new school . " * 40
    context = filler + CONTEXT + filler
    for options in ({}, {"max_seq_len": 16, "doc_stride": 3}, {"batch_size": 8}):
        result = pipe(question="what is it ?", context=context, **options)
        assert (result["answer"], result["start"]) == ("red", len(filler) + 30)
    assert len(list(pipe.preprocess({"question": "what is it ?", "context": context}))) > 5


def test_no_answer_by_the_threshold_of_the_config(tokenizer):
    model = sure_of(network(tokenizer, threshold=0.0), tokenizer, "[CLS]")
    pipe = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    example = {"question": "what ?", "context": CONTEXT}
    none = pipe(**example)
    assert (none["answer"], none["start"], none["end"]) == ("", 0, 0) and none["score"] > 0.99
    assert pipe(**example, handle_impossible_answer=False)["answer"]
    sure = pipe(**example, null_score_diff_threshold=100.0)
    assert sure["answer"] and sure["score"] < 0.01
    results = pipe(**example, null_score_diff_threshold=100.0, top_k=4)
    assert [result["answer"] for result in results[:2]] == [sure["answer"], ""]
    assert [result["score"] for result in results[:2]] == pytest.approx([sure["score"], none["score"]])
    model.config.null_score_diff_threshold = 100.0
    assert pipe(**example) == about(sure)
    del model.config.null_score_diff_threshold
    assert pipe(**example)["answer"] and pipe(**example, handle_impossible_answer=True) == about(none)
    assert pipe(question="what ?", context="\u200b") == {"score": 0.0, "start": 0, "end": 0, "answer": ""}


def test_defaults_are_those_of_the_training_side(tokenizer):
    source = inspect.getsource(qa_pipeline)
    for name, value in DEFAULTS.items():
        assert f'_setting("{name}", {value})' in source or f'_setting("{name}", min({value}, ' in source


@pytest.fixture
def registry(monkeypatch):
    """Undo at the end what a test registers, because registration changes the whole process."""
    monkeypatch.setattr(PIPELINE_REGISTRY, "supported_tasks", dict(PIPELINE_REGISTRY.supported_tasks))
    if hasattr(pipelines, "REMOVED_TASKS"):
        monkeypatch.setattr(pipelines, "REMOVED_TASKS", dict(pipelines.REMOVED_TASKS))


@pytest.mark.parametrize("stock", [True, False])
def test_registered_it_opens_a_folder_by_its_task(tokenizer, tmp_path, registry, stock):
    model = network(tokenizer, LENGTHS, 0.5, stock)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(KeyError):
        transformers.pipeline("question-answering", model=str(tmp_path))
    register_question_answering()
    pipe = transformers.pipeline("question-answering", model=str(tmp_path), top_k=2, device="cpu")
    assert type(pipe) is QuestionAnsweringPipeline and type(pipe.model) is transformers.BertForQuestionAnswering
    direct = QuestionAnsweringPipeline(model=model, tokenizer=tokenizer, device="cpu")
    found = pipe({"question": "what ?", "context": CONTEXT})
    for one, expected in zip(found, direct(question="what ?", context=CONTEXT, top_k=2), strict=True):
        same_result(one, expected)


@pytest.mark.parametrize("name", ["BertForTokenClassification", "BertForPreTraining", "BertModel"])
def test_a_folder_without_the_head_is_refused(tokenizer, pretrained, tmp_path, registry, name):
    """transformers would draw the head at random."""
    folder = save_model(tmp_path / "model", pretrained, name)
    register_question_answering()
    with pytest.raises(ValueError, match=f"model: expected a model that was fine-tuned .*, got a {name}; run_squad.py"):
        transformers.pipeline("question-answering", model=str(folder))


@pytest.mark.slow
def test_a_saved_pipeline_takes_its_code_along(tokenizer, tmp_path, registry):
    """It opens with trust_remote_code in a process that cannot import this package."""
    register_question_answering()
    model = network(tokenizer, LENGTHS)
    pipe = transformers.pipeline("question-answering", model=model, tokenizer=tokenizer, device="cpu")
    expected = pipe(question="what ?", context=CONTEXT)
    pipe.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "qa_pipeline.py").exists()
    output = run_clean(
        f"""
        import json, transformers
        pipe = transformers.pipeline("question-answering", sys.argv[1], trust_remote_code=True, device="cpu")
        print(json.dumps(pipe(question="what ?", context={CONTEXT!r})))
        """,
        tmp_path / "model",
    )
    same_result(json.loads(output.splitlines()[-1]), expected)

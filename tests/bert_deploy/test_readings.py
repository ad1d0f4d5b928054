"""bert_deploy/readings.py: what models say, against transformers' pipelines and the numbers of its classes."""

import dataclasses

import numpy as np
import pytest
import torch
import transformers
from transformers import pipeline

from bert_deploy import ask, readings
from bert_deploy.folder import open_folder
from bert_training.tasks.classification.long_texts import text_logits
from tests.bert_deploy.guesses import alone, classify
from tests.helpers.model_folders import save_model
from tokenization.errors import UserError
from tokenization.wordpiece import FullTokenizer

TEXT = "the old doctor opened a small red house"
PAIR = ("the king walked to the river .", "he went home .")
MASKED = "the [MASK] doctor opened a [MASK] house ."


@pytest.fixture(scope="module")
def folders(tmp_path_factory, pretrained):
    """A function: a head, and fields of its config -> its folder."""
    folder, made = tmp_path_factory.mktemp("heads"), {}

    def make(name, run=None, **fields):
        key = (name, str(run), str(fields))
        if key not in made:
            made[key] = save_model(folder / str(len(made)), pretrained, name, run=run, **fields)
        return made[key]

    return make


@pytest.fixture
def opened(folders):
    """A function: a head, and fields of its config -> an opened folder."""
    return lambda name, run=None, **fields: open_folder(str(folders(name, run, **fields)))


def stock_logits(folder, name, *texts, **options):
    """The outputs of transformers' class for one text or pair, tokenised by the tokenizer itself."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        model = getattr(transformers, name).from_pretrained(folder, attn_implementation="eager").eval()
        return model(**tokenizer(*texts, return_tensors="pt"), **options)


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForMaskedLM"])
def test_masked_words_are_those_of_the_fill_mask_pipeline(opened, folders, name):
    found = alone(readings.masked_words, opened(name), MASKED)
    expected = pipeline("fill-mask", model=str(folders(name)), top_k=readings.GUESSES)(MASKED)
    assert len(found) == len(expected) == 2
    for guesses, entries in zip(found, expected):
        assert [guess.text for guess in guesses] == [entry["token_str"].replace(" ", "") for entry in entries]
        assert [guess.probability for guess in guesses] == pytest.approx(
            [entry["score"] for entry in entries], rel=1e-4
        )


def test_a_typed_separator_is_text_and_no_special_token(folders):
    found = open_folder(str(folders("BertForMaskedLM")))
    plain = alone(readings.masked_words, found, "[SEP] [MASK]")
    split = pipeline("fill-mask", model=str(folders("BertForMaskedLM")), top_k=8)("[SEP] [MASK]")
    assert [guess.probability for guess in plain[0]] != pytest.approx([entry["score"] for entry in split], rel=1e-3)


def test_next_sentences_are_ranked_by_the_probability_that_they_follow(opened, folders):
    lines = [PAIR[1], "a house .", "the red king opened the old river"]
    model, predicted = opened("BertForPreTraining"), []
    model.model.cls.predictions.register_forward_pre_hook(lambda _, inputs: predicted.append(len(inputs[0])))
    found = alone(readings.next_sentence, model, PAIR[0], lines)
    assert predicted == [0]  # pieces, whose logits would take most of the time, and 60 MB a row
    shares = {}
    for line in lines:
        outputs = stock_logits(folders("BertForPreTraining"), "BertForPreTraining", PAIR[0], line)
        shares[line] = float(outputs.seq_relationship_logits.softmax(-1)[0, 0])
    assert [guess.text for guess in found] == sorted(shares, key=lambda line: -shares[line])
    assert {guess.text: guess.probability for guess in found} == pytest.approx(shares, rel=1e-4)


@pytest.mark.parametrize("texts", [(TEXT,), PAIR])
def test_classes_are_those_of_the_text_classification_pipeline(opened, folders, texts):
    fields = {"id2label": {0: "no", 1: "perhaps", 2: "yes"}, "problem_type": "single_label_classification"}
    found = classify(opened("BertForSequenceClassification", **fields), *texts)
    ask_pipeline = pipeline(
        "text-classification", model=str(folders("BertForSequenceClassification", **fields)), top_k=None
    )
    expected = ask_pipeline(dict(zip(("text", "text_pair"), texts)))
    assert [guess.text for guess in found] == [entry["label"] for entry in expected]
    assert [guess.probability for guess in found] == pytest.approx([entry["score"] for entry in expected], rel=1e-4)


@pytest.mark.parametrize("place", ["run.json", "config.json"])
def test_a_model_of_pairs_needs_both_texts_and_another_takes_one(opened, place):
    def model_of(count):
        says = {"texts_per_example": count}
        run, fields = ({"flags": {}} | says, {}) if place == "run.json" else (None, {"fine_tuning": says})
        return opened("BertForSequenceClassification", run, **fields)

    with pytest.raises(ValueError, match="judges single texts; leave the second one out"):
        classify(model_of(1), *PAIR)
    model = model_of(2)
    with pytest.raises(ValueError, match="judges pairs; write a second text"):
        classify(model, TEXT)
    assert classify(model, *PAIR)
    if place == "run.json":
        return
    with pytest.raises(UserError, match="--second_text is for models of pairs"):  # as `ask` calls it
        next(ask.verdicts(model.model, model.tokenizer, [TEXT]))


def test_the_next_piece_is_predicted_from_the_last_one(opened, folders):
    found = alone(readings.masked_words, opened("BertForMaskedLM", is_decoder=True), TEXT)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders("BertForMaskedLM", is_decoder=True))
    logits = stock_logits(folders("BertForMaskedLM", is_decoder=True), "BertForMaskedLM", TEXT).logits
    values, ids = logits[0, -2].softmax(-1).topk(readings.GUESSES)  # the last position is that of [SEP]
    assert [guess.text for guess in found[0]] == tokenizer.convert_ids_to_tokens(ids.tolist())
    assert [guess.probability for guess in found[0]] == pytest.approx(values.tolist(), rel=1e-4)


def test_names_are_those_of_the_token_classification_pipeline(opened, folders):
    fields = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}}
    text = "the Old doctor,opened a  small red house in zagreb ."
    found = alone(readings.names_in, opened("BertForTokenClassification", **fields), text)
    tag = pipeline("token-classification", model=str(folders("BertForTokenClassification", **fields)))
    first = {entry["start"]: entry for entry in tag(text) if not entry["word"].startswith("##")}
    assert found
    for name in found:
        assert first[name.start]["entity"].endswith(name.kind) and text[name.start : name.end].strip()
        inside = [entry["score"] for start, entry in first.items() if name.start <= start < name.end]
        assert name.probability == pytest.approx(min(map(float, inside)), rel=1e-4)
    assert {start for name in found for start in first if name.start <= start < name.end} == set(first)


def test_classes_without_b_and_i_mark_single_words(folders):
    fields = {"id2label": {0: "O", 1: "NOUN", 2: "VERB"}}
    found = alone(readings.names_in, open_folder(str(folders("BertForTokenClassification", **fields))), TEXT)
    assert found and {name.kind for name in found} <= {"NOUN", "VERB"}
    assert {TEXT[name.start : name.end] for name in found} <= set(TEXT.split())


@pytest.mark.parametrize("threshold", [None, -1000.0, 1000.0])
def test_answers_are_those_of_the_evaluation(opened, folders, threshold):
    """tests/tasks/squad/test_answers.py compares those with a search through all spans."""
    fields = {} if threshold is None else {"null_score_diff_threshold": threshold}
    fields["question_answering"] = {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 6}
    context = "the old doctor opened a small red house by the river . " * 4
    model = opened("BertForQuestionAnswering", **fields)
    found = alone(readings.answer, model, "who opened it ?", context)
    network = transformers.BertForQuestionAnswering.from_pretrained(folders("BertForQuestionAnswering", **fields))
    (expected,) = ask.answers(network.eval(), model.tokenizer, [("who opened it ?", context)], None)
    assert (found.answer, found.start, found.end) == (expected["answer"], expected["start"], expected["end"])
    assert context[found.start : found.end] == found.answer
    assert (found.null_odds is None) == (found.threshold is None) == (threshold is None)
    assert (found.answer == "") == (threshold == -1000.0)
    assert sum(entry["probability"] for entry in found.entries) == pytest.approx(1.0)


# --- as the model was trained ------------------------------------------------------------------------------

CLASSIFIER = "BertForSequenceClassification"
NAMES = {"id2label": {0: "no", 1: "perhaps", 2: "yes"}}


def stored(script="run_glue.py", **facts) -> dict:
    """The field of a config in which the scripts store how a model was trained."""
    return {"fine_tuning": {"script": script} | facts}


def test_the_temperature_and_the_thresholds_of_the_training_decide(folders):
    plain, warm = (
        classify(open_folder(str(folders(CLASSIFIER, **NAMES, **facts))), TEXT)
        for facts in (stored(), stored(temperature=2.0))
    )
    logits = {guess.text: np.log(guess.probability) for guess in plain}
    shares = torch.tensor(list(logits.values())).div(2).softmax(-1).tolist()
    assert {guess.text: guess.probability for guess in warm} == pytest.approx(dict(zip(logits, shares)), rel=1e-5)

    several = folders(
        CLASSIFIER, **NAMES, **stored(thresholds=[0.999, 0.5, 1e-6]), problem_type="multi_label_classification"
    )
    opened = open_folder(str(several))
    found = classify(opened, TEXT)
    assert {guess.text: guess.threshold for guess in found} == {"no": 0.999, "perhaps": 0.5, "yes": 1e-6}
    given = {guess.text: guess.given for guess in found}
    assert (given["no"], given["yes"]) == (False, True)
    (record,) = ask.verdicts(opened.model, opened.tokenizer, [TEXT])
    assert record["labels"] == [guess.text for guess in found if guess.given]
    assert record["probabilities"] == pytest.approx({one.text: one.probability for one in found}, abs=1e-6)
    opened.model.config.fine_tuning = stored(thresholds=[0.5] * 3)["fine_tuning"]  # what is stored is read once
    assert classify(opened, TEXT) == found


def test_long_texts_are_read_in_the_windows_of_the_training(folders):
    facts = stored(max_seq_length=12, long_texts="windows:3")
    opened = open_folder(str(folders(CLASSIFIER, **NAMES, **facts)))
    texts = [TEXT + " house" * 8, TEXT * 9]
    logits, read = text_logits(opened.model, opened.tokenizer, [texts])
    assert len(read.input_ids[0]) > 1 and [lost > 0 for lost in read.lost] == [False, True]
    for text, expected, lost in zip(texts, logits, read.lost):
        found = classify(opened, text)
        shares = dict(zip(NAMES["id2label"].values(), torch.from_numpy(expected).softmax(-1).tolist()))
        assert {guess.text: guess.probability for guess in found} == pytest.approx(shares, rel=1e-4)
        assert {guess.lost for guess in found} == {lost}
    with pytest.raises(ValueError, match=f"pieces, of which this model would not read {read.lost[1]}; shorten"):
        classify(dataclasses.replace(opened, refuses_long_texts=True), texts[1])
    facts["fine_tuning"]["label_token"] = "last"
    with pytest.raises(UserError, match="--label_token and --long_texts windows exclude each other"):
        open_folder(str(folders(CLASSIFIER, **NAMES, **facts)))


def test_a_network_with_one_segment_reads_both_texts_of_a_pair_as_segment_0(folders):
    one_segment = {"type_vocab_size": 1}
    opened = open_folder(str(folders(CLASSIFIER, **NAMES, **one_segment)))
    batch = transformers.AutoTokenizer.from_pretrained(opened.folder)(*PAIR, return_tensors="pt")
    with torch.no_grad():
        logits = opened.model(**{name: batch[name] for name in ("input_ids", "attention_mask")}).logits[0]
    shares = dict(zip(NAMES["id2label"].values(), logits.softmax(-1).tolist()))
    found = {guess.text: guess.probability for guess in classify(opened, *PAIR)}
    assert found == pytest.approx(shares, rel=1e-4)


# --- inside ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["BertModel", "BertForPreTraining", "BertForQuestionAnswering"])
def test_attention_is_that_of_the_layer_and_its_rows_sum_to_one(opened, folders, name):
    for layer in (1, 2):
        tokens, weights = readings.attention(opened(name), *PAIR, layer)
        expected = stock_logits(folders(name), name, *PAIR, output_attentions=True).attentions
        assert weights.shape == (2, len(tokens), len(tokens)) and tokens[0] == "[CLS]" and tokens[-1] == "[SEP]"
        assert np.allclose(weights, expected[layer - 1][0].numpy(), atol=1e-5)
        assert np.allclose(weights.sum(-1), 1)
    assert not np.allclose(*(readings.attention(opened(name), *PAIR, layer)[1] for layer in (1, 2)))


def test_the_steps_from_a_text_to_its_pieces(folders):
    model = open_folder(str(folders("BertModel")))
    text = "Thé OLD  king,walked [SEP] zagreb 中 ."
    found = readings.pieces(model, text)
    assert found.normalised.split() == "the old king,walked [sep] zagreb 中 .".split()
    readable = FullTokenizer(folders("BertModel") / "vocab.txt")
    assert found.words == readable.basic_tokenizer.tokenize(text)
    assert [piece.text for piece in found.pieces] == ["[CLS]", *readable.tokenize(text), "[SEP]"]
    assert [readable.vocab[piece.text] for piece in found.pieces] == [piece.id for piece in found.pieces]
    for piece in found.pieces[1:-1]:
        original = text[piece.start : piece.end]
        assert original.lower().replace("é", "e") == piece.text.removeprefix("##") or piece.text == "[UNK]"
        assert found.words[piece.word].find(piece.text.removeprefix("##")) >= 0 or piece.text == "[UNK]"
    assert found.pieces[0].word is found.pieces[-1].word is None


# --- texts that are refused ------------------------------------------------------------------------------


def test_what_the_model_cannot_read_is_refused_with_a_sentence(folders):
    model = open_folder(str(folders("BertForPreTraining")))
    with pytest.raises(ValueError, match="71 pieces with the special tokens, and this model reads at most 64"):
        alone(readings.masked_words, model, "[MASK]" + " old" * 68)
    with pytest.raises(ValueError, match=r"Write \[MASK\] where a word is missing"):
        alone(readings.masked_words, model, "no gap")


@pytest.mark.parametrize(
    ("text", "stored", "words"),
    [
        ("王小明在the北京。", {}, "王 小 明 在 the 北 京 。"),  # as run_ner.py and the pipeline read it
        ("U.S. men.", {}, "U . S . men ."),
        ("(U.S. men)", {"fine_tuning": {"words": {"whole": ["U.S."]}}}, "( U.S. men )"),
        ("red.men/a.", {"fine_tuning": {"words": {"unusual": ["x/x"]}}}, "red.men / a ."),
    ],
)
def test_names_are_found_word_by_word_as_the_model_was_trained(opened, text, stored, words):
    model = opened("BertForTokenClassification", id2label={0: "NR", 1: "NN", 2: "VV"}, **stored)
    found = alone(readings.names_in, model, text)
    assert [text[name.start : name.end] for name in found] == words.split()

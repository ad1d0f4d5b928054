"""schemes.py and raw_text.py: plain tags, tags in unusual spellings, comments, numbers with names, plain sentences."""

import json

import pytest
from sklearn.metrics import classification_report

from bert_training.tasks.ner import raw_text, schemes, tagged_text
from bert_training.tasks.ner.metrics import word_scores
from bert_training.tasks.ner.sources import load_data
from bert_training.tasks.ner.tagged_text import Sentence, Split
from tests.helpers.tagged_text import ner_arguments, ner_error, tags, write

POS = "the DT\ncat NN\nsleeps VBZ\n. .\n"
NAMES = "Ada B-PER\nLovelace I-PER\nin O\nLondon B-LOC\n"


def loaded(folder, text, name="train.txt", **flags):
    path = write(folder, text, name)
    return load_data(ner_arguments(train_file=path, validation_file=path, **flags))


def test_plain_tags_are_classes_of_words(tmp_path):
    data = loaded(tmp_path, POS)
    assert data.label_names == (".", "DT", "NN", "VBZ") and data.plain
    assert tags(data.splits["train"]) == [["DT", "NN", "VBZ", "."]]
    assert "tags plain, a class for every word" in data.summary()
    assert data.metric_names()[1] == "eval_accuracy" and data.baselines() == {"eval_accuracy": 0.25}
    rare = write(tmp_path, "the DT\nThe XX\n", "dev.txt")
    other = load_data(ner_arguments(train_file=write(tmp_path, POS), validation_file=rare))
    assert "the training data has no tag XX" in other.summary()
    evaluated = load_data(ner_arguments(validation_file=write(tmp_path, POS)), data.label_names)
    assert tags(evaluated.splits["validation"]) == [["DT", "NN", "VBZ", "."]]
    with_o = loaded(tmp_path, "the DT\nit O\n", tag_scheme="plain")  # a tag set of its own may have the letter
    assert with_o.label_names == ("DT", "O") and with_o.plain


@pytest.mark.parametrize(
    ("text", "scheme", "flags"),
    [
        (NAMES, "BIO", {}),
        (NAMES.replace("-", "_"), "BIO", {}),
        (NAMES.replace("B-", "I-"), "IOB1", {}),
        (NAMES.replace("B-", "").replace("I-", ""), "IO", {"tag_scheme": "io"}),
        (NAMES.replace("I-", "E-").replace("B-LOC", "S-LOC"), "BIOES", {}),
        ("# id 7\n" + NAMES + "\n# text = Ada ...\n# newpar id x\n" + NAMES, "BIO", {}),
    ],
)
def test_every_spelling_becomes_bio(tmp_path, text, scheme, flags):
    train = loaded(tmp_path, text, **flags).splits["train"]
    assert tags(train)[-1] == ["B-PER", "I-PER", "O", "B-LOC"]
    assert train.facts["tag_scheme"] == scheme and train.facts.get("comment_lines", 0) == text.count("#")


BARE = {
    "BIO": "B I B O B",
    "IOB1": "I I B O I",
    "BIOES": "B E S O S",
    "BILOU": "B L U O U",
    "BMES": "B E S O S M",
}


@pytest.mark.parametrize("layout", ["three columns", "numbers", "with --tag_scheme io"])
@pytest.mark.parametrize("scheme", BARE)
def test_tags_without_a_type_are_spans_of_one_type(tmp_path, scheme, layout):
    given = [*(BARE[scheme].replace(" M", " B M E") if scheme == "BMES" else BARE[scheme]).split()]
    flags = {"tag_scheme": "io"} if "io" in layout else {"tag_names": sorted({*given})} if layout == "numbers" else {}
    numbers = [sorted({*given}).index(tag) for tag in given]
    row = {"tokens": ["w"] * len(given), "ner_tags": numbers if layout == "numbers" else given}
    text = {"json": json.dumps(row), "numbers": json.dumps(row)}.get(
        layout, "".join(f"w NN {tag}\n" if "three" in layout else f"w\t{tag}\n" for tag in given)
    )
    data = loaded(tmp_path, text, f"a.{'jsonl' if layout in ('json', 'numbers') else 'txt'}", **flags)
    (found,) = tags(data.splits["train"])
    assert found[:5] == ["B-SPAN", "I-SPAN", "B-SPAN", "O", "B-SPAN"] and data.label_names == ("O", "B-SPAN", "I-SPAN")
    assert data.splits["train"].facts["tag_scheme"] == ("BIOES" if scheme == "BILOU" else scheme) and not data.plain


def test_adjacent_spans_without_a_type_are_scored_as_by_seqeval(tmp_path):
    """By hand: of the spans 0-2 and 2-4, the guess has 0-2 and 2-3: precision, recall and F1 are 1/2."""
    train = loaded(tmp_path, "".join(f"w {tag}\n" for tag in "BIBIO")).splits["train"]
    guess = [["B-SPAN", "I-SPAN", "B-SPAN", "O", "O"]]
    scores = tagged_text.score(train, guess)
    assert scores["f1"] == scores["SPAN_f1"] == 0.5 and scores["SPAN_number"] == 2
    seqeval = pytest.importorskip("seqeval.metrics")
    assert seqeval.f1_score([[*"BIBIO"]], [[*"BIBOO"]]) == 0.5


def test_model_labels_without_a_type_are_those_of_spans(tmp_path):
    path = write(tmp_path, "cell B\nline I\nT B\nis O\n")
    found = load_data(ner_arguments(validation_file=path), schemes.with_types(["I", "B", "O"]))
    assert found.label_names == ("I-SPAN", "B-SPAN", "O") and not found.plain
    assert tags(found.splits["validation"]) == [["B-SPAN", "I-SPAN", "B-SPAN", "O"]]
    assert schemes.with_types(["O", "B_PER", "I_PER"]) == ("O", "B-PER", "I-PER")
    assert schemes.with_types(["DT", "B", "I"]) == ("DT", "B", "I")


@pytest.mark.parametrize("text", ["B A V B\n", "S M L\n", "S E V B I\n"])
def test_single_letters_may_be_classes_of_words(tmp_path, text):
    data = loaded(tmp_path, "".join(f"w {tag}\n" for tag in text.split()))
    assert data.plain and {*data.label_names} == {*text.split()}


@pytest.mark.parametrize("flags", [{}, {"tag_scheme": "io"}])
@pytest.mark.parametrize("text", ["B I-PER O", "B I 0 O", "B I X O"])
def test_tags_of_which_some_have_a_type_are_refused(tmp_path, text, flags):
    """Types B and I, which --tag_scheme io would make of them, are nobody's."""
    path = write(tmp_path, "".join(f"w {tag}\n" for tag in text.split()), "train.txt")
    told = ner_error(train_file=path, validation_file=path, **flags)
    assert "expected a tag O, B-TYPE or I-TYPE, got 'B'; correct it" in told


def test_a_word_may_begin_with_the_sign_of_comments(tmp_path):
    data = loaded(tmp_path, "# O\n#one B-TAG\n\n#two B-TAG\n# O\n")
    assert [sentence.words for sentence in data.splits["train"].sentences] == [["#", "#one"], ["#two", "#"]]
    assert tags(loaded(tmp_path, "# #\nno DT\n").splits["train"]) == [["#", "DT"]]
    path = write(tmp_path, "Ada B-PER\n\n# newpar\nBob B-PER\n", "train.txt")
    assert ":3: expected a tag O" in ner_error(train_file=path, validation_file=path)


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        ("the DT\n" * 3, {}, "all tags to train on are DT"),
        (NAMES, {"tag_scheme": "plain"}, "--tag_scheme plain is for tags without a prefix"),
    ],
)
def test_what_are_no_plain_tags_is_refused(tmp_path, text, flags, expected):
    path = write(tmp_path, text, "train.txt")
    assert expected in ner_error(train_file=path, validation_file=path, **flags)


def test_plain_and_other_tags_cannot_be_mixed(tmp_path):
    names, words = write(tmp_path, NAMES, "names.txt"), write(tmp_path, POS, "words.txt")
    assert f"{words}: expected tags of the training data" in ner_error(train_file=names, validation_file=words)
    assert f"{names}: expected tags of the training data" in ner_error(train_file=words, validation_file=names)


@pytest.mark.parametrize("layout", ["lines", "list"])
def test_json_has_names_or_numbers_and_any_column(tmp_path, layout):
    rows = [{"tokens": ["Ada", "slept"], "ner_tags": [1, 0], "upos": ["PROPN", "VERB"]}] * 2
    text = json.dumps(rows, indent=1) if layout == "list" else "\n".join(map(json.dumps, rows))
    names = ["O", "B-PER", "I-PER"]
    assert tags(loaded(tmp_path, text, "a.json", tag_names=names).splits["train"]) == [["B-PER", "O"]] * 2
    assert loaded(tmp_path, text, "a.json", label_column="upos").label_names == ("PROPN", "VERB")
    path = tmp_path / "a.json"
    told = ner_error(train_file=path, validation_file=path)
    assert f"{path}: " in told and "such as --tag_names O B-PER I-PER" in told
    assert "'pos' (name another with --label_column); got" in ner_error(
        train_file=path, validation_file=path, label_column="pos"
    )


def test_scores_of_words_are_those_of_scikit_learn():
    """Worked by hand, too: DT is right in 1 of 2 guesses and of 1 word, so that its F1 is 2/3."""
    predicted, true = [["DT", "DT"], ["NN", "X"]], [["DT", "NN"], ["NN", "NN"]]
    found = word_scores(predicted, true)
    assert found["accuracy"] == 0.5 and found["types"]["DT"]["f1"] == pytest.approx(2 / 3)
    words = ([tag for sentence in sentences for tag in sentence] for sentences in (true, predicted))
    theirs = classification_report(*words, output_dict=True, zero_division=0.0)
    for tag in ("DT", "NN", "X"):
        row = theirs[tag]
        assert [*found["types"][tag].values()] == [row["precision"], row["recall"], row["f1-score"], row["support"]]
    assert found["f1_macro"] == pytest.approx(theirs["macro avg"]["f1-score"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ada slept in London.", ["Ada", "slept", "in", "London", "."]),
        (' "Don\'t!" said U.S. men,', ['"', "Don't", "!", '"', "said", "U.S", ".", "men", ","]),
        ("阿达在London睡。", ["阿", "达", "在", "London", "睡", "。"]),
        ("...", [".", ".", "."]),
    ],
)
def test_words_of_plain_sentences(text, words):
    assert [text[begin:end] for begin, end in raw_text.words_of(text)] == words


TRAINED = {
    "whole words": (
        ["Mary-Ann joined AT&T , or U.S. Steel .".split(), "Mary-Ann left .".split(), ["O'Neil", "slept", "."]],
        "(Mary-Ann) left AT&T for U.S. Steel, U.K.! Jean-Luc's?",
        "( Mary-Ann ) left AT&T for U.S. Steel , U.K . ! Jean-Luc's ?",
    ),
    "white space alone": (
        ["Mary-Ann joined AT&T, or (so) he said.".split(), "I saw it.".split()],
        "He joined IBM, in Bonn.",
        "He joined IBM, in Bonn.",
    ),
    "punctuation apart": (
        ["Mary - Ann joined AT & T .".split(), "IL - 2 / 3 , or 3.5 .".split()],
        "IL-2/AT&T, in 7.25.",
        "IL - 2 / AT & T , in 7.25 .",
    ),
    "signs before words": (
        ["@ada saw #rain . @bob".split(), "@ noon . $ 5".split()],
        "@eve saw #snow, $7.",
        "@eve saw #snow , $ 7 .",
    ),
    "Chinese characters": ([[*"阿达在北京。"]], "王在北京。", "王 在 北 京 。"),
    "Chinese words": (["阿达 在 北京 。".split(), "在 在 在 。".split()], "王 在 上海。", "王 在 上海 。"),
}


@pytest.mark.parametrize("name", TRAINED)
def test_texts_are_cut_as_the_training_data_is(name):
    words, text, expected = TRAINED[name]
    train = Split("train", [Sentence(sentence, None, 0, "") for sentence in words])
    cutting = raw_text.cutting_of(train, raw_text.USUAL)
    cutting = raw_text.Cutting(**json.loads(json.dumps(vars(cutting))))  # as config.json has it
    for sentence in words:
        joined = " ".join(sentence)
        assert [joined[begin:end] for begin, end in raw_text.words_of(joined, cutting)] == sentence
    assert [text[begin:end] for begin, end in raw_text.words_of(text, cutting)] == expected.split()


def test_the_most_frequent_words_stay_whole_and_a_long_row_of_marks_takes_no_time():
    words = [f"{number}." for number in range(2000)] * 2 + ["1999."] * 3 + ["."] * 9000
    cutting = raw_text.cutting_of(Split("train", [Sentence(words, None, 0, "")]), raw_text.USUAL)
    assert len(cutting.whole) == 1000 and cutting.whole[0] == "1999."
    assert len([*raw_text.words_of("-" * 20_000, cutting)]) == 20_000


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("Ada slept in London .\nBob woke .\n", True),
        ("Hello\nAda slept in London.\n\nI got an O\nShe wrote to me again\nNobody knew .\n", True),
        ("阿达在伦敦睡觉。\n鲍勃醒了。\n", True),
        ("สวัสดีชาวโลกวันนี้อากาศดี\nฉันรักกรุงเทพมหานคร\n", False),
        (NAMES, False),
        (POS, False),
        ("Ada b-per\n", False),
        ("Ada\nslept\n", False),
        ("1 Ada NN\n2 . .\n", False),
        ("The king walked .\n", True),
        ("Go .\n", True),
        ("The king walked .\nThe queen smiled .\n", True),
    ],
)
def test_which_files_are_plain_sentences(tmp_path, text, raw):
    assert raw_text.is_raw_text(write(tmp_path, text), {"DT", "NN", "."}) == raw
    assert not raw_text.is_raw_text(write(tmp_path, text, "words.conll"), set())


def test_spans_have_their_places_in_the_line(tmp_path):
    text = "\nAda  Lovelace saw London.\nNobody came .\n"
    test = load_data(ner_arguments(test_file=write(tmp_path, text)), ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))
    split = test.splits["test"]
    predicted = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["O"] * 3]
    raw_text.write_spans(tmp_path / "spans.jsonl", split, predicted, test.label_names)
    first, second = map(json.loads, (tmp_path / "spans.jsonl").read_text().splitlines())
    assert first["line"] == 2 and first["text"] == "Ada  Lovelace saw London." and second["spans"] == []
    assert first["spans"] == [
        {"label": "PER", "start": 0, "end": 13, "text": "Ada  Lovelace"},
        {"label": "LOC", "start": 18, "end": 24, "text": "London"},
    ]
    assert "plain sentences, one a line" in test.summary()

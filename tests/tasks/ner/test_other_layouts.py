"""bert_training/tasks/ner/other_layouts.py: files of other layouts do not become words, and words stay words."""

import contextlib
import json

import pytest

from bert_training.tasks.ner.raw_text import is_raw_text
from bert_training.tasks.ner.sources import load_data
from bert_training.tasks.ner.tagged_text import read_conll
from tests.helpers.tagged_text import CONLL, ner_arguments, ner_error, tags, write

MODEL = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def error_of_test_file(folder, text: str, name: str = "new.txt") -> str:
    """The message about a file of words to predict, after its path."""
    path = write(folder, text, name)
    with pytest.raises(ValueError) as caught:
        load_data(ner_arguments(test_file=path), MODEL)
    (told,) = str(caught.value).splitlines()
    assert told.startswith(f"{path}:")
    return told.removeprefix(path)


IO = "are one name, give --tag_scheme io"
JSON, COMMAS, SENTENCE = "this is JSON; give a file named .jsonl", "separate the columns by tabs", "one word a line"


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ('{"tokens":["Ada","slept"]}\n{"tokens":["Bob","woke"]}\n', 1, JSON),
        ('{"text":"Ada"}\n', 1, JSON),
        ('["Ada","slept"]\n["Bob"]\n', 1, JSON),
        ('Ada\n{"text":"Bob"}\n', 2, JSON),
        ('[\n{\n"tokens":[\n"Ada",\n"slept"\n]\n}\n]\n', 1, JSON),
        ('{\n"data":[]\n}\n', 1, JSON),
        ("Ada,B-PER\nslept,O\nin,O\nLondon,B-LOC\n", 1, COMMAS),
        ("word,tag\nAda,B-PER\nslept,O\n", 1, COMMAS),
        ("Ada;NNP;B-PER\nslept;VBD;O\n", 1, COMMAS),
        ('"Ada","B-PER"\n"slept","O"\n', 1, COMMAS),
        ("0,Ada,B-PER\n1,slept,O\n", 1, COMMAS),
        ("Ada|B-PER\nslept|O\n", 1, COMMAS),
        ("Ada/B-PER\nslept/O\n./O\n", 1, COMMAS),
        ("Ada_B-PER\nslept_O\n", 1, COMMAS),
        ("Ada\u3000B-PER\nslept\u3000O\n", 1, COMMAS),
        ('"Ada"\n"slept"\n', 1, COMMAS),
        ("B-PER\nO\nO\nB-LOC\n", 1, "these are tags without their words"),
        ("<s>\nAda\nslept\n</s>\n", 4, "this is markup"),
        ("<s>Ada</s>\n", 1, "this is markup"),
        ("สวัสดีชาวโลกวันนี้อากาศดี\nฉันรักกรุงเทพมหานคร\n", 1, SENTENCE),
    ],
)
def test_a_file_of_one_column_that_holds_no_words_is_refused(tmp_path, text, line, remedy):
    told = error_of_test_file(tmp_path, text)
    assert told.startswith(f":{line}: expected a word, got ") and remedy in told


@pytest.mark.parametrize(
    "words",
    [
        ["Ada", "slept", ",", "said", "Bob", ";", "1,000", "[1]", "<unk>", ";)", "U.S.", '"', "{", "}", "|"],
        ["yes,but", "and/or", "AC/DC", "and", "then", "O", "x"],
        ["[", "1", "]"],
        ["中华人民共和国", "成立", "。", "人", "民"],
        ["की", "है", "।", "वह", "आया।"],
        ["1,000", "2,500.50"],
        ["Jack-O", "B-52"],
        ["มหาวิทยาลัย"],
        ["<unk>", "walked", "</s>"],
        ["https://example.org/a,b", "is", "there"],
    ],
)
def test_words_that_look_odd_stay_words(tmp_path, words):
    path = write(tmp_path, "\n".join(words) + "\n\nend\n")
    assert [sentence.words for sentence in read_conll(path).sentences] == [words, ["end"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada slept in London .\nBob woke .\n", [":1: expected a tag", "got '.'", SENTENCE]),
        ("Ada B-PER\nBob woke up .\n", [":2: expected 2 columns as on line 1, got 4", "correct the line"]),
        ('{"tokens": ["Ada", "slept"]}\n', [":1: expected a tag", JSON]),
        ("Ada B-PER\n# a comment line\n", [":2: expected 2 columns", "delete the line if it is a comment"]),
        ("Sentence: 1,Ada,NNP,B-PER\n,slept,VBD,O\n", [":1: expected a tag", COMMAS]),
        ('<doc id="1" title="x">\nAda B-PER\n', [":1: expected a tag", "this is markup"]),
        ("1\tAda\tB-PER\tO\n2\tslept\tO\tO\n\n1\tBob\tB-PER\tO\n", [":1: expected a word, got '1'", "only numbers"]),
        ("Ada, B-PER\nslept, O\n", [":1: expected a word, got 'Ada,'", COMMAS]),
        ("Ada; NNP; B-PER\nslept; VBD; O\n", [":1: expected a word, got 'Ada;'", COMMAS]),
        ("Ada: B-PER\nslept: O\n", [":1: expected a word, got 'Ada:'", COMMAS]),
        ('"Ada" B-PER\n"slept" O\n', [":1: expected a word, got '\"Ada\"'", COMMAS]),
        ("1\tAda\tAda\tPROPN\t_\n", [":1: expected a tag", "only numbers"]),
        ("Ada\tNNP\tPERSON\n.\t.\tO\n", [":1: expected a tag", "got 'PERSON'; if words in a row with one tag", IO]),
        ("0\tAda\tB-PER\n1\tslept\tO\n", [":1: expected a word, got '0'", "only numbers"]),
        ("Ada B-PER\nfoo\tbar O\n", [":2: expected columns separated by spaces as on line 1, got a tab"]),
        ("Ada\nslept\tO\n", [":2: expected columns separated by spaces as on line 1, got a tab"]),
        ("Ada\rBob\nslept\n", [r":1: expected one line end, \n or \r\n, got \r within 'Ada\rBob'"]),
        (
            "the DT\ncat O\n",
            [":1: expected a tag O, B-TYPE or I-TYPE", "got 'DT'", IO, "--tag_scheme plain"],
        ),
        ("Ada B-PER\nBob B_PER\n", [":2: expected a tag", "write 'B-PER'"]),
        ("Ada PER-B\nslept O\n", [":1: expected a tag", "write 'B-PER'"]),
        ("Ada B-PER\nBob PER\n", [":2: expected a tag", "write 'B-PER', or correct it"]),
        ("Ada b-per\n", [":1: expected a tag", "got 'b-per'; write 'B-per'"]),
        ("Ada B-PER\nslept 0\n", [":2: expected a tag", "got '0'; write the letter O"]),
        ("word tag\nAda B-PER\n", [":1: expected a tag", "got 'tag'"]),
    ],
)
def test_lines_that_do_not_fit_come_with_a_remedy(tmp_path, text, expected):
    for flag in ("train_file", "validation_file"):
        path = write(tmp_path, text)
        told = ner_error(**{"train_file": path, "validation_file": path, flag: path}).removeprefix(path)
        assert told.startswith(expected[0]) and all(part in told for part in expected), told
        assert "\n" not in told
    if not {SENTENCE, IO} & {*expected}:  # such a file holds sentences to tag, or names that the model lacks
        assert error_of_test_file(tmp_path, text).startswith(expected[0])


def test_a_file_without_ends_of_sentences_is_said(tmp_path):
    text = "Ada B-PER\n" + "slept O\n" * 200
    path = write(tmp_path, text)
    (told,) = load_data(ner_arguments(validation_file=path), MODEL).summary().splitlines()[:1]
    assert "warning: no blank line or row ends a sentence" in told
    path = write(tmp_path, text + "\nBob B-PER\n")
    assert "warning" not in load_data(ner_arguments(validation_file=path), MODEL).summary()


def test_a_line_of_a_megabyte_is_judged_quickly(tmp_path):
    for letters in ("a", ",", "_", "a,", "。", "</a>", "中"):
        write(tmp_path, letters * (1_000_000 // len(letters)) + "\n", "long.txt")
        with contextlib.suppress(ValueError):
            read_conll(tmp_path / "long.txt")


def test_numbers_with_tags_alone_stay_words(tmp_path):
    """A file of two columns, and one in which not all words are numbers."""
    assert read_conll(write(tmp_path, "1 O\n2 B-X\n")).sentences[0].words == ["1", "2"]
    assert read_conll(write(tmp_path, "1996 CD O\nAda NNP B-X\n")).sentences[0].words == ["1996", "Ada"]


@pytest.mark.parametrize("name", ["new.jsonl", "new.json"])
@pytest.mark.parametrize(("words", "marks"), [("tokens", "ner_tags"), ("words", "tags"), ("tokens", "labels")])
def test_json_lines_give_the_sentences_of_the_same_file_in_columns(tmp_path, name, words, marks):
    columns = read_conll(write(tmp_path, CONLL))
    rows = [{"id": str(n), words: s.words, marks: s.tags} for n, s in enumerate(columns.sentences)]
    path = write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), name)
    data = load_data(ner_arguments(train_file=path, validation_file=path))
    read = data.splits["train"]
    assert [s.words for s in read.sentences] == [s.words for s in columns.sentences]
    assert tags(read) == tags(columns)
    assert [s.document for s in read.sentences] == [0, 1, 2, 3]
    assert read.sentences[2].place(1) == f"{path}:3"
    alone = write(tmp_path, "".join(json.dumps({words: row[words]}) + "\n" for row in rows), f"alone-{name}")
    test = load_data(ner_arguments(test_file=alone), data.label_names).splits["test"]
    assert not test.tagged and [s.words for s in test.sentences] == [s.words for s in columns.sentences]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ('{"tokens": "Ada slept", "ner_tags": ["O", "O"]}', "expected words and a tag for each, in two lists"),
        ('{"tokens": ["Ada"], "ner_tags": ["O", "O"]}', "expected words and a tag for each"),
        ('{"tokens": ["Ada"], "ner_tags": "O"}', "expected words and a tag for each"),
        ('{"tokens": ["Ada", null], "ner_tags": ["O", "O"]}', "expected words and a tag for each"),
        ('{"tokens": ["Ada", " "], "ner_tags": ["O", "O"]}', "expected words and a tag for each"),
        ('{"tokens": ["Ada", 7], "ner_tags": ["O", "O"]}', "expected words and a tag for each"),
        ('{"tokens": ["Ada"], "ner_tags": [3]}', "expected tags by name, or numbers of the names"),
        ('{"tokens": ["Ada"], "ner_tags": [null]}', "expected tags by name"),
        ('{"tokens": ["Ada", "B"], "ner_tags": ["O", -100]}', "expected tags by name"),
        ('{"tokens": ["Ada"], "ner_tags": ["PER"]}', "expected a tag O, B-TYPE or I-TYPE for 'Ada', got 'PER'"),
        (
            '{"tokens": ["a\\nb"], "ner_tags": ["P\\nER"]}',
            r"expected a tag O, B-TYPE or I-TYPE for 'a\nb', got 'P\nER'",
        ),
        ('{"tokens": ["Ada"], "ner_tags": null}', "expected tags as in other rows"),
        ('{"tokens": null, "ner_tags": ["O"]}', "field 'tokens' is missing or null"),
        ('{"text": "Ada slept"}', "field 'tokens' is missing or null"),
        ("[\n", "expected one JSON object a line"),
        ("Ada B-PER", "expected one JSON object a line"),
    ],
)
def test_json_lines_that_do_not_fit_are_refused_with_their_line(tmp_path, row, expected):
    path = write(tmp_path, '{"tokens": ["Bob"], "ner_tags": ["B-PER"]}\n' + row + "\n", "own.jsonl")
    told = ner_error(train_file=path, validation_file=path)
    assert told.startswith(f"{path}:2: {expected}") and told.isprintable()


def test_json_without_words_or_without_tags_is_refused(tmp_path):
    path = write(tmp_path, '{"text": "Ada slept"}\n', "own.jsonl")
    assert ner_error(train_file=path, validation_file=path).startswith(
        f"{path}:1: expected the columns tokens or words and ner_tags"
    )
    path = write(tmp_path, '{"tokens": ["Ada"]}\n', "alone.jsonl")
    assert "expected a tag for every word, got words only" in ner_error(train_file=path, validation_file=path)
    path = write(tmp_path, '{"tokens": [], "ner_tags": []}\n', "empty.jsonl")
    assert "expected sentences with words, got none" in ner_error(train_file=path, validation_file=path)


@pytest.mark.parametrize(
    "text", ["token\nAda\nslept\n", "word\n\nAda\n", "Word\nAda\n", "TOKENS\nada\n", "Token\n\nada\n"]
)
def test_the_header_of_a_column_of_words_is_refused(tmp_path, text):
    told = error_of_test_file(tmp_path, text)
    assert told.startswith(f":1: expected a word, got {text.split()[0]!r}; if this is a header line, delete it; if it")
    # The remedy for a word.
    split = read_conll(write(tmp_path, "\n" + text))
    assert split.sentences[0].words[0] == text.split()[0]


@pytest.mark.parametrize("words", [["Word", "has", "it"], ["the", "word"], ["Tokens", "are", "here"]])
def test_a_sentence_may_begin_with_such_a_word(tmp_path, words):
    assert read_conll(write(tmp_path, "\n".join(words) + "\n")).sentences[0].words == words


@pytest.mark.parametrize("header", ["word\ttag", "token\tner_tags", "Word POS Tag", "id\tword\tlabel"])
def test_the_header_of_a_table_is_to_be_deleted_and_no_tag(tmp_path, header):
    separator = "\t" if "\t" in header else " "
    rows = [separator.join([*["Ada", "NNP", "B-PER"][: len(header.split()) - 1], "O"]) for _ in range(2)]
    path = write(tmp_path, "\n".join([header, *rows]) + "\n")
    told = ner_error(train_file=path, validation_file=path)
    assert ":1: expected a tag O, B-TYPE or I-TYPE in the last column, got " in told
    assert told.endswith("; delete the header line; the columns have no names")


@pytest.mark.parametrize(
    ("text", "scheme", "tags"),
    [
        ("In\tIN\n1996\tCD\n,\t,\nit\tPRP\nsnowed\tVBD\n", "auto", ["IN", "CD", ",", "PRP", "VBD"]),
        ("the DT\n1,000,000 CD\ncats NNS\n", "auto", ["DT", "CD", "NNS"]),
        ("das DET\nHaus NN|NEU|SIN|NOM\n. PUNCT\n", "auto", ["DET", "NN|NEU|SIN|NOM", "PUNCT"]),
        ("see\tVB\n<unk>\tNN\n.\tPUNCT\n", "auto", ["VB", "NN", "PUNCT"]),
        ("The the DT\ncat cat NN\n", "plain", ["DT", "NN"]),
        ("since\tO\n2008\tDATE\nAda\tPER\n", "io", ["O", "B-DATE", "B-PER"]),
        ("since\tO\n1996\tB_DATE\nAda\tB_PER\n", "auto", ["O", "B-DATE", "B-PER"]),
    ],
)
def test_odd_words_among_plain_tags_are_words(tmp_path, text, scheme, tags):
    """What most lines look like decides, and not a number, a comma or a bar."""
    (sentence,) = read_conll(write(tmp_path, text), scheme=scheme).sentences
    assert sentence.tags == tags


def test_the_header_of_parts_of_speech_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r":1: expected a tag .* got 'upos'; delete the header line"):
        read_conll(write(tmp_path, "word\tupos\nthe\tDET\n"))


def test_comments_and_single_tabs_do_not_change_what_a_text_file_is(tmp_path):
    tagged = write(tmp_path, "# sent 1 of 2\nthe DT\ncat NN\n\n# sent 2 of 2\na DT\n", "tagged.txt")
    assert not is_raw_text(tagged, {"DT", "NN"})
    text = write(tmp_path, "Ada slept in London .\nBob\twoke up .\nNobody saw him .\n", "text.txt")
    assert is_raw_text(text, {"O", "B-PER"})


def test_japanese_sentences_are_not_cut_at_their_chinese_characters(tmp_path):
    sentences = "私は昨日トヨタに行きました。\n彼は東京でソニーの社長に会った。\n"
    assert SENTENCE in error_of_test_file(tmp_path, sentences, "new.txt")
    cut = write(tmp_path, "私 は 昨日 トヨタ に 行き ました 。\n彼 は 東京 で 会っ た 。\n", "cut.txt")
    assert is_raw_text(cut, MODEL)
    one_name = write(tmp_path, "安倍先生说。\n他去了东京。\n公司叫トヨタ自動車株式会社です。\n", "chinese.txt")
    assert is_raw_text(one_name, MODEL)


def test_the_quotation_marks_of_a_spreadsheet_are_no_words(tmp_path):
    for word in ('","', '""""'):
        told = error_of_test_file(tmp_path, f"Ada\tB-PER\n{word}\tO\nslept\tO\n", "sheet.tsv")
        assert told.startswith(f":2: expected a word, got {word} with a spreadsheet's quotation marks; save")
    assert read_conll(write(tmp_path, 'Ada B-PER\n"," O\n', "spaces.txt")).sentences[0].words == ["Ada", '","']


def test_a_long_file_with_several_columns_is_looked_at_once(tmp_path):
    """A look at every line for every line would take minutes."""
    path = write(tmp_path, "a b DT\nc d NN\n" * 50_000, "columns.txt")
    assert not is_raw_text(path, {"DT", "NN"})

"""Files in columns: every line is a word with its tag, whatever the word looks like."""

import pytest

from bert_training.inputs.conll import read_conll
from tests.helpers.tagged_text import CONLL, CONLL_WORDS, read_columns, write

MODEL = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def test_columns_are_rows_of_sentences(tmp_path):
    rows = read_conll(write(tmp_path, CONLL))
    assert rows.data["tokens"].to_pylist() == CONLL_WORDS and rows.data["line"].to_pylist() == [3, 10, 22, 25]
    assert rows.data["document"].to_pylist() == [1, 1, 2, 2] and rows.data["tags"][2].as_py() == ["I-LOC", "O"]
    assert read_conll(write(tmp_path, "Ada\n\nBob\n")).data.column_names == ["tokens", "line"]


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
    (sentence,) = read_columns(write(tmp_path, text), scheme=scheme).sentences
    assert sentence.tags == tags

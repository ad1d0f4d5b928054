"""The readable tokenizer gives hand-worked cases, follows Google's rules, and agrees with the fast one everywhere."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bert_training.inputs.reading import numbered_lines
from tests.helpers.hostile_text import hostile_texts
from tests.helpers.repository import ROOT
from tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer, build_tokenizer, load_vocab
from tokenization.library_tables import CHANGED, LOWER, YOUNGER
from tokenization.train_wordpiece import train_wordpiece

PIECES = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]


@pytest.fixture
def vocab_file(tmp_path: Path) -> Path:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return path


# The cases of Google's tokenization_test.py.


def test_the_full_tokenizer_gives_googles_pieces_and_ids(vocab_file):
    tokenizer = FullTokenizer(vocab_file)
    tokens = tokenizer.tokenize("UNwant\u00e9d,running")
    assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokenizer.convert_tokens_to_ids(tokens) == [7, 4, 5, 10, 8, 9]
    assert tokenizer.convert_ids_to_tokens([7, 4, 5]) == ["un", "##want", "##ed"]
    with pytest.raises(KeyError):
        tokenizer.convert_tokens_to_ids(["absent"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"do_lower_case": True}, ["hello", "!", "how", "are", "you", "?", "hallo"]),
        ({"do_lower_case": False}, ["HeLLo", "!", "how", "Are", "yoU", "?", "Hällo"]),
        ({"strip_accents": False}, ["hello", "!", "how", "are", "you", "?", "hällo"]),
        ({"do_lower_case": False, "strip_accents": True}, ["HeLLo", "!", "how", "Are", "yoU", "?", "Hallo"]),
    ],
)
def test_case_and_accents_follow_the_options(options, words):
    assert BasicTokenizer(**options).tokenize(" \tHeLLo!how  \n Are yoU?  Hällo ") == words


def test_special_tokens_of_the_full_tokenizer(vocab_file):
    assert FullTokenizer(vocab_file).tokenize("[SEP]") == ["[UNK]"] * 3
    assert FullTokenizer(vocab_file, never_split=["[SEP]"]).tokenize("un[SEP]want [CLS]") == [
        *("un", "[SEP]", "want", "[UNK]", "[UNK]", "[UNK]")
    ]


def test_wordpiece_is_greedy_and_all_or_nothing():
    tokenizer = WordpieceTokenizer({piece: i for i, piece in enumerate(PIECES)})
    assert tokenizer.tokenize("") == []
    assert tokenizer.tokenize("unwanted running") == ["un", "##want", "##ed", "runn", "##ing"]
    assert tokenizer.tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]
    # The longest piece is taken, so "want" and not "wa", after which nothing would fit.
    assert tokenizer.tokenize("wanted") == ["want", "##ed"]


def test_a_word_of_more_than_100_characters_is_unknown():
    tokenizer = WordpieceTokenizer({"a", "##a"})
    assert tokenizer.tokenize("a" * 100) == ["a"] + ["##a"] * 99
    assert tokenizer.tokenize("a" * 101) == ["[UNK]"]
    assert WordpieceTokenizer({"a", "##a"}, max_input_chars_per_word=200).tokenize("a" * 200) != ["[UNK]"]


# Cases in which Google's code depends on the version of Python, or the library differs from it.


def test_capital_sigma_is_lowered_without_regard_to_its_place():
    assert BasicTokenizer().tokenize("ΟΔΟΣ ΣΑΣ ός") == ["οδοσ", "σασ", "ος"]


def test_private_use_characters_are_dropped():
    assert BasicTokenizer().tokenize("a\ue000b \U0010fffd") == ["ab"]


def test_turkish_dotted_i_and_sharp_s():
    assert BasicTokenizer().tokenize("İstanbul STRASSE Straße ẞ") == ["istanbul", "strasse", "straße", "ß"]


# The vocabulary file.


def test_load_vocab_reads_either_end_of_line_and_odd_characters(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("[PAD]\r\na\n\u0301\n中".encode())
    assert load_vocab(path) == {"[PAD]": 0, "a": 1, "\u0301": 2, "中": 3}
    path.write_bytes("\ufeff[PAD]\r\n\u2028\n\u00a0\n b \n\n \n".encode())
    assert load_vocab(path) == {"[PAD]": 0, "\u2028": 1, "\u00a0": 2, "b": 3}


# The fast tokenizer.


def differing(codes: list[int], do_lower_case: bool) -> list[str]:
    """The code points between two letters that the two tokenizers split or write differently."""
    clean, split = BertNormalizer(lowercase=do_lower_case), BertPreTokenizer()
    reference = BasicTokenizer(do_lower_case)

    def fast(text: str) -> list[str]:
        return [word for word, _ in split.pre_tokenize_str(clean.normalize_str(text))]

    texts = [f"a{chr(code)}b" for code in codes]
    blocks = (texts[i : i + 256] for i in range(0, len(texts), 256))
    unequal = (block for block in blocks if fast(" ".join(block)) != reference.tokenize(" ".join(block)))
    return [ascii(text) for block in unequal for text in block if fast(text) != reference.tokenize(text)]


def test_code_points_agree():
    known = {ord(char) for char in (*YOUNGER, *CHANGED, *LOWER)}
    near_tables = {code + step for code in known for step in (-1, 0, 1)}
    others = random.Random(0).sample(range(0x3000, 0x110000), 5000)
    codes = sorted(code for code in {*range(0x3000), *near_tables, *others} if not 0xD800 <= code < 0xE000)
    assert differing(codes, do_lower_case=True) == []
    assert differing(codes[::8], do_lower_case=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_every_code_point_agrees(do_lower_case):
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    assert differing(codes, do_lower_case) == []


@pytest.mark.parametrize("count", [600, pytest.param(40_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_hostile_texts_agree(tmp_path, do_lower_case, count):
    texts = hostile_texts(count, seed=7)
    pieces = train_wordpiece(iter(texts[::2]), 1500, do_lower_case=do_lower_case, limit_alphabet=400)
    fast = build_tokenizer(pieces, do_lower_case)
    fast.save_pretrained(tmp_path)
    reference = FullTokenizer(tmp_path / "vocab.txt", do_lower_case, never_split=fast.all_special_tokens)
    unknown = 0
    for text in texts:
        expected = reference.tokenize(text)
        unknown += expected.count("[UNK]")
        assert fast.tokenize(text) == expected, ascii(text)
        assert fast.convert_tokens_to_ids(expected) == reference.convert_tokens_to_ids(expected)
    # If all words were unknown, or none, the texts would test nothing.
    assert 0 < unknown < 20 * len(texts)


@pytest.mark.realdata
@pytest.mark.parametrize("case", ["uncased", "cased"])
@pytest.mark.parametrize("step", [50, pytest.param(10, marks=pytest.mark.slow)])
def test_real_text_is_tokenized_the_same(real_data, case, step):
    """With Google's vocabularies, the two agree on every 50th line of the held-out files, and in the slow test on every
    10th line of all files.
    """
    vocab = real_data / "assets" / f"{case}_vocab.txt"
    fast = build_tokenizer(vocab, case == "uncased")
    reference = FullTokenizer(vocab, case == "uncased", never_split=fast.all_special_tokens)
    names = ["wiki_heldout.txt", "books_heldout.txt"]
    if step == 10:
        names += ["wiki.txt.xz", "books.txt.xz"]
    seen = 0
    lines = (line for name in names for _, line in numbered_lines(real_data / "text" / name))
    for number, line in enumerate(lines):
        if number % step == 0:
            seen += 1
            assert fast.tokenize(line) == reference.tokenize(line), line
    assert seen > 100


@pytest.mark.slow
def test_import_is_quick_and_light():
    """The import loads neither torch nor transformers, and building a tokenizer does not load torch."""
    code = (
        "import sys, tokenization, tokenization.train_wordpiece\n"
        "assert not {'torch', 'transformers', 'pyarrow', 'numpy'} & set(sys.modules), 'heavy import'\n"
        "from tokenization import build_tokenizer\n"
        "assert 'torch' not in sys.modules, 'torch'\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

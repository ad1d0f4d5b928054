"""For everything that reads texts, "[SEP]" in a text is five characters, as for google-research/bert.

If it were a separator, a text could end itself, hide what follows, or pretend to be the second text of a pair.
"""

import copy
import sys

import pytest
from tokenizers import AddedToken
from transformers import BertTokenizer

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.tasks import feature_extraction, swag
from bert_training.tasks.classification import glue, labelled_texts
from bert_training.tasks.ner import tagged_text
from bert_training.tasks.squad.questions import Question
from bert_training.tasks.squad.windows import build_windows
from tests.helpers.tagged_text import read_columns, write
from tokenization import build_tokenizer
from tokenization.bert_tokenizer import tokenizer_json

MARKS = "red [SEP] blue [MASK] [PAD] [CLS] [UNK] house"
PIECES = "red [ sep ] blue [ mask ] [ pad ] [ cls ] [ un ##k ] house".split()


@pytest.fixture(scope="module")
def tokenizer(vocab):
    return build_tokenizer([*vocab, "[", "]", "sep", "mask", "pad", "cls", "un"])


def of_glue(tokenizer, tmp_path):
    examples = labelled_texts.Examples(
        (["old"], [MARKS]), None, ["0"], str, {}, labelled_texts.Columns(("a", "b"), None, None)
    )
    data = labelled_texts.ClassificationData("mrpc", glue.GLUE_TASKS["mrpc"], {"test": examples})
    return labelled_texts.features(data, tokenizer, 128)["test"].columns["input_ids"][0]


def of_swag(tokenizer, tmp_path):
    data = swag.SwagData("x", {"train": swag.SwagExamples(["old"], [[MARKS, "red"]], [0], ["0"], {})})
    return swag.features(data, tokenizer, 128)["train"].columns["input_ids"][0][0]


def of_ner(tokenizer, tmp_path):
    split = read_columns(write(tmp_path, "".join(f"{word} O\n" for word in ["old", *MARKS.split()])))
    return tagged_text.build_rows(split, tokenizer, 64).input_ids[0]


def of_squad(tokenizer, tmp_path):
    return build_windows([Question("q", "old", MARKS)], tokenizer).input_ids[0]


def of_extraction(tokenizer, tmp_path):
    (tmp_path / "lines.txt").write_text(f"old ||| {MARKS}\n")
    return feature_extraction.read_rows(tmp_path / "lines.txt", tokenizer, 64)[0][0].input_ids


def of_pretraining(tokenizer, tmp_path):
    corpus = build_corpus([[f"old {MARKS}"]], tokenizer, tmp_path / "corpus")
    return [tokenizer.cls_token_id, *corpus.shards[0].tokens, tokenizer.sep_token_id]


def of_pretraining_on_a_file(tokenizer, tmp_path):
    file, folder = tmp_path / "text.txt", tmp_path / "corpus"
    file.write_text(f"old {MARKS}\n")
    corpus = build_corpus([file], tokenizer, folder)
    return [tokenizer.cls_token_id, *corpus.shards[0].tokens, tokenizer.sep_token_id]


PAIRS = [of_glue, of_swag, of_squad, of_extraction]
READERS = [*PAIRS, of_ner, of_pretraining, of_pretraining_on_a_file]


@pytest.mark.parametrize("reader", READERS)
def test_special_tokens_in_a_text_are_text(tokenizer, tmp_path, reader):
    tokens = tokenizer.convert_ids_to_tokens(list(map(int, reader(tokenizer, tmp_path))))
    between = ["[SEP]"] if reader in PAIRS else []
    assert tokens == ["[CLS]", "old", *between, *PIECES, "[SEP]"]
    # The tokenizer itself is unchanged, because a model that fills in "[MASK]" needs it.
    assert tokenizer("[MASK]")["input_ids"][1] == tokenizer.mask_token_id


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_tokens_that_a_user_added_stay_whole(tokenizer, tmp_path, monkeypatch, reader, special):
    """As every pipeline of transformers reads them; else their embeddings would never be an input of the training."""
    tokenizer, marks = copy.deepcopy(tokenizer), "red [E1] [SEP] blue [/E1] house"
    tokenizer.add_tokens([AddedToken(name, special=special, normalized=False) for name in ("[E1]", "[/E1]")])
    monkeypatch.setattr(sys.modules[__name__], "MARKS", marks)
    before = tokenizer_json(tokenizer)
    tokens = tokenizer.convert_ids_to_tokens(list(map(int, reader(tokenizer, tmp_path))))
    between = ["[SEP]"] if reader in PAIRS else []
    assert tokens == ["[CLS]", "old", *between, *"red [E1] [ sep ] blue [/E1] house".split(), "[SEP]"]
    assert tokenizer_json(tokenizer) == before
    without = marks.replace("[SEP] ", "")
    expected = BertTokenizer.from_pretrained(saved(tokenizer, tmp_path)).tokenize(without)
    assert [token for token in tokens if token not in ("[", "sep", "]")] == [
        "[CLS]",
        "old",
        *between,
        *expected,
        "[SEP]",
    ]


def saved(tokenizer, folder):
    tokenizer.save_pretrained(folder / "tokenizer")
    return folder / "tokenizer"


def test_a_corpus_whose_added_tokens_were_taken_apart_is_not_used_again(tokenizer, tmp_path):
    tokenizer, documents = copy.deepcopy(tokenizer), [["old [E1] house"]]
    tokenizer.add_tokens([AddedToken("[E1]", special=True)])
    with pytest.MonkeyPatch.context() as without:
        without.setattr("bert_training.pretraining.build_corpus.text_tokenizer", lambda tokenizer: tokenizer)
        build_corpus(documents, tokenizer, tmp_path / "corpus")
    with pytest.raises(ValueError, match=r"made from other input \(it differs in: text_tokenizer_sha256\); give"):
        build_corpus(documents, tokenizer, tmp_path / "corpus")

"""For everything that reads texts, "[SEP]" in a text is five characters, as for google-research/bert.

If it were a separator, a text could end itself, hide what follows, or pretend to be the second text of a pair.
"""

import pytest

from tests.helpers.tagged_text import write
from tokenization import build_tokenizer
from training.pretraining import encoding
from training.tasks import feature_extraction, swag
from training.tasks.classification import glue, labelled_texts
from training.tasks.ner import tagged_text
from training.tasks.squad.questions import Question
from training.tasks.squad.windows import build_windows

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
    split = tagged_text.read_conll(write(tmp_path, "".join(f"{word} O\n" for word in ["old", *MARKS.split()])))
    return tagged_text.build_rows(split, tokenizer, 64).input_ids[0]


def of_squad(tokenizer, tmp_path):
    return build_windows([Question("q", "old", MARKS)], tokenizer).input_ids[0]


def of_extraction(tokenizer, tmp_path):
    (tmp_path / "lines.txt").write_text(f"old ||| {MARKS}\n")
    return feature_extraction.read_rows(tmp_path / "lines.txt", tokenizer, 64)[0][0].input_ids


def of_pretraining(tokenizer, tmp_path):
    backend = encoding.load_backend(tokenizer.backend_tokenizer.to_str())
    ids = encoding.encode_lines(backend, [f"old {MARKS}", None]).tokens
    return [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]


@pytest.mark.parametrize("reader", [of_glue, of_swag, of_ner, of_squad, of_extraction, of_pretraining])
def test_special_tokens_in_a_text_are_text(tokenizer, tmp_path, reader):
    tokens = tokenizer.convert_ids_to_tokens(list(map(int, reader(tokenizer, tmp_path))))
    between = ["[SEP]"] if reader in (of_glue, of_swag, of_squad, of_extraction) else []
    assert tokens == ["[CLS]", "old", *between, *PIECES, "[SEP]"]
    # The tokenizer itself is unchanged, because a model that fills in "[MASK]" needs it.
    assert tokenizer("[MASK]")["input_ids"][1] == tokenizer.mask_token_id

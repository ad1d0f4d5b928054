"""Every function of the page, found in the page itself, with values that nobody types: a result or a sentence.

``Guard`` lets only texts, numbers and null through (test_server.py); here lists and objects are tried as well.
"""

import re
import sys
import warnings

import pytest

from bert_training.app import drawing
from bert_training.app.folder import HEADS, open_folder
from bert_training.engine.errors import is_for_the_user
from tests.helpers.model_folders import edit_json, save_model

VALUES = [
    *(None, True, False, 0, -1, -7, 1, 3, 10**6, 10**400, 0.5, float("nan"), float("inf"), -float("inf")),
    *("", " ", "\x00", "a\x00b", "\ud800", "\u200b", "\u0301", "\x85", "\u2028", "1", "[MASK]", "[SEP]", "a\nb\nc"),
    *("a" * 19_999, "\u4e2d" * 20_001, "9" * 5000, b"a", [], [1], ["a"], {}, {"a": 1}),
]
OWN = ("BertFeatureTagger", "BertBiLSTMForTokenClassification", "BertBiLSTMForQuestionAnswering")  # the same functions
AT_ONCE = ("BertForPreTraining", "BertForSequenceClassification", "BertForQuestionAnswering")
SLOWLY = [(name, {}) for name in HEADS if name not in (*OWN, *AT_ONCE)] + [("BertForMaskedLM", {"is_decoder": True})]
PAGES = [*((name, {}) for name in AT_ONCE), *(pytest.param(*page, marks=pytest.mark.slow) for page in SLOWLY)]


def page_of(opened):
    pytest.importorskip("gradio")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Gradio
        from bert_training.app import page

        return page.build(opened)


@pytest.mark.parametrize(("name", "fields"), PAGES)
def test_every_function_refuses_what_is_no_text_or_choice(tmp_path, pretrained, monkeypatch, name, fields):
    notices, notice = [], drawing.notice

    def noted(sentence):
        notices.append(sys.exception())
        return notice(sentence)

    opened = open_folder(str(save_model(tmp_path / "m", pretrained, name, run={"texts_per_example": 2}, **fields)))
    functions = page_of(opened).fns.values()
    assert len(functions) >= 4 + len(opened.abilities) - (not opened.abilities)
    monkeypatch.setattr(drawing, "notice", noted)
    for function in functions:
        usual = [box.value for box in function.inputs]
        for place in range(len(usual)):
            for value in VALUES:
                function.fn(*usual[:place], value, *usual[place + 1 :])
    assert len(notices) > 50
    for error in notices:
        assert is_for_the_user(error), repr(error)  # not one of a library's
        assert re.fullmatch(r"[A-Z][^\n]{10,200}\.", str(error)), str(error)


def test_a_tokenizer_that_would_fail_when_the_page_computes(tmp_path, pretrained):
    folder = save_model(tmp_path / "m", pretrained, "BertForPreTraining")
    edit_json(folder / "tokenizer_config.json", unk_token="")
    with pytest.raises(ValueError, match=r"the tokenizer has no \[UNK\]") as error:
        open_folder(str(folder))
    assert is_for_the_user(error.value)

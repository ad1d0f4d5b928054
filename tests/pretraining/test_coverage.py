"""bert_training/pretraining/tokenizer.py: what the tokenizer loses of the text, and whether anything is left to
predict.
"""

from types import SimpleNamespace

import pytest

from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.corpora import Corpora
from bert_training.pretraining.instances import InstanceSettings, PretrainingInstances
from bert_training.pretraining.tokenizer import (
    check_beginning,
    check_predictable,
    coverage_of_corpus,
    record_coverage,
    remedies,
)
from tests.helpers.small_corpora import DOCUMENTS, make_tokenizer, random_documents
from tokenization.coverage import coverage

FOREIGN = ["เพราะ ให้ สูตร. การ ถือ ว่า.", "คน ควร. ให้."]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def arguments(**flags):
    return PretrainingArguments(output_dir="out", **flags)


def text_of(documents, **flags):
    def lines():
        return (line for document in documents for line in [*document, None])

    return SimpleNamespace(args=arguments(**flags), name="own text", lines=lines)


def test_a_corpus_records_what_is_lost(tmp_path, tokenizer):
    documents = [*random_documents(30), FOREIGN, ["the dog में sat."]]
    corpus = build_corpus(documents, tokenizer, tmp_path / "c")
    lines = [line for document in documents for line in document]
    assert coverage_of_corpus(corpus, tokenizer) == coverage(tokenizer, lines)
    assert corpus.facts[0]["coverage"]["unknown_tokens"] == corpus.unigrams[tokenizer.unk_token_id] == 10
    assert corpus.facts[0]["coverage"]["stripped_characters"] > 6
    assert build_corpus(documents, tokenizer, tmp_path / "c").facts == corpus.facts


def test_the_beginning_is_checked_before_the_corpus_is_built(tokenizer, tmp_path):
    check_beginning(text_of(DOCUMENTS), tokenizer)
    with pytest.raises(
        ValueError,
        match=r"^own text: expected text that the tokenizer knows.*--vocab_size, or learn .* --limit_alphabet$",
    ):
        check_beginning(text_of([FOREIGN]), tokenizer)
    with pytest.raises(ValueError, match="or learn a vocabulary"):
        check_beginning(text_of([FOREIGN], tokenizer_name="t"), tokenizer)
    file = tmp_path / "foreign.txt"
    file.write_text("\n".join(FOREIGN), encoding="utf-8")
    own = text_of(DOCUMENTS, validation_file=[str(file)])
    own.held_out_name, own.held_out_files = "foreign.txt", [file]
    # The learnt vocabulary has free rows, so that a larger one would not help.
    with pytest.raises(ValueError, match=r"^foreign\.txt: expected .*; add text like it to --train_file$"):
        check_beginning(own, tokenizer)
    both = text_of([FOREIGN], validation_file=["known.txt"])
    both.name = both.held_out_name = "text.txt"  # one name in two folders
    (tmp_path / "known.txt").write_text("\n".join(line for document in DOCUMENTS for line in document))
    both.held_out_files = [tmp_path / "known.txt"]
    with pytest.raises(ValueError, match=r"^text\.txt: expected text that the tokenizer knows"):
        check_beginning(both, tokenizer)
    own.args = arguments(validation_file=[str(file)], vocab_size=len(tokenizer))
    with pytest.raises(ValueError, match=r"add text like it to --train_file, or give a larger --vocab_size, or"):
        check_beginning(own, tokenizer)


def endless():
    while True:
        yield ["the dog sat on a mat " * 50]


def test_only_the_beginning_is_read(tokenizer):
    check_beginning(text_of(endless()), tokenizer)


def instances(path, documents, tokenizer, objective):
    settings = InstanceSettings(seed=0, max_seq_length=16, objective=objective, fixed=True)
    return PretrainingInstances(build_corpus(documents, tokenizer, path), tokenizer, settings)


def test_the_remedy_suits_the_flags():
    assert remedies(arguments(model_name_or_path="m"))[0] == "begin with a model of this language"
    assert "no --tokenizer_name" in remedies(arguments(tokenizer_name="t"))[0]
    assert "--vocab_size" in remedies(arguments())[0]


def test_held_out_text_without_anything_to_predict_is_refused(tmp_path, tokenizer):
    args = arguments(tokenizer_name="t")
    good = instances(tmp_path / "good", [["ให้ ว่า. ให้."] * 300, ["ให้. ว่า.", "the"]], tokenizer, "mlm")
    for name, objective in (("pairs", "mlm_nsp"), ("packed", "mlm")):
        bad = instances(tmp_path / name, [["ให้ ว่า. ให้."] * 9, ["ให้. ว่า."]], _without_points(), objective)
        with pytest.raises(ValueError) as refusal:
            check_predictable(args, {16: bad}, 30)
        count = bad.epoch_size(0)
        assert str(refusal.value) == (
            f"the held-out text: expected tokens to predict, but its {count} instances of 16 tokens hold only [UNK], "
            "which is never predicted; give another --validation_file, or take a tokenizer of this "
            "language, or learn a vocabulary (no --tokenizer_name)"
        )
    check_predictable(args, {16: good}, 30)
    # A left-to-right network predicts [UNK] like any token.
    check_predictable(args, {16: instances(tmp_path / "ltr", [["ให้ ว่า. ให้."] * 9], _without_points(), "ltr")}, 30)


def _without_points():
    tokenizer = make_tokenizer()
    vocabulary = [piece for piece in tokenizer.get_vocab() if piece != "."]
    return type(tokenizer)(vocab={piece: number for number, piece in enumerate(sorted(vocabulary))})


def test_the_shares_are_recorded_printed_and_warned_of(tmp_path, tokenizer):
    train = build_corpus([*random_documents(3), FOREIGN, ["में"]], tokenizer, tmp_path / "train")
    held_out = build_corpus(DOCUMENTS, tokenizer, tmp_path / "held")
    said, facts = [], {}
    run = SimpleNamespace(
        args=arguments(tokenizer_name="t"),
        say=said.append,
        add_facts=facts.update,
        only_main=lambda work: work(),
    )
    record_coverage(run, tokenizer, Corpora([train], held_out, {}), {})
    assert facts["tokenizer"] == {"do_lower_case": True, "strip_accents": True}
    assert facts["coverage"]["train"] == train.facts[0]["coverage"]
    assert facts["coverage"]["held_out"]["unknown_tokens"] == 0
    assert said[0] == "the tokenizer is lower-cased and strips accents"
    assert said[1].startswith("train text: [UNK] is ") and said[-1].startswith("held-out text: [UNK] is 0.0%")
    unknown, accents = said[2:-1]
    assert unknown.startswith("warning: train text: [UNK] is ") and "learn a vocabulary" in unknown
    assert "Devanagari: में becomes म" in accents or "Thai" in accents

"""bert_training/pretraining/text.py and corpora.py: which text is read, and which share of it is held out."""

from types import SimpleNamespace

import datasets
import pytest
from transformers import AutoTokenizer

import run_pretraining
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.texts import entries_of
from bert_training.pretraining.corpora import build_corpora
from bert_training.pretraining.text import Text, check_apart, names_of_results


def test_flags_reach_the_library_of_data_sets(monkeypatch):
    asked, rows = [], [{"text": "one .\n \ntwo ."}, {"text": ""}, {"text": "three ."}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *names, **more: asked.append((names, more)) or rows)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *names: SimpleNamespace(hash="/".join(names)))
    flags = "--output_dir x --dataset_name wiki --dataset_config_name en --streaming --max_train_documents 2"
    text = Text(parse_arguments(PretrainingArguments, flags.split()))
    assert list(text.lines()) == ["one .", "two .", None, None]
    assert asked == [(("wiki", "en"), {"split": "train", "streaming": True})]
    other = Text(parse_arguments(PretrainingArguments, flags.replace("2", "3").split()))
    assert text.fingerprint != other.fingerprint and "wiki/en" in text.fingerprint


@pytest.mark.parametrize("of_its_own", [False, True])
def test_held_out_text_is_a_share_of_the_documents_or_a_file(pretrained, tmp_path, of_its_own):
    """Either the content of a document decides whether it is held out, or all of a given file is held out."""
    documents = [f"the old house {a}{b} .\na new river ." for a in "abcdefgh" for b in "abcde"]
    (tmp_path / "a.txt").write_text("\n\n".join(documents * 2))
    (tmp_path / "b.txt").write_text("music in the night .\nthe king .\n\na letter .\n")
    flags = f"--output_dir {tmp_path / 'run'} --train_file {tmp_path / 'a.txt'} --tokenizer_name {pretrained}"
    flags += f" --validation_file {tmp_path / 'b.txt'}" if of_its_own else ""
    args = parse_arguments(PretrainingArguments, flags.split())
    args.validation_split = 0.3
    run = SimpleNamespace(args=args, output_dir=tmp_path / "run", is_main=True, main_first=lambda work: work())
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    corpora = build_corpora(run, Text(args), tokenizer)
    train, held_out = corpora.train[0], corpora.held_out
    if of_its_own:
        assert (train.num_documents, held_out.num_documents) == (80, 2)
        assert tokenizer.decode(held_out.shards[0].tokens[: held_out.shards[0].sentences[1]]) == "music in the night."
        return
    assert train.num_documents + held_out.num_documents == 80 and 8 < held_out.num_documents < 40
    texts = [
        {
            corpus.shards[0].tokens[corpus.shards[0].sentences[first] : corpus.shards[0].sentences[end]].tobytes()
            for first, end in zip(corpus.shards[0].documents[:-1], corpus.shards[0].documents[1:])
        }
        for corpus in (train, held_out)
    ]
    assert not texts[0] & texts[1]  # Copies of a document are on the same side.


def test_the_rows_of_wikitext_on_the_hub_are_articles(monkeypatch):
    rows = [{"page": text} for text in ("", " = Storms = \n", "", "A .\n", "", " = = Air = = \n", "", "B .\n", "")]
    rows += [{"page": text} for text in (" = The sea = \n", "", "C .\n", "D .\n")]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_: SimpleNamespace(hash="1"))
    flags = "--output_dir x --dataset_name wiki --text_column page".split()
    text = Text(parse_arguments(PretrainingArguments, flags))
    assert list(text.lines()) == ["A .", "B .", None, "C .", "D .", None] and list(text.forms) == ["wiki"]
    assert '"page"' in text.fingerprint and "text" not in text.fingerprint
    with pytest.raises(ValueError, match=r"row 1: .* field `text`, .* are 'page'; name .* with --text_c"):
        list(Text(parse_arguments(PretrainingArguments, flags[:-2])).lines())


@pytest.mark.parametrize(
    ("documents", "advised", "not_advised"),
    [
        ([f"The old house {n} ." for n in range(300)], "remove the blank lines between the sentences", "put blank"),
        (["The old house .\nA new river ."], "put blank lines between documents", "remove"),
        ([f"The old house {n} .\nA new river ." for n in range(9)], "give a larger --validation_split", "blank lines"),
    ],
)
def test_the_remedy_is_that_of_the_text(tmp_path, documents, advised, not_advised):
    (tmp_path / "a.txt").write_text("\n\n".join(documents) + "\n")
    flags = f"--output_dir x --train_file {tmp_path / 'a.txt'}"
    with pytest.raises(ValueError) as caught:
        Text(parse_arguments(PretrainingArguments, flags.split())).check()
    assert advised in str(caught.value) and not_advised not in str(caught.value)


ONE, TWO = "The old house .", "The old house . A new river ."


@pytest.mark.parametrize(
    ("documents", "flags", "got"),
    [
        ([TWO], "", "got 1 for the training text (its longest has 2 sentences) and 0 for the held-out text"),
        ([f"The old house {n} ." for n in range(300)], "", "(its longest has 1 sentences)"),
        (
            [f"{TWO} {n}" for n in range(9)],
            "",
            "and 0 for the held-out text (its longest has 0 sentences)",
        ),
        ([TWO, ""], "--validation_file V", "got 1 for the training text"),
        ([ONE, ONE, ONE], "--validation_file V", "got 3 for the training text (its longest has 1 sentences). Add"),
        ([f"{TWO} {n}" for n in range(300)], "--max_train_documents 9", "got 9 for the training text"),
        (
            ["\n".join([ONE] * 300)],
            "--validation_file V",
            "got 1 for the training text (its longest has 100 or more sent",
        ),
        ([ONE], "--objective mlm", "got 1 for the training text (its longest has 1 sentences) and 0 for the held-out"),
    ],
)
def test_too_little_text_is_refused_before_a_vocabulary_is_learnt(tmp_path, monkeypatch, documents, flags, got):
    monkeypatch.setattr(run_pretraining, "tokenizer_of", lambda *_: pytest.fail("learnt a vocabulary"))
    (tmp_path / "a.txt").write_text("\n\n".join(documents) + "\n")
    (tmp_path / "b.txt").write_text(f"{TWO}\n\n{TWO}\n")
    flags = f"--output_dir {tmp_path / 'run'} --train_file {tmp_path / 'a.txt'} {flags}"
    with pytest.raises(ValueError) as caught:
        run_pretraining.main(flags.replace("V", str(tmp_path / "b.txt")).split())
    assert str(caught.value).startswith("a.txt: --objective mlm") and got in str(caught.value), caught.value
    assert ("--validation_split" in str(caught.value)) == ("V" not in flags)


def test_a_validation_file_has_enough_for_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(f"{TWO}\n\n{TWO}\n")
    (tmp_path / "b.txt").write_text(f"{ONE}\n\n{ONE}\n")
    flags = "--output_dir x --train_file a.txt --validation_file b.txt --objective "
    with pytest.raises(ValueError, match=r"^b\.txt: .* got 2 for the held-out text \(its longest has 1 sentences\)"):
        Text(parse_arguments(PretrainingArguments, f"{flags} mlm_nsp".split())).check()
    Text(parse_arguments(PretrainingArguments, f"{flags} mlm".split())).check()


@pytest.mark.parametrize("flags", ["", "--validation_file b.txt", "--objective ltr"])
def test_the_check_of_the_text_reads_no_more_than_it_needs(tmp_path, monkeypatch, flags):
    """A file may be huge and a stream endless, so the check stops early. Here the last document is damaged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"".join(b"%s %d\n\n" % (TWO.encode(), n) for n in range(20_000)) + b"\xff\n")
    (tmp_path / "b.txt").write_text(f"{TWO}\n\n{TWO}\n")
    text = Text(parse_arguments(PretrainingArguments, f"--output_dir x --train_file a.txt {flags}".split()))
    text.check()
    with pytest.raises(ValueError, match="expected UTF-8 text"):
        list(text.lines())


def test_names_of_results():
    given = [
        "wiki_heldout.txt.xz",
        "news/*.txt",
        ".",
        "https://a.b/c/held%20out.txt?token=secret#x",
        "s3://b/20??/held.txt",
    ]
    assert names_of_results(given) == ["wiki_heldout", "news", "file", "held_20out", "held"]


def test_one_file_may_be_named_twice_on_purpose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a .\n")
    check_apart(entries_of(["./a.txt"]), entries_of(["a.txt"]))
    with pytest.raises(ValueError, match=r"holds it out, and --train_file .* trains on it"):
        check_apart(entries_of(["*.txt"]), entries_of(["a.txt"]))

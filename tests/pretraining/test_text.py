"""bert_training/pretraining/text.py: which text is read, and which share of it is held out."""

from types import SimpleNamespace

import datasets
import pytest
from transformers import AutoTokenizer

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.texts import entries_of
from bert_training.pretraining.text import Text, build_corpora, check_apart, names_of_results


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

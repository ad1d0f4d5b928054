"""bert_training/pretraining/deduplication.py: what is left out, against a plain rule, for any division of the text."""

import itertools
import json
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from transformers import AutoTokenizer

from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.pretraining import deduplication
from bert_training.pretraining.corpora import build_corpora
from bert_training.pretraining.deduplication import MODES, find_repeated, left_out_text
from bert_training.pretraining.early_checks import check_unfinished
from bert_training.pretraining.measurements import boilerplate
from bert_training.pretraining.text import Text


def kept_by_the_rule(documents: list[list[str]], mode: str) -> list[list[str]]:
    """What is kept, in a few plain lines and all memory that it takes."""
    if mode != "lines":
        documents = [list(lines) for lines in dict.fromkeys(map(tuple, documents))]
    if mode == "documents":
        return documents
    counts, seen = Counter(line for lines in documents for line in set(lines)), set()
    kept = []
    for lines in documents:
        kept.append([])
        for line in lines:
            if counts[line] < 10 or line not in seen:
                kept[-1].append(line)
            seen.add(line)
    return [lines for lines in kept if lines]


def flat(documents):
    for lines in documents:
        yield from lines
        yield None


def divided(lines) -> list[list[str]]:
    documents = [[]]
    for line in lines:
        if line is None:
            documents.append([])
        else:
            documents[-1].append(line)
    assert documents.pop() == []
    return documents


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_the_rule_holds_for_any_division_of_the_text(tmp_path, monkeypatch, mode, seed):
    rng = random.Random(f"{mode} {seed}")
    monkeypatch.setattr(deduplication, "_BLOCK", rng.choice([3, 50]))
    monkeypatch.setattr(deduplication, "_BUFFER", rng.choice([2, 1 << 16]))
    documents = [
        [f"नमस्ते {int(rng.paretovariate(0.6))} ." for _ in range(rng.choice([1, 1, 2, 20]))]
        for _ in range(rng.choice([0, 90, 90, 300]))
    ]
    cuts = [0, *sorted(rng.choices(range(len(documents) + 1), k=2)), len(documents)]
    parts = [documents[start:stop] for start, stop in itertools.pairwise(cuts)]
    wanted = kept_by_the_rule(documents, mode)
    whole = find_repeated([("all", flat(documents))], mode, tmp_path / "corpus" / "whole")
    found = find_repeated([(f"{n}", flat(part)) for n, part in enumerate(parts)], mode, tmp_path / "corpus" / "parts")
    assert divided(whole.without(flat(documents))) == wanted
    by_part = [divided(found.without(flat(part), found.start_of(n))) for n, part in enumerate(parts)]
    assert [lines for part in by_part for lines in part] == wanted
    for name in ("documents.bits", "lines.bits"):
        assert (tmp_path / f"corpus/whole/{name}").read_bytes() == (tmp_path / f"corpus/parts/{name}").read_bytes()
    counts = [found.counts(n, n + 1) for n in range(3)]
    assert all(sum(one[key] for one in counts) == found.counts()[key] for key in ("documents", "lines"))
    gone = sum(map(len, documents)) - sum(map(len, wanted))
    in_copies = sum(len(lines) for n, lines in enumerate(documents) if found.has_document(n))
    assert gone == found.counts()["lines_left_out"] + in_copies


def test_text_that_grows_and_folders_that_are_damaged(tmp_path):
    folder = tmp_path / "corpus" / "x"
    find_repeated([("a", flat([["one ."], ["one ."]]))], "documents", folder)
    never = iter(())  # an undamaged folder is not made again
    found = find_repeated([("a", never)], "documents", folder)
    assert left_out_text(found.counts()) == (
        "left out by --deduplicate documents: 1 of 2 documents (50.00%), which equal earlier ones"
    )
    with pytest.raises(ValueError, match="the text has become longer"):
        [*found.without(flat([["one ."], ["one ."], ["two ."]]))]
    (folder / "documents.bits").write_bytes(b"\0")
    assert find_repeated([("a", flat([["one ."]]))], "documents", folder).facts["documents"] == 1


def started(folder, tokenizer: str, *flags: str) -> tuple[PretrainingArguments, SimpleNamespace]:
    given = ["--output_dir", folder, "--tokenizer_name", tokenizer, "--validation_split", 0.3, *flags]
    args = parse_arguments(PretrainingArguments, [*map(str, given)])
    return args, SimpleNamespace(args=args, output_dir=folder, rank=0, world_size=1, main_first=lambda work: work())


def build(folder, tokenizer: str, *flags: str):
    args, run = started(folder, tokenizer, *flags)
    text = Text(args)
    text.find_repeated(folder / "corpus")
    return text, build_corpora(run, text, AutoTokenizer.from_pretrained(tokenizer))


def decoded(corpus, tokenizer) -> list[str]:
    ends = corpus.sentences[corpus.documents].tolist()
    return [tokenizer.decode(corpus.tokens[start:stop]) for start, stop in itertools.pairwise(ends)]


def test_the_corpus_and_its_records(pretrained, tmp_path):
    words = ["old", "new", "house", "river", "king", "letter", "music", "night"]
    unique = [f"the {a} {b} .\nin the {b} of the {a} .\nthe menu ." for a in words for b in words]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("\n\n".join(unique[:40] + unique[:7]))
    (tmp_path / "texts" / "b.txt").write_text("\n\n".join(unique[30:]))
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    _, plain = build(tmp_path / "off", pretrained, "--train_file", tmp_path / "texts")
    text, corpora = build(tmp_path / "on", pretrained, "--train_file", tmp_path / "texts", "--deduplicate", "both")
    both = [document for one in (corpora.train[0], corpora.held_out) for document in decoded(one, tokenizer)]
    assert len(both) == len(set(both)) == 64 and sum("menu" in document for document in both) == 1
    assert plain.num_documents + plain.held_out.num_documents == 81
    assert "deduplicated" not in plain.train[0].manifest
    counts = {"documents": 81, "lines": 243, "documents_left_out": 17, "lines_left_out": 63, "mode": "both", "rules": 1}
    assert text.left_out() == corpora.train[0].manifest["deduplicated"] == counts
    assert boilerplate(plain.train[0], 10) > 0.2 > 0 == boilerplate(corpora.train[0], 10)
    # A corpus is never taken for one with another value of the flag.
    for value in ([], ["--deduplicate", "documents"]):
        with pytest.raises(ValueError, match="holds a corpus made from other input"):
            build(tmp_path / "on", pretrained, "--train_file", tmp_path / "texts", *value)
    # The sources of a mixture: what the first has, the second does not have again.
    flags = ["--train_file", tmp_path / "texts" / "a.txt", tmp_path / "texts" / "b.txt", "--mixture", 0.5, 0.5]
    text, corpora = build(tmp_path / "mixed", pretrained, *flags, "--deduplicate", "both")
    sides = [*corpora.train, corpora.held_out]
    mixed = [document for one in corpora.train for document in decoded(one, tokenizer)]
    assert len(mixed) == len(set(mixed)) and set(mixed) <= set(both) and len(sides) == 3
    amounts = [one.manifest["deduplicated"]["documents_left_out"] for one in corpora.train]
    assert amounts == [7, 10]


def test_the_first_documents_are_counted_before(pretrained, tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(["one .", "one .", "two .", "three ."]))
    args, _ = started(
        tmp_path / "run", pretrained, "--train_file", tmp_path / "a.txt", "--max_train_documents", 3, "--deduplicate",
        "documents",
    )  # fmt: skip
    text = Text(args)
    text.find_repeated(tmp_path / "run" / "corpus")
    assert [*text.lines()] == ["one .", None, "two .", None]


def test_a_resumed_run_with_other_text_is_refused_before_it_is_read(pretrained, tmp_path):
    """Another --deduplicate chooses other text."""
    texts, folder = tmp_path / "texts", tmp_path / "run"
    texts.mkdir()
    (texts / "a.txt").write_text("one .\n\ntwo .\n")
    args, _ = started(folder, pretrained, "--train_file", texts, "--resume_from_checkpoint", "auto")
    (folder / "checkpoint-1").mkdir(parents=True)
    facts = {
        "format": 1,
        "script": "run_pretraining.py",
        "flags": json.loads(json.dumps(vars(args))),
        "data": Text(args).sources,
    }
    (folder / "run.json").write_text(json.dumps(facts))
    assert check_unfinished(args) == facts
    args.deduplicate = "lines"
    with pytest.raises(ValueError, match="deduplicate None -> lines"):
        check_unfinished(args)


def test_text_that_is_held_out_and_trained_on(pretrained, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{name} .\n")
    args, _ = started(tmp_path / "run", pretrained, "--train_file", tmp_path / "*.txt")
    args.validation_file = [str(tmp_path / "b.txt")]
    with pytest.raises(
        ValueError, match=r"b\.txt: --validation_file .* holds it out, and --train_file .*\*\.txt trains"
    ):
        Text(args)
    args.train_file = args.validation_file  # on purpose
    assert [*Text(args).lines()] == ["b.txt .", None]

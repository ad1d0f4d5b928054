"""Malformed texts: those for pre-training, for learning a vocabulary, for features and for questions, and vocab.txt."""

import random

from bert_deploy.ask import read_contexts
from bert_training.inputs.texts import read_documents
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.tasks.feature_extraction import read_rows
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import judged, require, text_lines
from lab.tests.helpers.malformed_texts import TEXT, documents_of, oracle_of_text, texts_in, written
from lab.tests.helpers.mutations import damaged_lines
from tokenization import load_vocab

ROW = "malformed input"


WHOLE = r"holds no text|is empty|not a readable parquet|expected one column|damaged \."


@faults(ROW, 460)
def test_texts_for_pretraining(seed, tmp_path, record_property):
    path, content, kind = written(tmp_path, random.Random(seed))

    def oracle():
        if kind == ".txt":
            require(content is not None, "damaged packing")
            return oracle_of_text(content)
        return documents_of(texts_in(content, kind))

    outcome = judged(lambda: list(read_documents([path])), oracle, path.name, WHOLE)
    record_property("outcome", outcome)


@faults(ROW, 40)
def test_contexts_of_questions(seed, tmp_path, record_property):
    content = damaged_lines(random.Random(seed), TEXT)
    path = tmp_path / "contexts.txt"
    path.write_bytes(content)

    def oracle():
        groups: list[list[str]] = [[]]
        for line in text_lines(content, may_be_one_line=True):
            groups[-1].append(line)
            if not line.strip():
                groups.append([])
        contexts = ["\n".join(line for line in group if line.strip()) for group in groups]
        require(any(contexts), "no text")
        return [context for context in contexts if context]

    record_property("outcome", judged(lambda: read_contexts(path), oracle, path.name, r"got no text"))


@faults(ROW, 40)
def test_lines_for_features(seed, tmp_path, record_property, tokenizer_folder):
    """A row of features for every line, with the pieces that the tokenizer makes of this line alone."""
    tokenizer = load_tokenizer(str(tokenizer_folder))
    lines = ["the old house ||| by the river .", "the king walked .", "", "||| x", "Grüße", "the queen"]
    content = damaged_lines(random.Random(seed), "".join(f"{line}\n" for line in lines).encode())
    path = tmp_path / "lines.txt"
    path.write_bytes(content)

    def read():
        return [row.input_ids for rows in read_rows(path, tokenizer, 32) for row in rows]

    def oracle():
        rows = []
        for line in text_lines(content, may_be_one_line=True):
            first, mark, second = line.strip().partition(" ||| ")
            parts = (first, second) if mark else (line.strip(),)
            rows.append(tokenizer(*parts, split_special_tokens=True)["input_ids"])
            require(len(rows[-1]) <= 32, "too long")
        require(rows, "empty")
        return rows

    record_property("outcome", judged(read, oracle, path.name))


@faults(ROW, 80)
def test_vocabularies(seed, tmp_path, record_property, vocab):
    draw = random.Random(seed)
    content = damaged_lines(draw, "\n".join([*vocab[:40], "##é", "日", "naïve"]).encode() + b"\n")
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)

    def oracle():
        pieces = [line.strip(" \t\r\n\v\f") for line in text_lines(content)]
        while pieces and not pieces[-1]:
            pieces.pop()
        require(pieces and all(pieces) and len(set(pieces)) == len(pieces), "pieces")
        return dict(zip(pieces, range(len(pieces))))

    record_property("outcome", judged(lambda: load_vocab(path), oracle, path.name, "the file is empty"))

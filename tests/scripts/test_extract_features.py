"""extract_features.py gives the vectors of transformers' BERT, and reads and writes files as the original does."""

import gzip
import json
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer

import extract_features
from bert_training.tasks.feature_extraction import read_rows
from tests.helpers.small_networks import save_random_network, small_config

TEXTS = "the old house .\n\nred ||| the blue river\n  garden [SEP] xyz \na ||| b ||| the window\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tokenizer_folder, vocab):
    config = small_config(vocab_size=len(vocab), hidden_size=16, num_hidden_layers=5, max_position_embeddings=32)
    return save_random_network(tmp_path_factory.mktemp("checkpoint"), tokenizer_folder, config)


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint)


def write(folder, text: str | bytes, name: str = "texts.txt"):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def run(checkpoint, source, target, *more: str):
    extract_features.main([
        "--model_name_or_path", str(checkpoint), "--input_file", str(source), "--output_file", str(target),
        "--max_seq_length", "20", *more,
    ])  # fmt: skip
    return target


@torch.no_grad()
def hidden_states(checkpoint, ids: list[int], types: list[int]) -> np.ndarray:
    """The states of transformers' network for one text without padding, with the shape (L, layers + 1, H)."""
    model = transformers.BertModel.from_pretrained(checkpoint, add_pooling_layer=False).eval()
    states = model(torch.tensor([ids]), token_type_ids=torch.tensor([types]), output_hidden_states=True).hidden_states
    return torch.stack(states, dim=2)[0].numpy()


EXPECTED = [  # the pieces of TEXTS, and where the second text of a line begins
    ("[CLS] the old house . [SEP]", 6),
    ("[CLS] [SEP]", 2),
    ("[CLS] red [SEP] the blue river [SEP]", 3),
    ("[CLS] garden [UNK] s ##e ##p [UNK] x ##y ##z [SEP]", 11),
    ("[CLS] a [UNK] [UNK] [UNK] b [SEP] the window [SEP]", 7),  # The last "|||" separates, as in the original.
]


def test_the_layout_and_the_values_of_the_original(checkpoint, tokenizer, tmp_path):
    argv = ("--layers", "-1,-2,0,-6", "--batch_size", "2")
    target = run(checkpoint, write(tmp_path, TEXTS), tmp_path / "out" / "vectors.jsonl", *argv)
    lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2, 3, 4]
    assert all(list(line) == ["linex_index", "features"] for line in lines)
    for line, (tokens, second) in zip(lines, EXPECTED, strict=True):
        tokens = tokens.split()
        assert [feature["token"] for feature in line["features"]] == tokens
        types = [int(place >= second) for place in range(len(tokens))]
        states = hidden_states(checkpoint, tokenizer.convert_tokens_to_ids(tokens), types)
        for place, feature in enumerate(line["features"]):
            assert [layer["index"] for layer in feature["layers"]] == [-1, -2, 0, -6]
            wanted = states[place, [5, 4, 1, 0]]
            found = np.array([layer["values"] for layer in feature["layers"]])
            np.testing.assert_allclose(found, wanted, atol=2e-6)
            assert feature["layers"][0]["values"] == [round(value, 6) for value in feature["layers"][0]["values"]]


@pytest.mark.parametrize("pooling", ["none", "cls", "mean"])
def test_numpy_files_and_pooling(checkpoint, tokenizer, tmp_path, pooling):
    source = write(tmp_path, gzip.compress(TEXTS.encode()), "texts.txt.gz")
    arrays = np.load(run(checkpoint, source, tmp_path / "vectors.npz", "--layers=-2", "--pooling", pooling))
    assert arrays["layers"].tolist() == [-2] and arrays["vectors"].dtype == np.float32
    if pooling == "none":
        offsets = arrays["offsets"]
        tokens = [tokenizer.convert_ids_to_tokens(arrays["input_ids"][a:b]) for a, b in pairwise(offsets)]
        assert tokens == [tokens.split() for tokens, _ in EXPECTED]
    else:
        assert arrays["vectors"].shape == (5, 1, 16)
        target = run(checkpoint, source, tmp_path / "vectors.jsonl", "--layers=-2", "--pooling", pooling)
        lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
        assert [[f["token"] for f in line["features"]] for line in lines] == [
            [{"cls": "[CLS]"}.get(pooling, "mean")]
        ] * 5
        values = [line["features"][0]["layers"][0]["values"] for line in lines]
        np.testing.assert_allclose(arrays["vectors"][:, 0], values, atol=1e-6)
    for number, (text, second) in enumerate(EXPECTED):
        ids = tokenizer.convert_tokens_to_ids(text.split())
        states = hidden_states(checkpoint, ids, [int(place >= second) for place in range(len(ids))])[:, 4]
        found = arrays["vectors"][:, 0]
        if pooling == "none":
            np.testing.assert_allclose(found[offsets[number] : offsets[number + 1]], states, atol=2e-6)
        else:
            wanted = {"cls": states[0], "mean": states.mean(axis=0)}[pooling]
            np.testing.assert_allclose(found[number], wanted, atol=2e-6)


def test_both_networks_write_the_same(checkpoint, tmp_path):
    source = write(tmp_path, TEXTS)
    ours, theirs = (
        np.load(run(checkpoint, source, tmp_path / f"{name}.npz", "--model_impl", name))["vectors"]
        for name in ("repro", "transformers")
    )
    assert ours.shape[1:] == (4, 16)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_windows_take_every_piece_where_it_has_most_context(checkpoint, tokenizer, tmp_path):
    words = ["red", "green", "blue", "small", "large", "old", "new", "house", "river", "city", "king", "queen"] * 3
    source = write(tmp_path, "the\n" + " ".join(words) + "\n")
    more = ("--layers=-1", "--max_seq_length", "12", "--long_lines", "window")
    arrays = np.load(run(checkpoint, source, tmp_path / "out.npz", *more))
    assert arrays["offsets"].tolist() == [0, 3, 3 + 38]
    assert tokenizer.convert_ids_to_tokens(arrays["input_ids"][3:]) == ["[CLS]", *words, "[SEP]"]
    found = arrays["vectors"][3:, 0]
    # 36 words are read in parts of 5, each in a window of 10 words. Windows begin at 0, 2 (= 5 - 2 - 1), ... and 26.
    starts = [max(0, min(begin - (10 - (min(begin + 5, 36) - begin)) // 2, 26)) for begin in range(0, 36, 5)]
    for begin, start in zip(range(0, 36, 5), starts):
        ids = tokenizer.convert_tokens_to_ids(["[CLS]", *words[start : start + 10], "[SEP]"])
        states = hidden_states(checkpoint, ids, [0] * 12)[:, -1]
        for word in range(begin, min(begin + 5, 36)):
            np.testing.assert_allclose(found[word + 1], states[word - start + 1], atol=2e-6)
        if begin == 0:
            np.testing.assert_allclose(found[0], states[0], atol=2e-6)
        if begin == 35:
            np.testing.assert_allclose(found[-1], states[-1], atol=2e-6)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz"])
def test_a_table_gives_its_column_of_texts_or_its_two(tmp_path, tokenizer, name):
    """Its header and its labels get no vectors."""
    rows = [("the river", "red"), ("an old house", "blue")]
    for names, lines in (
        (["text", "label"], "the river\nan old house\n"),
        (
            ["sentence1", "sentence2"],
            "the river ||| red\nan old house ||| blue\n",
        ),
    ):
        mark = "\t" if "tsv" in name else ","
        text = "".join(mark.join(cells) + "\n" for cells in [names, *rows])
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        assert read_rows(tmp_path / name, tokenizer, 16) == read_rows(write(tmp_path, lines), tokenizer, 16)
    with pytest.raises(ValueError, match=rf"{name}, row 2: expected up to 3 pieces, got 5"):
        read_rows(tmp_path / name, tokenizer, 6)


def test_no_piece_is_lost_or_written_twice(tokenizer, tmp_path):
    for seed in range(60):
        generator = random.Random(seed)
        texts = [" ".join(["the"] * generator.randint(0, 70)) for _ in range(5)]
        lines = read_rows(write(tmp_path, "\n".join(texts) + "\nlast"), tokenizer, generator.randint(4, 30), "window")
        for text, rows in zip(texts, lines):
            kept = [piece for row in rows for piece in row.input_ids[row.kept]]
            assert tokenizer.convert_ids_to_tokens(kept) == ["[CLS]", *text.split(), "[SEP]"]


def test_line_i_of_the_output_is_line_i_of_the_input_whatever_it_holds(checkpoint, tmp_path):
    """Lines end at a line feed only. What str.splitlines takes for line ends is white space in a text."""
    texts = [
        "the king",
        "",
        "red\u2028house",
        "old\vnew\fcity\x85river",
        "green\x1cblue",
        "\u2029",
        '{"the": 1}',
        "queen",
    ]
    target = run(checkpoint, write(tmp_path, "\n".join(texts)), tmp_path / "out.jsonl", "--layers=-1")
    lines = [json.loads(line) for line in target.read_text(encoding="utf-8").split("\n") if line]
    assert [line["linex_index"] for line in lines] == list(range(len(texts)))
    words = [[piece["token"] for piece in line["features"][1:-1]] for line in lines]
    assert words[:3] == [["the", "king"], [], ["red", "house"]] and words[-1] == ["queen"]

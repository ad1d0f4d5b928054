"""datasets streams texts from files through our tokenizer into the network."""

import json

import datasets
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding

from tests.helpers.ecosystem import every_way, largest_difference, open_folder
from tests.helpers.words import WORDS

pytestmark = pytest.mark.slow
TEXTS = [" ".join(WORDS[(7 * row + column) % len(WORDS)] for column in range(3 + row % 9)) for row in range(50)]


@pytest.fixture
def files(tmp_path) -> list[str]:
    """The texts in two files, as one object a line."""
    paths = []
    for part, texts in enumerate((TEXTS[:30], TEXTS[30:])):
        paths.append(str(tmp_path / f"part-{part}.jsonl"))
        (tmp_path / f"part-{part}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return paths


@pytest.fixture
def stream(files, tokenizer):
    texts = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
    return texts.map(lambda rows: tokenizer(rows["text"]), batched=True, batch_size=8, remove_columns=["text"])


@pytest.mark.tried("datasets", "a stream of texts, tokenized in batches, padded and computed by the network")
@every_way
def test_a_stream_gives_what_the_texts_give(way, classifier, stream, tokenizer, record_property):
    model = open_folder(way, "BertForSequenceClassification", classifier)
    loader = DataLoader(stream, batch_size=16, collate_fn=DataCollatorWithPadding(tokenizer))
    with torch.no_grad():
        found = torch.cat([model(**batch).logits for batch in loader])
        expected = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in TEXTS])
    record_property("largest difference", difference := largest_difference(found, expected))
    assert difference < 1e-4


@pytest.mark.tried("datasets", "a stream that is interrupted, shuffled: `state_dict` and `load_state_dict`")
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_stream_continues_where_it_stopped(shuffled, files, tokenizer):
    def rows():
        texts = datasets.load_dataset("json", data_files=files, split="train", streaming=True)
        if shuffled:
            texts = texts.shuffle(seed=1, buffer_size=1)
        return texts.map(lambda row: tokenizer(row["text"]))

    whole = [row["input_ids"] for row in rows()]
    assert sorted(whole) == sorted(tokenizer(TEXTS)["input_ids"])
    first, before = rows(), []
    for row in first:
        before.append(row["input_ids"])
        if len(before) == 17:
            break
    second = rows()
    second.load_state_dict(first.state_dict())
    assert before + [row["input_ids"] for row in second] == whole

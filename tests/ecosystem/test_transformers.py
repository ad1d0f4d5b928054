"""transformers' pipelines and Trainer with a finished folder, opened as our class, as theirs and with its own code."""

from itertools import pairwise

import pytest
import torch
from transformers import Trainer, TrainingArguments, pipeline

from modeling_bert_repro import BertForTokenClassification
from tests.helpers.bert_pairs import randomise
from tests.helpers.ecosystem import OWN, PLAIN, every_way, largest_difference, open_folder

pytestmark = pytest.mark.slow
TEXTS = ["the old house", "a king walked by the river", "the queen opened the letter , and the night was old ."]
both_sizes = pytest.mark.parametrize("size", [1, 3])  # with 3, the shorter texts are padded


def scores_by_hand(model, tokenizer, *texts) -> torch.Tensor:
    with torch.no_grad():
        return model(**tokenizer(*texts, return_tensors="pt"))[0][0]


@pytest.mark.tried("transformers", '`pipeline("fill-mask")`')
@every_way
@both_sizes
def test_fill_mask(way, size, finished, tokenizer, record_property):
    model = open_folder(way, "BertForMaskedLM", finished)
    texts = [text.replace("the", "[MASK]", 1) if "the" in text else "a [MASK]" for text in TEXTS]
    for text, guesses in zip(texts, pipeline("fill-mask", model, tokenizer=tokenizer, batch_size=size)(texts)):
        place = tokenizer(text)["input_ids"].index(tokenizer.mask_token_id)
        expected = scores_by_hand(model, tokenizer, text)[place].softmax(-1).topk(5)
        assert [guess["token"] for guess in guesses] == expected.indices.tolist()
        found = torch.tensor([guess["score"] for guess in guesses])
        record_property("largest difference", difference := largest_difference(found, expected.values))
        assert difference < 1e-5


@pytest.mark.tried("transformers", '`pipeline("text-classification")`, of single texts and of pairs')
@every_way
@both_sizes
def test_text_classification(way, size, classifier, tokenizer, record_property):
    model = open_folder(way, "BertForSequenceClassification", classifier)
    model.config.problem_type = "single_label_classification"
    classify = pipeline("text-classification", model, tokenizer=tokenizer, top_k=None, batch_size=size)
    pairs = [{"text": text, "text_pair": other} for text, other in pairwise(TEXTS)]
    hands = [(text,) for text in TEXTS] + [tuple(pair.values()) for pair in pairs]
    for words, answers in zip(hands, classify(TEXTS) + classify(pairs), strict=True):
        expected = scores_by_hand(model, tokenizer, *words).softmax(-1)
        found = torch.tensor([answer["score"] for answer in sorted(answers, key=lambda answer: answer["label"])])
        record_property("largest difference", difference := largest_difference(found, expected))
        assert difference < 1e-5


@pytest.mark.tried("transformers", '`pipeline("token-classification")`')
@every_way
@both_sizes
def test_token_classification(way, size, finished, tokenizer, tmp_path, record_property):
    torch.manual_seed(0)
    randomise(BertForTokenClassification.from_pretrained(finished, num_labels=4)).save_pretrained(tmp_path)
    model = open_folder(way, "BertForTokenClassification", tmp_path)
    mark = pipeline("token-classification", model, tokenizer=tokenizer, ignore_labels=[], batch_size=size)
    for text, words in zip(TEXTS, mark(TEXTS)):
        expected = scores_by_hand(model, tokenizer, text)[1:-1].softmax(-1).max(-1)
        assert [model.config.label2id[word["entity"]] for word in words] == expected.indices.tolist()
        found = torch.tensor([float(word["score"]) for word in words])
        record_property("largest difference", difference := largest_difference(found, expected.values))
        assert difference < 1e-5


@pytest.mark.tried("transformers", '`pipeline("feature-extraction")`')
@every_way
@both_sizes
def test_feature_extraction(way, size, finished, tokenizer, record_property):
    model = open_folder(way, "BertModel", finished)
    extract = pipeline("feature-extraction", model, tokenizer=tokenizer, return_tensors=True, batch_size=size)
    for text, states in zip(TEXTS, extract(TEXTS)):
        expected = scores_by_hand(model, tokenizer, text)
        difference = largest_difference(states[0][: len(expected)], expected)
        record_property("largest difference", difference)
        assert difference < 1e-5


# --- Trainer ---------------------------------------------------------------------------------------------------------


class Rows(torch.utils.data.Dataset):
    """Rows whose numbers of masked tokens differ, so that a mean of means would be wrong."""

    def __init__(self, tokenizer, count: int = 48):
        generator = torch.Generator().manual_seed(0)
        self.rows = []
        for number in range(count):
            ids = torch.randint(5, len(tokenizer), (12,), generator=generator)
            labels = torch.where(torch.rand(12, generator=generator) < 0.1 + 0.8 * (number % 4) / 3, ids, -100)
            labels[0] = ids[0]
            masked = torch.where(labels == -100, ids, tokenizer.mask_token_id)
            self.rows.append({"input_ids": masked, "attention_mask": torch.ones_like(ids), "labels": labels})

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.rows[index]


def arguments(folder, **changes) -> TrainingArguments:
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "max_grad_norm": 1.0,
        "weight_decay": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "train_sampling_strategy": "sequential",
    }
    return TrainingArguments(**settings | changes)


def train_by_hand(model, rows: Rows, steps: int = 6, size: int = 16) -> list[float]:
    """The same steps without Trainer and without accumulation: AdamW, a linear schedule, clipped gradients."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses = []
    for step in range(steps):
        chosen = [rows[(step * size + i) % len(rows)] for i in range(size)]
        batch = {name: torch.stack([row[name] for row in chosen]) for name in chosen[0]}
        loss = model.train()(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.tried("transformers", "`Trainer`, 8 micro-batches a step, around our class: the losses of whole batches")
@pytest.mark.parametrize("way", [OWN, "trust_remote_code"])
def test_trainer_accumulates_as_a_whole_batch(way, finished, tokenizer, tmp_path, record_property):
    rows, reference = Rows(tokenizer), open_folder(PLAIN, "BertForMaskedLM", finished)
    expected = train_by_hand(reference, rows)
    trainer = Trainer(open_folder(way, "BertForMaskedLM", finished), arguments(tmp_path), train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    difference = largest_difference(torch.tensor(losses), torch.tensor(expected))
    record_property("largest difference", difference)
    assert difference < 1e-3 and losses[-1] < losses[0]
    for name, weight in reference.named_parameters():
        torch.testing.assert_close(trainer.model.get_parameter(name), weight, rtol=0, atol=1e-4)


@pytest.mark.tried(
    "transformers", "`Trainer` resumes from its checkpoint: the weights of a training that never stopped"
)
@every_way
def test_trainer_resumes(way, finished, tokenizer, tmp_path):
    rows, final = Rows(tokenizer), []
    for checkpoint in (None, str(tmp_path / "checkpoint-3")):
        options = arguments(tmp_path, save_strategy="steps", save_steps=3)
        trainer = Trainer(open_folder(way, "BertForMaskedLM", finished), options, train_dataset=rows)
        trainer.train(resume_from_checkpoint=checkpoint)
        final.append(trainer.model.state_dict())
    for name, tensor in final[0].items():
        assert torch.equal(final[1][name], tensor), name

"""Malformed models: tokenizers, manifests, and checkpoints of TensorFlow 1 and of old PyTorch."""

import json
import random
import shutil
from pathlib import Path

import pytest

from bert_tools.old_checkpoints import read_old_checkpoint
from bert_training.engine.checkpoint import named_checkpoint
from bert_training.files.atomic import sealed_folder
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.phases import phases_of
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.corpus import FORMAT, read_facts
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import judged, require
from lab.tests.helpers.mutations import damaged_bytes, damaged_json, damaged_lines
from tests.bert_tools.written import state_and_config
from tests.helpers.old_checkpoints import WRITTEN, saved_as

ROW = "malformed input"


def damaged_file(draw: random.Random, path: Path, share: float = 0.8) -> bytes:
    """Damage a file of JSON, mostly in its values, and return its new content."""
    content = path.read_bytes()
    if draw.random() < share:
        content = damaged_json(draw, json.loads(content), indent=draw.choice((None, 2)))
    else:
        content = draw.choice((damaged_bytes, damaged_lines))(draw, content)
    path.write_bytes(content)
    return content


def once(pairs: list) -> dict:
    require(len(dict(pairs)) == len(pairs), "a field twice")
    return dict(pairs)


@faults(ROW, 120)
def test_tokenizers(seed, tmp_path, record_property, tokenizer_folder):
    """A folder with damaged files either opens with the pieces that its tokenizer.json lists, or is refused."""
    draw = random.Random(seed)
    folder = tmp_path / "tokenizer"
    shutil.copytree(tokenizer_folder, folder)
    (folder / "vocab.txt").unlink()  # Otherwise most damage would be refused as a difference between the files.
    path = folder / draw.choice(("tokenizer.json", "tokenizer_config.json"))
    tree = json.loads(path.read_bytes())
    if path.name == "tokenizer.json":
        tree["model"]["vocab"] = dict(list(tree["model"]["vocab"].items())[:60])
        path.write_text(json.dumps(tree))
    damaged_file(draw, path)

    def read():
        tokenizer = load_tokenizer(str(folder))
        return sorted((piece, number) for piece, number in tokenizer.get_vocab().items())

    def oracle():
        rules = json.loads((folder / "tokenizer.json").read_bytes().decode("utf-8-sig"))
        pieces = dict(rules["model"]["vocab"])
        require(len(set(pieces.values())) == len(pieces), "one id for two pieces")
        require(all(pieces.get(added["content"]) == added["id"] for added in rules["added_tokens"]), "special tokens")
        # A special token that tokenizer_config.json names and the vocabulary lacks is added behind it.
        settings = json.loads((folder / "tokenizer_config.json").read_bytes().decode("utf-8-sig"))
        for name in sorted(settings):
            named = (
                settings[name]["content"]
                if isinstance(settings[name], dict) and "content" in settings[name]
                else settings[name]
            )
            if name.endswith("_token") and isinstance(named, str) and named not in pieces:
                pieces[named] = max(pieces.values()) + 1
        return sorted(pieces.items())

    # transformers reads these files and does not tell the place; the folder and its reason are named.
    record_property(
        "outcome",
        judged(
            read,
            oracle,
            "tokenizer",
            "with a tokenizer|to two pieces|no piece of its|tokenizer_config.json|tokenizer.json",
            both=False,
        ),
    )


@faults(ROW, 60)
def test_manifests_of_checkpoints(seed, tmp_path, record_property):
    draw = random.Random(seed)
    folder = tmp_path / "checkpoint-7"
    names = ("config.json", "model.safetensors", "training_state.pt")
    with sealed_folder(folder) as draft:
        for name in names:
            (draft / name).write_text(f"content of {name}")
    content = damaged_file(draw, folder / "manifest.json")

    def oracle():
        hashes = json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)["sha256"]
        require(set(names) <= hashes.keys(), "names")
        require(all("/" not in name and sha256(folder / name) == digest for name, digest in hashes.items()), "hashes")
        return folder.name

    read = lambda: named_checkpoint(str(folder)).name  # noqa: E731
    record_property("outcome", judged(read, oracle, "checkpoint-7", r"manifest\.json|missing|does not match|no file"))


@faults(ROW, 40)
def test_facts_of_shards(seed, tmp_path, record_property):
    draw = random.Random(seed)
    path = tmp_path / "shard.json"
    path.write_text(json.dumps({"key": {"format": 3, "text": "0a"}, "slice": [{"start": 0, "stop": 3}], "last": True}))
    content = damaged_file(draw, path)

    def oracle():
        found = json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)
        require(found["key"]["format"] == FORMAT, "format")
        return found

    record_property(
        "outcome", judged(lambda: read_facts(tmp_path), oracle, path.name, "missing, damaged or of another")
    )


# --- TensorFlow 1 ----------------------------------------------------------------------------------------------------


def tensors_in(source: Path) -> list[tuple[str, list]]:
    tensors = read_old_checkpoint(source).tensors
    return sorted((name, tensor.tolist()) for name, tensor in tensors.items())


@faults(ROW, 80)
def test_checkpoints_of_tensorflow(seed, tmp_path, record_property):
    """Bytes of index and data are changed."""
    pytest.importorskip("google_crc32c")
    draw = random.Random(seed)
    source = WRITTEN / draw.choice(("pretrained", "several_files", "in_parts"))
    folder = tmp_path / "old"
    shutil.copytree(source, folder)
    path = draw.choice(sorted(folder.glob("*ckpt*")))
    path.write_bytes(damaged_bytes(draw, path.read_bytes()))

    record_property(
        "outcome",
        judged(
            lambda: tensors_in(folder),
            lambda: tensors_in(source),
            "old/",
            r"damaged|cut short|not found|expected|supported|object-based|no such|\.index",
            both=False,
        ),
    )


@faults(ROW, 60)
def test_old_files_of_pytorch(seed, tmp_path, record_property):
    draw = random.Random(seed)
    stored, _ = state_and_config()
    folder = saved_as(tmp_path / "old", stored)
    path = folder / "pytorch_model.bin"
    path.write_bytes(damaged_bytes(draw, path.read_bytes()))

    def oracle():
        return sorted((name, tensor.tolist()) for name, tensor in stored.items())

    record_property(
        "outcome",
        judged(lambda: tensors_in(folder), oracle, path.name, "it cannot be read|expected", both=False),
    )


# --- flags -----------------------------------------------------------------------------------------------------------


def phases_oracle(text: str) -> list[tuple[int, float, int, int]]:
    """(length, share, batch, accumulation) of every phase of --phases, by its grammar."""
    phases = []
    for part in text.split(","):
        length, share, *batch = part.strip().split(":")
        require(len(batch) < 2, "fields")
        size, _, accumulation = batch[0].partition("x") if batch else ("", "", "")
        require(not batch or size, "batch")
        require("x" not in "".join(batch) or accumulation, "accumulation")
        digits = [length, size or "4", accumulation or "2"]
        require(all(number.isascii() and number.isdigit() for number in digits), "digits")
        require(share.isascii() and set(share) <= set("0123456789.e-"), "share")
        phases.append((int(length), float(share), int(digits[1]), int(digits[2])))
    require(all(length >= 8 and 0 < share <= 1 and size and times for length, share, size, times in phases), "range")
    require(abs(sum(phase[1] for phase in phases) - 1) <= 1e-6, "sum")
    require(len({phase[0] for phase in phases}) == len(phases), "lengths")
    return phases


@faults(ROW, 60)
def test_phases(seed, record_property):
    draw = random.Random(seed)
    text = draw.choice(("128:0.9:32,512:0.1:8x4", "64:0.5,128:0.5", "8:1", "16:0.25:1x1, 32:0.25:2 ,64:0.5:3x9"))
    place = draw.randrange(len(text) + 1)
    new = draw.choice(
        ["", ":", ",", "x", "-", ".", "0", "1", "e", " ", "\n", "nan", "١", "²", "9" * 5000, ",,", "8:0.5"]
    )
    text = text[:place] + new + text[place + draw.randrange(2) :]
    flags = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "phases": text, "max_seq_length": 9}

    def read():
        return [(phase.length, phase.share, phase.size, phase.accumulation) for phase in phases_of(flags)]

    record_property(
        "outcome",
        judged(read, lambda: phases_oracle(text), "--phases", "is not a phase|out of range|add up|twice|--phases"),
    )

"""Small files that stand for a lot: packed files and headers. They are refused, and memory and disk stay bounded."""

import json
import random
import shutil
import struct
from pathlib import Path

from lab.tests.helpers.fault_campaign import faults
from tests.helpers import short_runs
from tests.helpers.fault_runs import run
from tests.helpers.hostile_input import SECONDS, bomb, refused
from tests.helpers.model_folders import edit_json

# At most so many MiB more than an idle process may be taken, and no larger file be written.
MEMORY, FILE = 512, 64
BOUNDED = [("tests.helpers.hostile_input:limits", {"memory": MEMORY, "file": FILE})]
SQUAD = b'{"data": [{"title": "t", "paragraphs": ['
# Name -> script, flag that takes the file, its content: what is repeated, the start, the end.
BOMBS = {
    "corpus.txt.xz": ("run_pretraining", "train_file", b"the old house .\n", b"", b""),
    "corpus.txt.gz": ("run_pretraining", "train_file", b"the old house .\n\n", b"", b""),
    "corpus.jsonl.xz": ("run_pretraining", "validation_file", b'{"text": "the old house"}\n', b"", b""),
    "one_line.txt.gz": ("run_pretraining", "train_file", b"house ", b"", b""),
    "one_document.txt.xz": ("run_pretraining", "validation_file", b"a\n", b"", b""),
    "table.csv.gz": ("run_glue", "train_file", b"the old house,x\n", b"sentence,label\n", b""),
    "table.tsv.xz": ("run_glue", "validation_file", b"the old house\tx\n", b"sentence\tlabel\n", b""),
    "table.jsonl.gz": ("run_glue", "train_file", b'{"sentence": "a", "label": "x"}\n', b"", b""),
    "one_field.csv.xz": ("run_glue", "train_file", b"house ", b'sentence,label\n"', b'",x\n'),
    "blank.tsv.gz": ("run_glue", "train_file", b"\n", b"sentence\tlabel\n", b""),
    "squad.json.xz": ("run_squad", "train_file", b" ", SQUAD, b"]}]}"),
    "squad.json.gz": ("run_squad", "validation_file", b"[[", SQUAD, b""),
    "names.txt.xz": ("run_ner", "train_file", b"Anna NNP I-NP I-PER\n", b"", b""),
    "names.conll.gz": ("run_ner", "validation_file", b"Anna NNP I-NP I-PER\n\n", b"", b""),
    "swag.csv.xz": (
        "run_swag",
        "train_file",
        b"a,b,c,d,e,f,1\n",
        b"sent1,sent2,ending0,ending1,ending2,ending3,label\n",
        b"",
    ),
    "lines.txt.gz": ("extract_features", "input_file", b"the old house .\n", b"", b""),
}


def sent(script: str, data: Path, pretrained: Path, folder: Path, **files: Path) -> list[str]:
    """The flags of a short run in which files are replaced."""
    if script == "extract_features":
        return [
            *("--model_name_or_path", str(pretrained), "--output_file", str(folder / "out.npz")),
            *("--max_seq_length", "32", "--layers", "-1"),
            *(word for name, path in files.items() for word in (f"--{name}", str(path))),
        ]
    words = short_runs.flags(script, data, folder / "out", pretrained)
    for name, path in files.items():
        words[words.index(f"--{name}") + 1] = str(path)
    return words


@faults("hostile input", 16)
def test_a_small_file_does_not_become_a_large_one(seed, short_data, pretrained, tmp_path, record_property):
    """A file of a megabyte unpacks to a gigabyte. It is refused before memory or disk are full."""
    name = random.Random(0).sample(sorted(BOMBS), len(BOMBS))[seed]
    script, flag, text, start, end = BOMBS[name]
    bomb(tmp_path / name, text, start, end)
    assert (tmp_path / name).stat().st_size < 4 << 20
    ended = run(
        script,
        sent(script, short_data, pretrained, tmp_path, **{flag: tmp_path / name}),
        tmp_path,
        prepare=BOUNDED,
        environment={"BERT_REPRO_LARGEST_MIB": "4"},
        seconds=SECONDS,
    )
    line = refused(ended, name)
    assert "came out of the first" in line or "expected lines of at most" in line or "blank line" in line, line
    used = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file() and path.name != name)
    assert used < FILE << 20
    record_property("outcome", "refused")


# --- headers that claim a lot -----------------------------------------------------------------------------------


def nested(path: Path) -> None:
    path.write_text("[" * 100_000 + "]" * 100_000)


def huge_hole(path: Path, start: bytes = b"") -> None:
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(1 << 42)  # The file has a hole, which takes no space on the disk.


def tensor_header(path: Path, **tensor: object) -> None:
    header = json.dumps({"bert.embeddings.word_embeddings.weight": {"dtype": "F32", "data_offsets": [0, 4]} | tensor})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + bytes(4))


def last_piece(folder: Path, number: int) -> None:
    rules = json.loads((folder / "tokenizer.json").read_text())
    pieces = rules["model"]["vocab"]
    pieces[max(pieces, key=pieces.get)] = number
    (folder / "tokenizer.json").write_text(json.dumps(rules))


def config(**fields: object):
    return lambda folder: edit_json(folder / "config.json", **fields)


# Name -> (what is done to a copy of a model's folder, a word of the error).
CLAIMS = {
    "vocabulary of 10^12": (config(vocab_size=10**12), "GiB"),
    "10^9 layers": (config(num_hidden_layers=10**9), "GiB"),
    "10^12 labels": (config(num_labels=10**12), "num_labels"),
    "10^9 positions": (config(max_position_embeddings=10**12), "GiB"),
    "hidden size 10^30": (config(hidden_size=2 * 10**30), "GiB"),
    "a fifth of the vocabulary's weights": (config(vocab_size=5_000_000), "parameters"),
    "minus one layer": (config(num_hidden_layers=-1), "num_hidden_layers"),
    "a float": (config(intermediate_size=1e18), "intermediate_size"),
    "nested config": (lambda folder: nested(folder / "config.json"), "config.json"),
    "config with a hole": (lambda folder: huge_hole(folder / "config.json"), "config.json"),
    "nested tokenizer": (lambda folder: nested(folder / "tokenizer.json"), "tokenizer"),
    "nested settings": (lambda folder: nested(folder / "tokenizer_config.json"), "tokenizer"),
    "a piece with the id 4 * 10^9": (lambda folder: last_piece(folder, 4_000_000_000), "4,000,000,000"),
    "a piece with the id 2^40": (lambda folder: last_piece(folder, 1 << 40), "tokenizer"),
    "tokenizer with a hole": (lambda folder: huge_hole(folder / "tokenizer.json"), "tokenizer.json"),
    "header of 2^62 bytes": (
        lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{"),
        "header would have",
    ),
    "header of 1 TiB in a hole": (
        lambda folder: huge_hole(folder / "model.safetensors", struct.pack("<Q", 1 << 40)),
        "header would have",
    ),
    "shape of 10^15 rows": (lambda folder: tensor_header(folder / "model.safetensors", shape=[10**15, 32]), "header"),
    "shape that wraps around": (
        lambda folder: tensor_header(folder / "model.safetensors", shape=[1 << 47, 1 << 47]),
        "weights",
    ),
    "nested header": (
        lambda folder: (folder / "model.safetensors").write_bytes(struct.pack("<Q", 90_000) + b"[" * 90_000),
        "header",
    ),
}


@faults("hostile input", 20)
def test_a_folder_that_claims_a_lot_is_refused(seed, short_data, pretrained, tmp_path, record_property):
    """A config, a tokenizer or a header of a few bytes asks for terabytes, billions of layers or endless nesting."""
    name = random.Random(1).sample(sorted(CLAIMS), len(CLAIMS))[seed]
    change, word = CLAIMS[name]
    shutil.copytree(pretrained, tmp_path / "model")
    change(tmp_path / "model")
    script = random.Random(seed).choice(["run_glue", "run_ner", "run_squad"])
    words = short_runs.flags(script, short_data, tmp_path / "out", tmp_path / "model")
    ended = run(script, words, tmp_path, prepare=BOUNDED, seconds=SECONDS)
    refused(ended, word)
    record_property("outcome", "refused")

"""Turn an old BERT checkpoint into a folder that every Hugging Face tool opens. TensorFlow is not needed.

    python -m training convert uncased_L-12_H-768_A-12 bert-base-uncased
    python -m training convert biobert/model.ckpt-1000000 biobert --do_lower_case false
    python -m training convert ckpt_8601.pt bert-large --config_file bert_config.json --vocab_file vocab.txt

SOURCE is a folder of google-research/bert (bert_config.json, vocab.txt, bert_model.ckpt.*), the prefix of such files, a
folder with pytorch_model.bin, a folder of sentence-transformers, or a .bin or .pt file such as NVIDIA's. The class is
chosen by the heads that the checkpoint has. Every tensor is used, or named with the reason why it is not needed; a
tensor that is neither stops the conversion.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from transformers import AutoTokenizer, BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization import build_tokenizer, load_vocab, write_vocab
from training.files.atomic import whole_folder
from training.files.hashing import sha256
from training.networks.configuration import check_fit
from training.networks.old_checkpoints import OldCheckpoint, read_old_checkpoint

CLASSIFIERS = {
    "sequence": "BertForSequenceClassification",
    "token": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
}
WITHOUT_POOLER = ("BertForMaskedLM", "BertForQuestionAnswering", "BertForTokenClassification")
MULTILINGUAL = 100_000  # pieces; Google's multilingual vocabularies have 105,879 and 119,547


class Converted(NamedTuple):
    """The network and its tokenizer; ``notes`` are sentences that the user should read."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    notes: list[str]


def convert(
    old: OldCheckpoint,
    vocab_file: str | Path | None = None,
    do_lower_case: bool | None = None,
    head: str | None = None,
) -> Converted:
    """Put the tensors into the class of transformers that has the same heads.

    Args:
        vocab_file: the vocabulary, if it is not beside the weights.
        do_lower_case: None looks at the tokenizer's settings, and then for capital letters in the vocabulary.
        head: ``sequence``, ``token`` or ``multiple_choice``: what a classifier classifies. TensorFlow's checkpoints do
            not say it; the default is the config's class, and otherwise ``sequence``.

    Raises:
        ValueError: tensors are missing, not known, or of another shape than the config says; there is no vocabulary, or
            it does not fit.
    """
    notes: list[str] = []
    config, tensors = old.config, dict(old.tensors)
    _fit_vocabulary_size(config, tensors, notes)
    name = find_class(tensors, config, head)
    if "classifier.weight" in tensors and name != "BertForMultipleChoice":
        labels = len(tensors["classifier.weight"])
        if config.num_labels != labels:
            config.num_labels = labels
    if name in WITHOUT_POOLER and (pooler := [key for key in tensors if key.startswith("bert.pooler.")]):
        for key in pooler:
            del tensors[key]
        notes.append(f"left out: the pooler, which {name} does not have")
    if name == "BertModel":
        tensors = {key.removeprefix("bert."): tensor for key, tensor in tensors.items()}
    model = getattr(transformers, name)(config)
    _load(model, tensors)
    tokenizer = _tokenizer(old, config, vocab_file, do_lower_case, notes)
    check_fit(config, tokenizer, config.max_position_embeddings)
    return Converted(model, tokenizer, notes)


def find_class(tensors: dict[str, torch.Tensor], config: BertConfig, head: str | None = None) -> str:
    """The name of the class whose heads the tensors are. Raises ValueError if two kinds of heads are mixed."""
    heads = {name.split(".")[1] if name.startswith("cls.") else name.split(".")[0] for name in tensors} - {"bert"}
    known = {
        frozenset(): "BertModel",
        frozenset({"predictions", "seq_relationship"}): "BertForPreTraining",
        frozenset({"predictions"}): "BertForMaskedLM",
        frozenset({"seq_relationship"}): "BertForNextSentencePrediction",
        frozenset({"qa_outputs"}): "BertForQuestionAnswering",
        frozenset({"classifier"}): CLASSIFIERS["sequence"],
    }
    name = known.get(frozenset(heads))
    if name is None:
        raise ValueError(f"expected the heads of one class of BERT, found tensors of {', '.join(sorted(heads))}")
    stated = config.architectures[0] if config.architectures else ""
    if name == CLASSIFIERS["sequence"]:
        return CLASSIFIERS[head] if head else stated if stated in CLASSIFIERS.values() else name
    if head:
        raise ValueError(f"--head {head} needs a classifier, but the checkpoint is a {name}")
    return name


def _fit_vocabulary_size(config: BertConfig, tensors: dict[str, torch.Tensor], notes: list[str]) -> None:
    """Some programs pad the rows of the embeddings to a multiple of 8 and keep the smaller number in the config."""
    rows = tensors.get("bert.embeddings.word_embeddings.weight")
    if rows is not None and 0 < len(rows) - config.vocab_size < 128:
        notes.append(f"vocab_size is {len(rows)}, the rows of the embeddings; the config said {config.vocab_size}")
        config.vocab_size = len(rows)


def _load(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    own = model.state_dict()
    tied = model.all_tied_weights_keys or {}
    problems = [f"missing: {name}" for name in own if name not in tensors and name not in tied]
    problems += [f"not known to {type(model).__name__}: {name}" for name in tensors if name not in own]
    problems += [
        f"{name} has the shape {tuple(tensor.shape)}, the config asks for {tuple(own[name].shape)}"
        for name, tensor in tensors.items()
        if name in own and own[name].shape != tensor.shape
    ]
    for name, source in tied.items():
        if name in tensors and source in tensors and not torch.equal(tensors[name], tensors[source]):
            problems.append(f"{name} differs from {source}, with which BERT shares it")
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError(f"the tensors do not fit the config: {'; '.join(problems[:5])}{more}")
    model.load_state_dict(tensors, strict=False)  # tied weights may be missing
    model.tie_weights()


def _tokenizer(
    old: OldCheckpoint, config: BertConfig, vocab_file: str | Path | None, lower: bool | None, notes: list[str]
) -> PreTrainedTokenizerBase:
    folder = old.vocabulary
    if vocab_file is None and folder and (folder / "tokenizer.json").is_file():
        if lower is not None:
            raise ValueError(f"--do_lower_case cannot change {folder / 'tokenizer.json'}; give --vocab_file as well")
        return AutoTokenizer.from_pretrained(folder)
    path = Path(vocab_file) if vocab_file else folder / "vocab.txt" if folder else None
    if path is None:
        raise ValueError("no vocab.txt beside the weights; give --vocab_file FILE")
    settings = {}
    if (path.parent / "tokenizer_config.json").is_file():
        stored = json.loads((path.parent / "tokenizer_config.json").read_text(encoding="utf-8"))
        names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
        settings = {name: stored[name] for name in names if name in stored}
    if lower is not None:
        settings["do_lower_case"] = lower
    vocabulary = load_vocab(path)
    capitals = [piece for piece in vocabulary if piece != piece.lower() and not piece.startswith("[")]
    settings.setdefault("do_lower_case", not capitals)
    case = "lower-cased" if settings["do_lower_case"] else "cased"
    notes.append(f"the tokenizer is {case}; {len(capitals):,} of {len(vocabulary):,} pieces have capital letters")
    if settings["do_lower_case"] and capitals:
        notes.append("warning: these pieces can never occur; --do_lower_case false keeps the case")
    if settings["do_lower_case"] and len(vocabulary) > MULTILINGUAL:
        notes.append(
            "warning: lower-casing also strips accents, which changes words of many languages; google-research/bert "
            "recommends the cased multilingual model"
        )
    return build_tokenizer(vocabulary, model_max_length=config.max_position_embeddings, **settings)


def save(converted: Converted, old: OldCheckpoint, out: Path) -> None:
    """Write the folder ``out``: whole, or not at all. Raises ValueError if there is something under that name."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not an empty folder; give another")
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(out) as draft:
        converted.model.save_pretrained(draft)
        converted.tokenizer.save_pretrained(draft)
        write_vocab(converted.tokenizer, draft)
        lines = [f"- `{path.name}` {sha256(path)}" for path in old.weights]
        name = type(converted.model).__name__
        card = ["---", "library_name: transformers", "---", "", f"# {out.name}", "", f"A {name}, converted from files"]
        card += ["with these SHA-256 sums:", "", *lines, "", *(f"- {note}" for note in converted.notes)]
        (draft / "README.md").write_text("\n".join(card) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> None:
    """Convert a checkpoint and say what was done. Raises ValueError as ``read_old_checkpoint`` and ``convert`` do."""
    parser = argparse.ArgumentParser(
        prog="python -m training convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("source", help="a checkpoint in an old form")
    parser.add_argument("out", type=Path, help="the folder to write; it must not exist, or be empty")
    parser.add_argument("--config_file", help="the config, if it is not beside the weights")
    parser.add_argument("--vocab_file", help="the vocabulary, if it is not beside the weights")
    parser.add_argument("--do_lower_case", choices=["true", "false"], help="default: false if pieces have capitals")
    parser.add_argument("--head", choices=list(CLASSIFIERS), help="what a classifier classifies (sequence)")
    args = parser.parse_args(argv)
    lower = None if args.do_lower_case is None else args.do_lower_case == "true"
    old = read_old_checkpoint(args.source, args.config_file)
    converted = convert(old, args.vocab_file, lower, args.head)
    save(converted, old, args.out)
    if old.left_out:
        converted.notes.append(f"left out: {len(old.left_out)} tensors that are no weights, such as {old.left_out[0]}")
    for note in converted.notes:
        print(note)
    count = converted.model.num_parameters()
    print(f"{args.out}: {type(converted.model).__name__}, {count:,} parameters, {len(old.tensors)} tensors")

"""Turn an old BERT checkpoint into a folder that every Hugging Face tool opens. TensorFlow is not needed.

    bert-repro convert uncased_L-12_H-768_A-12 bert-base-uncased
    bert-repro convert biobert/model.ckpt-1000000 biobert --do_lower_case false
    bert-repro convert bert-base-german-uncased bert-german --do_lower_case true --strip_accents false
    bert-repro convert ckpt_8601.pt bert-large --config_file bert_config.json --vocab_file vocab.txt

SOURCE is a folder of google-research/bert (bert_config.json, vocab.txt, bert_model.ckpt.*), the prefix of such files, a
folder with pytorch_model.bin, a folder of sentence-transformers, or a .bin or .pt file such as NVIDIA's. The class is
chosen by the heads that the checkpoint has. Every tensor is used or is known to be no weight, such as a variable of the
optimiser; any other tensor stops the conversion. Without --do_lower_case the tokenizer has the case that is stored
beside the vocabulary; if none is stored, it is cased if pieces of the vocabulary have capital letters. A lower-cased
tokenizer strips accents, unless the settings beside the vocabulary or --strip_accents say otherwise.
"""

from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from transformers import BertConfig, PreTrainedModel, PreTrainedTokenizerBase

from bert_tools.old_checkpoints import OldCheckpoint, read_old_checkpoint
from bert_training.cards.markdown import code, plain
from bert_training.files.atomic import check_free, make_folder, new_folder
from bert_training.files.hashing import sha256
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.flags.scripts import HEADS
from bert_training.inputs.models import check_fit
from bert_training.inputs.tokenizers import (
    TOKENIZER,
    VOCABULARY,
    check_rows,
    load_tokenizer,
    rules,
    rules_text,
    vocabulary_tokenizer,
)
from bert_training.networks.embedding_modules import carry_modules
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.errors import UserError

CLASSIFIERS = {
    "sequence": "BertForSequenceClassification",
    "token": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
}


class Converted(NamedTuple):
    """What is saved.

    Attributes:
        tensors: how many tensors of the source are in the network.
        notes: what the user should read, one sentence each.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    tensors: int
    notes: list[str]


def convert(
    old: OldCheckpoint,
    vocab_file: str | Path | None = None,
    do_lower_case: bool | None = None,
    head: str | None = None,
    strip_accents: bool | None = None,
) -> Converted:
    """Put the tensors into the class of transformers that has the same heads.

    Args:
        vocab_file: the vocabulary, if it is not beside the weights.
        do_lower_case: None takes the setting that is stored beside the vocabulary. If there is none, a vocabulary with
            capital letters makes a cased tokenizer.
        head: ``sequence``, ``token`` or ``multiple_choice``: what a classifier classifies. TensorFlow's checkpoints do
            not say it; the default is the config's class, and otherwise ``sequence``.
        strip_accents: None takes the setting that is stored beside the vocabulary, and otherwise the case.

    Raises:
        ValueError: tensors are missing, not known, or of another shape than the config says; or there is no vocabulary,
            or it does not fit.
    """
    config, tensors, notes = old.config, dict(old.tensors), list(old.notes)
    class_name = find_class(tensors, config, head)
    if "classifier.weight" in tensors and class_name != "BertForMultipleChoice":
        labels = len(tensors["classifier.weight"])
        if config.num_labels != labels:  # assigning it would delete the names of the labels
            config.num_labels = labels
    pooler = [name for name in tensors if name.startswith("bert.pooler.")]
    if pooler and not HEADS[class_name].pooler:
        for name in pooler:
            del tensors[name]
        notes.append(f"left out: the pooler, which {class_name} does not have")
    if class_name == "BertModel":
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    model = getattr(transformers, class_name)(config)
    _load(model, tensors)
    tokenizer = tokenizer_of(old.vocabulary, vocab_file, do_lower_case, strip_accents)
    if vocab_file is not None and old.vocabulary is not None:
        own = tokenizer_of(old.vocabulary, do_lower_case=do_lower_case, quiet=True)
        check_rows(tokenizer, f"--vocab_file {vocab_file}", own, str(old.vocabulary))
    notes.append(f"the tokenizer: {rules_text(rules(tokenizer))}")
    check_fit(config, tokenizer, config.max_position_embeddings)
    return Converted(model, tokenizer, len(tensors), notes)


def tokenizer_of(
    folder: Path | None,
    vocab_file: str | Path | None = None,
    do_lower_case: bool | None = None,
    strip_accents: bool | None = None,
    quiet: bool = False,
) -> PreTrainedTokenizerBase:
    """The tokenizer of a vocabulary, or of the tokenizer.json in a folder. Raises ValueError if there is neither."""
    stored = folder is not None and vocab_file is None and (folder / TOKENIZER).is_file()
    if (folder is None and vocab_file is None) or (stored and (do_lower_case, strip_accents) != (None, None)):
        raise UserError(
            "there is no vocab.txt beside the weights, or a tokenizer.json, which --do_lower_case and --strip_accents "
            "cannot change; give --vocab_file FILE"
        )
    if stored:
        return load_tokenizer(str(folder), quiet)
    path = Path(vocab_file) if vocab_file is not None else Path(str(folder), VOCABULARY)
    return vocabulary_tokenizer(path, "", do_lower_case, strip_accents, quiet)


def find_class(tensors: dict[str, torch.Tensor], config: BertConfig, head: str | None) -> str:
    """The name of the class that has the heads of the tensors.

    Args:
        tensors: by transformers' names, with the prefix ``bert.`` for the encoder.
        head: what a classifier classifies, as for ``convert``.

    Raises:
        ValueError: the tensors have heads of several classes, or ``head`` is given for another class than a classifier.
    """
    found = {name.removeprefix("cls.").partition(".")[0] for name in tensors} - {"bert"}
    fitting = [name for name, one in HEADS.items() if one.exported and found == {*one.tensors}]
    if not fitting or (head and CLASSIFIERS[head] not in fitting):
        raise UserError(
            f"expected the heads of one class of BERT{', with --head a classifier' if head else ''}; found tensors of "
            f"{', '.join(sorted(found)) or 'no head'}"
        )
    if head:
        return CLASSIFIERS[head]
    return next((name for name in config.architectures or () if name in fitting), fitting[0])


def _load(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> None:
    """Put the tensors into the network. Raises ValueError unless each has exactly one place of its shape."""
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
        raise UserError(f"the tensors do not fit the config: {'; '.join(problems[:5])}{more}")
    model.load_state_dict(tensors, strict=False)  # tied weights may be missing
    model.tie_weights()


def save(converted: Converted, old: OldCheckpoint, out: Path, source: str) -> None:
    """Write the folder ``out``: whole, or not at all. Raises ValueError if there is something under that name."""
    check_free(out)
    make_folder(out.parent)
    with new_folder(out) as draft:
        converted.model.save_pretrained(draft)
        config = converted.model.config
        save_tokenizer_files(converted.tokenizer, draft, config.max_position_embeddings, config.type_vocab_size)
        carry_modules(source, draft)
        (draft / "README.md").write_text(_card(converted, old, out.name), encoding="utf-8")


def _card(converted: Converted, old: OldCheckpoint, title: str) -> str:
    """The model card."""
    lines = ["---", "library_name: transformers", "---", "", f"# {plain(title)}", ""]
    lines.append(f"A {type(converted.model).__name__}, converted from files with these SHA-256 sums:")
    lines.append("")
    lines += [f"- {code(path.name)} {sha256(path)}" for path in old.weights]
    lines.append("")
    lines += [f"- {note}" for note in converted.notes]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> None:
    """Convert a checkpoint and say what was done. Raises ValueError as ``read_old_checkpoint`` and ``convert`` do."""
    parser = command_parser("convert", __doc__)
    parser.add_argument("source", metavar="SOURCE", help="a checkpoint in an old form")
    parser.add_argument("out", metavar="FOLDER", type=Path, help="the folder to write; it must be new or empty")
    parser.add_argument("--config_file", help="the config, if it is not beside the weights")
    parser.add_argument("--vocab_file", help="the vocabulary, if it is not beside the weights")
    parser.add_argument("--do_lower_case", choices=["true", "false"], help="the case of the tokenizer (see above)")
    parser.add_argument("--strip_accents", choices=["true", "false"], help="whether it drops accents (see above)")
    parser.add_argument(
        "--head",
        choices=list(CLASSIFIERS),
        help="what a classifier classifies (default: what the config says, or else sequence)",
    )
    args = parser.parse_args(argv)
    transformers.logging.disable_progress_bar()
    do_lower_case, strip_accents = (
        None if choice is None else choice == "true" for choice in (args.do_lower_case, args.strip_accents)
    )
    old = read_old_checkpoint(args.source, args.config_file)
    converted = convert(old, args.vocab_file, do_lower_case, args.head, strip_accents)
    save(converted, old, args.out, args.source)
    for note in converted.notes:
        print(note)
    if old.left_out:
        print(f"left out: {len(old.left_out)} tensors that are no weights, such as {old.left_out[0]}")
    class_name, parameters = type(converted.model).__name__, converted.model.num_parameters()
    print(f"{args.out}: {class_name}, {parameters:,} parameters, {converted.tensors} tensors")

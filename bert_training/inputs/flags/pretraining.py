"""The flags of run_pretraining.py."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bert_training.inputs.flags.objectives import DEFAULT, OBJECTIVES
from bert_training.inputs.flags.parsing import APART, CARD, EVALUATION, FIXED, FREE, flag
from bert_training.inputs.flags.phases import is_mixed, mixture_problems, phases_of
from bert_training.inputs.flags.recipes import GENERAL_SHARE, recipe_defaults, width_of
from bert_training.inputs.flags.shared import WEIGHT_OF_PRETRAINING, StudentArguments
from tokenization.errors import UserError

CONFIG_SIZES = {
    # name: (num_hidden_layers, hidden_size); heads = hidden_size / 64, intermediate = 4 * hidden_size.
    # Source: Turc et al. 2019, "Well-Read Students Learn Better", Table 1; for base and large Devlin et al. 2018.
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

ROUNDED_TO = (8, 16, 32, 64, 128)
SHORTEST = 8  # tokens of an instance
# The flags that have no effect with a tokenizer, with weights and without masks.
GIVEN_TOKENIZER = ("tokenizer_name", "model_name_or_path", "teacher")
GIVEN_WEIGHTS = ("model_name_or_path", "keep_layers")
WITHOUT_MASKS = tuple(f"objective {name}" for name, objective in OBJECTIVES.items() if not objective.masks)


def network_width(flags: Mapping[str, Any]) -> int:
    """The hidden size of the network that the flags of a script name; its weights are not opened."""
    weights = flags.get("model_name_or_path") or (flags.get("keep_layers") and flags.get("teacher"))
    name = weights or flags.get("config_name") or "mini"
    return CONFIG_SIZES[name][1] if not weights and name in CONFIG_SIZES else width_of(name)


@dataclass
class PretrainingArguments(StudentArguments):
    """The flags of run_pretraining.py.

    Attributes:
        train_file: Training text: .txt (blank lines separate documents), .jsonl or .parquet, also packed (.gz, .xz,
            .bz2, .zst); folders, patterns in quotes ('news/**/*.txt'), URLs (s3://, hf://, ...), data sets of
            save_to_disk.
        corpus_dir: The corpus of --train_file, if bert-repro corpus has prepared it with the same tokenizer. Default:
            the run prepares it.
        mixture: How much of the training comes from each entry of --train_file, as in 0.7 0.3: weights of instances,
            divided by their sum. Without numbers, with --recipe adapt: nine tenths from the first file. Default: all
            files are one text, each document once an epoch.
        validation_file: Held-out text, as for --train_file. Of several entries, each also has results of its own, such
            as those of a general text beside the domain's. Default: --validation_split of the documents.
        validation_split: Share of the documents to hold out if no --validation_file is given.
        dataset_name: A data set of the Hub with one document per row.
        text_column: The field or column of the text in .jsonl and .parquet files and data sets.
        dataset_config_name: Configuration of that data set.
        streaming: Stream the data set instead of downloading it.
        max_train_documents: Use only this many documents, the first ones.
        tokenizer_name: A tokenizer's folder, Hub name or vocab.txt. Default: that of --model_name_or_path or of
            --teacher; without them a vocabulary is learnt from the training text.
        vocab_size: Size of the vocabulary that is learnt if no --tokenizer_name is given; see bert-repro vocabulary.
        do_lower_case: Lower the case of the text of a learnt vocabulary.
        config_name: tiny|mini|small|medium|base|large, or a folder with config.json; the weights are new. Default:
            mini.
        model_name_or_path: A checkpoint to train further: folder or Hub name; also an old one.
        extend_vocab: New pieces for the vocabulary of --model_name_or_path: how many to choose from the training text,
            or a file with one word a line.
        pad_vocab_to_multiple_of: Round the rows of the embeddings up to a multiple of this number (8, 16, 32, 64 or
            128), which makes products of matrices faster.
        max_position_embeddings: Give the network of --model_name_or_path more positions, at least as many as it has.
        recipe: Defaults of the other flags. paper: those that --help shows. fast: those that let a small network learn
            more in a few hours. adapt: gentle ones for the further training of a published model on text of a domain.
            The script prints them; bert_training/inputs/flags/recipes.py has the reasons.
        objective: What an instance is, and what is predicted.
        max_seq_length: Largest number of tokens of an instance. Default: 128.
        phases: Lengths of instances, trained one after the other: LENGTH:SHARE[:BATCH[xACCUMULATION]],..., as in
            128:0.9:32,512:0.1:8x4. A mixture of its own stands behind a phase: 128:0.5@0.7:0.3.
        mlm_probability: Share of the tokens to predict.
        mask_replace_prob: Share of the predicted tokens to replace with [MASK].
        random_replace_prob: Share of the predicted tokens to replace with a random one; the remainder stay as they are.
        whole_word_mask: Mask all pieces of a word together.
        short_seq_prob: Share of the instances with a random shorter length.
        max_predictions_per_seq: Largest number of predicted tokens per instance.
        max_eval_instances: Held-out instances per evaluation.
        dropout: Dropout while this script trains. Default: that of the config, which config.json always keeps for
            fine-tuning.
        initializer_range: Deviation of the truncated normal distribution of new weights; config.json keeps it. Default:
            that of the config, 0.02 in BERT.
        initial_weights: New weights. random: all of them (paper). counted: embeddings, output bias, head and attention
            begin with what counts of the training text say about its pieces and their neighbours.
        num_train_epochs: Passes over the training text.
        learning_rate: Peak learning rate (paper, A.2).
        warmup_steps: As a number of steps or, below 1, a share of all steps (paper: 10,000 of 1,000,000).
        eval_steps: Number of steps between two evaluations; 0: evaluate only at the end.
    """

    FIRST = (
        *("output_dir", "train_file", "validation_file", "tokenizer_name", "config_name", "model_name_or_path"),
        *("recipe", "max_steps", "learning_rate", "resume_from_checkpoint"),
    )
    train_file: list[str] = flag([], APART)
    corpus_dir: str | None = flag(
        None,
        FREE,
        needs=("train_file", "validation_file", "tokenizer_name or model_name_or_path"),
        excludes=("mixture", "max_train_documents", "extend_vocab"),
    )
    mixture: list[float] | None = flag(None, FIXED | CARD, may_be_empty=True)
    validation_file: list[str] = flag([], APART)
    validation_split: float = flag(0.02, FIXED, above=0, below=1, excludes=("validation_file",))
    dataset_name: str | None = flag(None, APART, excludes=("train_file",))
    text_column: str = flag("text", FIXED | EVALUATION)
    dataset_config_name: str | None = flag(None, APART, needs=("dataset_name",))
    streaming: bool = flag(False, needs=("dataset_name",))
    max_train_documents: int | None = flag(None, FIXED | EVALUATION, at_least=1)
    tokenizer_name: str | None = flag(None, APART)
    vocab_size: int = flag(8192, at_least=1, excludes=GIVEN_TOKENIZER)
    do_lower_case: bool = flag(True, excludes=GIVEN_TOKENIZER)
    config_name: str | None = flag(None, CARD | APART, excludes=("model_name_or_path",))
    model_name_or_path: str | None = flag(None, CARD | APART)
    extend_vocab: str | None = flag(None, FIXED | CARD | APART, needs=("model_name_or_path",), excludes=("teacher",))
    pad_vocab_to_multiple_of: int | None = flag(None, FIXED | CARD, choices=ROUNDED_TO)
    max_position_embeddings: int | None = flag(None, FIXED | CARD, needs=(" or ".join(GIVEN_WEIGHTS),))
    recipe: Literal["paper", "fast", "adapt"] = flag("paper", FREE | CARD)
    objective: str = flag(DEFAULT, FIXED | CARD | EVALUATION, choices=OBJECTIVES)
    max_seq_length: int | None = flag(None, FIXED | CARD | EVALUATION, at_least=SHORTEST)
    phases: str | None = flag(None)
    mlm_probability: float = flag(0.15, FIXED | CARD | EVALUATION, above=0, at_most=1, excludes=WITHOUT_MASKS)
    mask_replace_prob: float = flag(0.8, FIXED | EVALUATION, at_least=0, at_most=1, excludes=WITHOUT_MASKS)
    random_replace_prob: float = flag(0.1, FIXED | EVALUATION, at_least=0, at_most=1, excludes=WITHOUT_MASKS)
    whole_word_mask: bool = flag(False, FIXED | CARD | EVALUATION, excludes=WITHOUT_MASKS)
    short_seq_prob: float = flag(0.1, FIXED | EVALUATION, at_least=0, at_most=1)
    max_predictions_per_seq: int | None = flag(None, FIXED | EVALUATION, at_least=1, excludes=WITHOUT_MASKS)
    max_eval_instances: int = flag(2048, EVALUATION, at_least=1)
    dropout: float | None = flag(None, FIXED | CARD, at_least=0, below=1)
    initializer_range: float | None = flag(None, FIXED | CARD, above=0, below=1, excludes=GIVEN_WEIGHTS)
    initial_weights: Literal["random", "counted"] = flag("random", FIXED | CARD, excludes=GIVEN_WEIGHTS)

    num_train_epochs: float = flag(1.0)
    learning_rate: float = flag(1e-4)
    warmup_steps: float = flag(0.01)
    eval_steps: int = flag(500)

    @property
    def default_weight(self) -> float:
        """The default of --teacher_weight."""
        return WEIGHT_OF_PRETRAINING

    @property
    def leaves_type_to_cpu(self) -> bool:
        """Whether --mixed_precision is auto by default on a CPU."""
        return self.recipe == "fast"

    @property
    def network(self) -> str:
        """The name of the class that the objective trains."""
        return OBJECTIVES[self.objective].network

    @property
    def new_pieces(self) -> int | None:
        """How many new pieces --extend_vocab asks for; None if it names a file, or is not given."""
        return int(self.extend_vocab) if self.extend_vocab and self.extend_vocab.isdecimal() else None

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that ``--recipe`` changes; UserError if both ``--phases`` and one length were given."""
        if "phases" in given and "max_seq_length" in given:
            raise UserError("--phases and --max_seq_length exclude each other; leave one of them out")
        return recipe_defaults(given, CONFIG_SIZES) if given.get("recipe", "paper") != "paper" else {}

    def choices_of_recipe(self) -> dict[str, Any]:
        """As in the base class; the paper's defaults are no choices."""
        if self.recipe == "paper":
            return {}
        names = ("recipe", "config_name", "model_name_or_path", "objective", "max_steps", "max_seq_length")
        return recipe_defaults({name: getattr(self, name) for name in (*names, "mixture", "phases")}, CONFIG_SIZES)

    def problems(self) -> Iterator[str]:
        """Masks, pieces, a recipe, phases and mixtures that do not fit."""
        yield from super().problems()
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            yield "--mask_replace_prob and --random_replace_prob add up to more than 1; lower one of them"
        if self.extend_vocab is not None and (self.new_pieces == 0 or self.extend_vocab[:1] in ("", "-")):
            yield f"--extend_vocab must be a number above 0, or a file with one word a line; got {self.extend_vocab!r}"
        if self.recipe == "adapt" and not (self.model_name_or_path or self.keep_layers):
            yield "--recipe adapt trains a model further; name it with --model_name_or_path"
        if self.mixture == [] and (self.recipe != "adapt" or len(self.train_file) < 2):
            yield "--mixture without numbers needs --recipe adapt and at least two files of --train_file; give weights"
        try:
            phases = phases_of(self._with_length())
        except UserError as error:
            yield str(error)
        else:
            if is_mixed(vars(self)):
                yield from mixture_problems(vars(self), phases)

    def _with_length(self) -> dict[str, Any]:
        return vars(self) | {"max_seq_length": self.max_seq_length or 128}

    def settle(self) -> None:
        """The shares of the recipe, the longest length, and the tokenizer of given weights."""
        super().settle()
        if self.mixture == []:
            others = len(self.train_file) - 1
            self.mixture = [1 - GENERAL_SHARE, *[GENERAL_SHARE / others] * others]
        self.max_seq_length = max(phase.length for phase in phases_of(self._with_length()))
        self.tokenizer_name = self.tokenizer_name or self.model_name_or_path or self.teacher

"""The flags of run_pretraining.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bert_training.files.compressed_files import kind_of
from bert_training.inputs.flags.checks import at_least, in_unit_interval, refuse_idle
from bert_training.inputs.flags.mixtures import check_mixtures, is_mixed
from bert_training.inputs.flags.natures import CARD, DATA, EVALUATION, FIXED, FREE, INSTANCE, START, flag
from bert_training.inputs.flags.objectives import DEFAULT, OBJECTIVES, objective_of
from bert_training.inputs.flags.parsing import HasOwnDefaults
from bert_training.inputs.flags.phases import phases_of
from bert_training.inputs.flags.recipes import GENERAL_SHARE, recipe_defaults
from bert_training.inputs.flags.teachers import WEIGHT_OF_HIDDEN_STATES, WEIGHT_OF_PRETRAINING, StudentArguments
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


@dataclass
class PretrainingArguments(StudentArguments, HasOwnDefaults):
    """The flags of run_pretraining.py."""

    train_file: list[str] = flag(
        [],
        "Training text: .txt (blank lines separate documents), .jsonl or .parquet, also packed (.gz, .xz, .bz2, .zst); "
        "folders, patterns in quotes ('news/**/*.txt'), URLs (s3://, hf://, ...), data sets of save_to_disk.",
        DATA,
        nargs="+",
    )
    corpus_dir: str | None = flag(
        None,
        "The corpus of --train_file, if bert-repro corpus has prepared it with the same tokenizer. Default: the run "
        "prepares it.",
        FREE,
    )
    mixture: list[float] | None = flag(
        None,
        "How much of the training comes from each entry of --train_file, as in 0.7 0.3: weights of instances, divided "
        "by their sum. Without numbers, with --recipe adapt: nine tenths from the first file. Default: all files are "
        "one text, each document once an epoch.",
        FIXED | CARD,
        nargs="+",
        may_be_empty=True,
    )
    validation_file: list[str] = flag(
        [],
        "Held-out text, as for --train_file. Of several entries, each also has results of its own, such as those of a "
        "general text beside the domain's. Default: --validation_split of the documents.",
        DATA,
        nargs="+",
    )
    validation_split: float = flag(0.02, "Share of the documents to hold out if no --validation_file is given.", FIXED)
    dataset_name: str | None = flag(None, "A data set of the Hub with one document per row.", DATA)
    text_column: str = flag(
        "text", "The field or column of the text in .jsonl and .parquet files and data sets.", FIXED | EVALUATION
    )
    dataset_config_name: str | None = flag(None, "Configuration of that data set.", DATA)
    streaming: bool = flag(False, "Stream the data set instead of downloading it.")
    max_train_documents: int | None = flag(None, "Use only this many documents, the first ones.", FIXED | EVALUATION)
    deduplicate: str | None = flag(
        None,
        "Leave out what occurs again of the training text; the first place is kept. documents: those that equal an "
        "earlier one. lines: those that occur in ten documents or more, such as menus and licences. both: documents, "
        "then lines.",
        FIXED | CARD | EVALUATION,
        choices=("documents", "lines", "both"),
    )
    tokenizer_name: str | None = flag(
        None,
        "A tokenizer's folder, Hub name or vocab.txt. Default: that of --model_name_or_path or of --teacher; without "
        "them a vocabulary is learnt from the training text.",
        START,
    )
    vocab_size: int = flag(8192, "Size of the vocabulary that is learnt if no --tokenizer_name is given.")
    limit_alphabet: int | None = flag(
        None,
        "Number of characters that a learnt vocabulary keeps, the most frequent ones. Default: 1,000, and more where "
        "rows of it would stay free.",
    )
    cased: bool = flag(False, "The same as --do_lower_case false.")
    do_lower_case: bool | None = flag(None, "Lower the case of the text of a learnt vocabulary. Default: true.")
    strip_accents: bool | None = flag(
        None,
        "Drop accents and all other non-spacing marks, which are vowels in many scripts, with a learnt vocabulary. "
        "Default: only if the case is lowered, and if that changes few words of the text; the script prints it.",
    )
    config_name: str | None = flag(
        None,
        f"{'|'.join(CONFIG_SIZES)}, or a folder with config.json; the weights are new. Default: mini.",
        CARD | START,
    )
    model_name_or_path: str | None = flag(
        None, "A checkpoint to train further: folder or Hub name; also an old one.", CARD | START
    )
    extend_vocab: str | None = flag(
        None,
        "New pieces for the vocabulary of --model_name_or_path: how many to choose from the training text, or a file "
        "with one word a line.",
        FIXED | CARD | START,
    )
    pad_vocab_to_multiple_of: int | None = flag(
        None,
        "Round the rows of the embeddings up to a multiple of this number, which makes products of matrices faster.",
        FIXED | CARD,
        choices=ROUNDED_TO,
    )
    max_position_embeddings: int | None = flag(
        None, "Give the network of --model_name_or_path more positions, at least as many as it has.", FIXED | CARD
    )
    new_weights: Literal["derived", "random"] = flag(
        "derived",
        "How the weights begin that --model_name_or_path lacks. derived: rows of new pieces as the mean of the pieces "
        "that they were, new positions as copies, a head for masked words from the embeddings, and output biases from "
        "counts of the training text. random: the control.",
        FIXED | CARD,
    )
    teacher_hidden_weight: float | None = flag(
        None,
        "Weight of the distance between the hidden states of student and teacher; 0: not compared. Default with "
        f"--teacher: {WEIGHT_OF_HIDDEN_STATES:g}.",
        FIXED | CARD,
    )
    recipe: Literal["paper", "fast", "adapt"] = flag(
        "paper",
        "Defaults of the other flags. paper: those that --help shows. fast: those that let a small network learn more "
        "in a few hours. adapt: gentle ones for the further training of a published model on text of a domain. The "
        "script prints them; bert_training/inputs/flags/recipes.py has the reasons.",
        FREE | CARD,
    )
    objective: str = flag(
        DEFAULT,
        " ".join(f"{name}: {objective.help}." for name, objective in OBJECTIVES.items()),
        FIXED | CARD | INSTANCE | EVALUATION,
        choices=OBJECTIVES,
    )
    max_seq_length: int | None = flag(
        None, "Largest number of tokens of an instance. Default: 128.", FIXED | CARD | INSTANCE | EVALUATION
    )
    phases: str | None = flag(
        None,
        "Lengths of instances, trained one after the other: LENGTH:SHARE[:BATCH[xACCUMULATION]],..., as in "
        "128:0.9:32,512:0.1:8x4. A mixture of its own stands behind a phase: 128:0.5@0.7:0.3.",
    )
    mlm_probability: float = flag(0.15, "Share of the tokens to predict.", FIXED | CARD | INSTANCE | EVALUATION)
    mask_replace_prob: float = flag(
        0.8, "Share of the predicted tokens to replace with [MASK].", FIXED | INSTANCE | EVALUATION
    )
    random_replace_prob: float = flag(
        0.1,
        "Share of the predicted tokens to replace with a random one; the remainder stay as they are.",
        FIXED | INSTANCE | EVALUATION,
    )
    whole_word_mask: bool = flag(False, "Mask all pieces of a word together.", FIXED | CARD | INSTANCE | EVALUATION)
    short_seq_prob: float = flag(
        0.1, "Share of the instances with a random shorter length.", FIXED | INSTANCE | EVALUATION
    )
    max_predictions_per_seq: int | None = flag(
        None, "Largest number of predicted tokens per instance.", FIXED | INSTANCE | EVALUATION
    )
    probe: list[str] = flag(
        [],
        "Labelled tables, as run_glue.py reads them, or builtin: at each evaluation, a logistic regression on the "
        "frozen vectors of their texts says what the model is worth for them. The training stays the same.",
        FREE,
        nargs="+",
    )
    max_eval_instances: int = flag(2048, "Held-out instances per evaluation.", EVALUATION)
    eval_words: int = flag(
        2000,
        "Held-out words that each evaluation asks for, to report nats a word, a loss that can be compared between "
        "vocabularies; 0: none.",
        EVALUATION,
    )
    dropout: float | None = flag(
        None,
        "Dropout while this script trains. Default: that of the config, which config.json always keeps for "
        "fine-tuning.",
        FIXED | CARD,
    )
    initializer_range: float | None = flag(
        None,
        "Deviation of the truncated normal distribution of new weights; config.json keeps it. Default: that of the "
        "config, 0.02 in BERT.",
        FIXED | CARD,
    )
    initial_weights: Literal["random", "counted"] = flag(
        "random",
        "New weights. random: all of them (paper). counted: embeddings, output bias, head and attention begin "
        "with what counts of the training text say about its pieces and their neighbours.",
        FIXED | CARD,
    )
    static_shapes: bool = flag(
        False,
        "Give all batches of a phase the same shape, for compilers that need it (meant for TPUs, not tested there).",
    )
    verify_invariance: bool = flag(
        False,
        "Before training, compute a step with its batch split in several ways, and stop if the results differ.",
        FREE,
    )
    peak_tflops: float | None = flag(
        None,
        "Peak TFLOP/s of one device, for the utilisation (MFU). Default: measured at the start with matrix products.",
        FREE,
    )

    num_train_epochs: float = flag(1.0, "Passes over the training text.")
    learning_rate: float = flag(1e-4, "Peak learning rate (paper, A.2).")
    embedding_learning_rate: float | None = flag(
        None,
        "Peak learning rate of the word embeddings, which are the output layer as well. Default: that of all weights.",
        FIXED | CARD,
    )
    optimizer: Literal["adamw", "bert_adamw", "muon"] = flag(  # type: ignore[assignment]  # one choice more
        "adamw",
        "adamw: torch's AdamW. bert_adamw: the AdamW of google-research/bert, without bias correction. muon: torch's "
        "Muon for the matrices of the encoder, and AdamW for the rest; slow on processors without bfloat16.",
    )
    muon_learning_rate: float = flag(0.02, "Peak learning rate of Muon's matrices.", FIXED | CARD)
    warmup_steps: float = flag(
        0.01, "As a number of steps or, below 1, a share of all steps (paper: 10,000 of 1,000,000)."
    )
    decay_steps: float | None = flag(
        None,
        "The last steps, a number or below 1 a share, in which the learning rate falls linearly to 0; until then it "
        "stays at its peak. Default: all steps after the warm-up (paper).",
        FIXED | CARD,
    )
    eval_steps: int = flag(500, "Number of steps between two evaluations; 0: evaluate only at the end.")

    @property
    def default_weight(self) -> float:
        """The default of --teacher_weight."""
        return WEIGHT_OF_PRETRAINING

    def others_of_teacher(self) -> tuple[str, ...]:
        """The weight of the hidden states."""
        return ("teacher_hidden_weight",)

    @property
    def lower_case(self) -> bool:
        """Whether a learnt vocabulary is lower-cased."""
        return not self.cased and self.do_lower_case is not False

    @property
    def leaves_type_to_cpu(self) -> bool:
        """Whether --mixed_precision is auto by default on a CPU."""
        return self.recipe == "fast"

    @classmethod
    def defaults_for(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that ``--recipe`` changes; ValueError if both ``--phases`` and one length were given."""
        if "phases" in given and "max_seq_length" in given:
            raise UserError("give --phases or --max_seq_length, not both")
        return recipe_defaults(given, CONFIG_SIZES)

    def recipe_choices(self) -> dict[str, Any]:
        """What the recipe chooses for this run, also where a flag that was given has won; empty for the paper's."""
        names = ("recipe", "config_name", "model_name_or_path", "objective", "max_steps", "max_seq_length")
        return recipe_defaults({name: getattr(self, name) for name in (*names, "mixture", "phases")}, CONFIG_SIZES)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_student()
        if self.mixture == []:
            self.mixture = self._mixture_of_recipe()
        in_unit_interval(self, "mlm_probability", "mask_replace_prob", "random_replace_prob")
        in_unit_interval(self, "short_seq_prob", "validation_split")
        at_least(self, 0, "muon_learning_rate")
        if self.embedding_learning_rate is not None:
            at_least(self, 0, "embedding_learning_rate")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise UserError(f"--dropout must be at least 0 and below 1; got {self.dropout}")
        if self.initializer_range is not None and not 0 < self.initializer_range < 1:
            raise UserError(f"--initializer_range must lie between 0 and 1; got {self.initializer_range}")
        at_least(self, 1, "max_eval_instances", "vocab_size")
        at_least(self, 0, "eval_words")
        bounds = {"max_train_documents": 1, "max_predictions_per_seq": 1, "decay_steps": 0, "limit_alphabet": 1}
        for name, bound in bounds.items():
            if getattr(self, name) is not None:
                at_least(self, bound, name)
        if not self.validation_file and self.validation_split in (0, 1):
            raise UserError("--validation_split must leave text on both sides: above 0 and below 1")
        if self.mlm_probability == 0:
            raise UserError("--mlm_probability must be above 0: without masks there is nothing to predict")
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise UserError(
                "--mask_replace_prob and --random_replace_prob add up to more than 1: "
                f"{self.mask_replace_prob} + {self.random_replace_prob}"
            )
        asked = self.max_seq_length
        self.max_seq_length = 128 if asked is None else asked
        self.max_seq_length = max(phase.length for phase in phases_of(vars(self)))
        if asked not in (None, self.max_seq_length):
            raise UserError(f"--max_seq_length {asked} is not the largest length of --phases {self.phases}")
        if self.max_seq_length < 8:
            raise UserError(f"--max_seq_length must be at least 8; got {self.max_seq_length}")
        if self.peak_tflops is not None and not self.peak_tflops > 0:
            raise UserError(f"--peak_tflops must be above 0; got {self.peak_tflops}")
        if self.static_shapes:
            if self.unpad_inputs == "true":
                raise UserError("--static_shapes computes all padding; drop --unpad_inputs true")
            self.unpad_inputs = "false"
        if self.train_file and self.dataset_name:
            raise UserError("give --train_file or --dataset_name, not both")
        check_mixtures(vars(self), phases_of(vars(self)))
        self._check_prepared()
        if self.config_name and self.model_name_or_path:
            raise UserError("give --config_name (new weights) or --model_name_or_path (continue), not both")
        if self.recipe == "adapt" and not self.model_name_or_path:
            raise UserError("--recipe adapt trains a model further; name it with --model_name_or_path")
        if self.model_name_or_path and not self.tokenizer_name:
            self.tokenizer_name = self.model_name_or_path
        if self.teacher and not self.tokenizer_name:
            self.tokenizer_name = self.teacher
        if self.cased and self.do_lower_case:
            raise UserError("--cased is the same as --do_lower_case false; give one of them")
        self._check_extension()
        no_masks = not objective_of(vars(self)).masks and f"under --objective {self.objective}, which masks nothing"
        refuse_idle(
            self,
            (not self.dataset_name and "without --dataset_name", ("dataset_config_name", "streaming")),
            (not self._reads_rows() and "without a .jsonl or .parquet file or a data set", ("text_column",)),
            (
                self.tokenizer_name and "with a tokenizer that is given",
                ("vocab_size", "cased", "do_lower_case", "strip_accents", "limit_alphabet"),
            ),
            (self.validation_file and "with --validation_file", ("validation_split",)),
            (self.optimizer != "muon" and "without --optimizer muon", ("muon_learning_rate",)),
            (self.optimizer == "muon" and "with --optimizer muon", ("embedding_learning_rate",)),
            (self.model_name_or_path and "with weights that are given", ("initializer_range", "initial_weights")),
            (
                not self.model_name_or_path and "without --model_name_or_path",
                ("max_position_embeddings", "new_weights"),
            ),
            (no_masks, ("mlm_probability", "mask_replace_prob", "random_replace_prob")),
            (no_masks, ("whole_word_mask", "max_predictions_per_seq")),
            (
                all("x" in phase for phase in (self.phases or "").split(",")) and "with --phases that all have one",
                ("gradient_accumulation_steps",),
            ),
        )

    def _check_prepared(self) -> None:
        if self.corpus_dir is None:
            return
        for name in ("train_file", "validation_file", "tokenizer_name"):
            given = name == "tokenizer_name" and self.model_name_or_path
            if not getattr(self, name) and not given:
                raise UserError(
                    f"--corpus_dir needs --{name}: the corpus has all of the training text, as the ids of the "
                    "tokenizer with which it was prepared"
                )
        if is_mixed(vars(self)) or self.max_train_documents is not None:
            raise UserError("--corpus_dir is one text as a whole; leave out --mixture and --max_train_documents")
        if self.extend_vocab:
            raise UserError(
                "--corpus_dir has the ids of a tokenizer without the pieces of --extend_vocab; extend it first "
                "(`bert-repro vocabulary --extend`), prepare the corpus with the result, and start from that folder"
            )
        if self.deduplicate:
            raise UserError(
                "--corpus_dir has the text as it was prepared, with what occurs again; leave out --deduplicate, or "
                "leave out --corpus_dir, so that the run encodes what is left"
            )

    def _check_student(self) -> None:
        """Check the flags of a teacher."""
        if self.teacher is None:
            return
        if self.teacher_hidden_weight is None:
            self.teacher_hidden_weight = WEIGHT_OF_HIDDEN_STATES
        at_least(self, 0, "teacher_hidden_weight")
        if self.static_shapes:
            raise UserError("--static_shapes computes all positions alike, and --teacher some; leave one of them out")
        if self.extend_vocab:
            raise UserError(
                "--extend_vocab gives the student pieces that its teacher does not know; train the teacher with it "
                "first, or leave out --teacher"
            )

    @property
    def new_pieces(self) -> int | None:
        """How many new pieces --extend_vocab asks for; None if it names a file, or is not given."""
        return int(self.extend_vocab) if self.extend_vocab and self.extend_vocab.isdecimal() else None

    def _check_extension(self) -> None:
        if self.extend_vocab is None:
            return
        if not self.model_name_or_path:
            other = "--config_name makes new weights" if self.config_name else "there are none"
            raise UserError(
                f"--extend_vocab extends the vocabulary of weights that are given, but {other}; give "
                "--model_name_or_path, or learn a vocabulary of the right size with --vocab_size"
            )
        if self.vocab_size != type(self).vocab_size:
            raise UserError(
                "--vocab_size is the size of a vocabulary that is learnt, and --extend_vocab the number of pieces to "
                "add to one that is given; leave out --vocab_size"
            )
        if self.new_pieces == 0 or not self.extend_vocab or self.extend_vocab.startswith("-"):
            raise UserError(
                f"--extend_vocab must be a number of at least 1, or a file with one word a line; got "
                f"{self.extend_vocab!r}"
            )

    def _mixture_of_recipe(self) -> list[float]:
        """The shares of the files if --mixture has no numbers."""
        others = len(self.train_file) - 1
        if self.recipe != "adapt" or others < 1:
            raise UserError(
                "--mixture: expected a weight for each file of --train_file, got none; only with --recipe adapt and at "
                "least two files it needs no numbers"
            )
        return [1 - GENERAL_SHARE, *[GENERAL_SHARE / others] * others]

    def _reads_rows(self) -> bool:
        files = (*self.train_file, *self.validation_file)
        plain = all(kind_of(file) == ".txt" for file in files)
        return bool(self.dataset_name) or not plain

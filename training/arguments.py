"""The flags of the scripts, named as in transformers' examples.

Steps are always optimiser steps; lengths include the special tokens.
"""

from dataclasses import dataclass, field
from typing import Literal

from training.engine.flags import at_least, flag, in_unit_interval, natures, refuse_idle
from training.engine.phases import phases_of

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


@dataclass
class SharedArguments:
    """The flags of all training scripts. Values out of range, or without effect, raise ValueError here and below."""

    output_dir: str = field(
        metadata={"help": "Folder of this run: its logs, its checkpoints and the finished model.", "nature": "free"}
    )
    seed: int = flag(42, "Seed of the weights, the order of the data, the masks and dropout.", "fixed card series")
    num_train_epochs: float = flag(
        3.0, "Passes over the training data; the last batch is filled up from the next pass.", "card"
    )
    max_steps: int = flag(-1, "Number of optimiser steps; if positive, it overrides --num_train_epochs.", "card")
    per_device_train_batch_size: int = flag(32, "Sequences per device in one forward pass.", "card")
    per_device_eval_batch_size: int = flag(64, "Sequences per device in one forward pass of an evaluation.", "free")
    gradient_accumulation_steps: int = flag(1, "Forward passes per optimiser step.", "card")
    learning_rate: float = flag(5e-5, "Peak learning rate, reached after the warm-up.", "fixed card")
    weight_decay: float = flag(0.01, "Decoupled weight decay; biases and LayerNorm are exempt.", "fixed card")
    optimizer: Literal["adamw", "bert_adamw"] = flag(
        "adamw",
        "adamw: torch's AdamW. bert_adamw: the AdamW of google-research/bert, without bias correction.",
        "fixed",
    )
    warmup_steps: float = flag(
        0.1, "Length of the linear warm-up: a number of steps or, below 1, a share of all steps.", "fixed card"
    )
    max_grad_norm: float = flag(1.0, "Global gradient norm to clip to; 0: no clipping.", "fixed card")
    mixed_precision: Literal["no", "bf16", "fp16"] | None = flag(
        None, "Type of autocast. Default: what accelerate launch was configured with, otherwise 'no' (float32)."
    )
    logging_steps: int = flag(50, "Number of steps between two training records.", "free")
    eval_steps: int = flag(0, "Number of steps between two evaluations; 0: evaluate once per epoch.", "choice")
    save_steps: int = flag(500, "Steps between two checkpoints; 0: save only the finished model.", "free")
    save_total_limit: int = flag(2, "Number of newest checkpoints to keep; 0: keep all.", "free")
    resume_from_checkpoint: str | None = flag(None, "A checkpoint folder, or 'auto' for the newest one.", "free")
    report_to: Literal["none", "tensorboard"] = flag("none", "Where records are sent besides metrics.jsonl.", "free")
    dataloader_num_workers: int = flag(0, "Processes that prepare batches; 0: the training process.", "free")
    torch_compile: bool = flag(False, "Compile the model with torch.compile.")
    gradient_checkpointing: bool = flag(False, "Recompute layers in the backward pass to save memory.")
    model_impl: Literal["repro", "transformers"] = flag(
        "repro", "The network: that of this project, or that of transformers as a control.", "fixed start"
    )
    unpad_inputs: Literal["auto", "true", "false"] = flag(
        "auto",
        "auto: skip padding when it is over a tenth of the batch. true: whenever there is any. false: compute it. "
        "Unless it is 'false', the loss of answer spans excludes padding as well.",
        "fixed",
    )
    fast_dropout: bool = flag(True, "On a CPU, draw fewer random numbers for dropout than torch does.", "fixed")
    push_to_hub: bool = flag(
        False, "Upload the finished model, its card and its records, but no predictions, to the Hub.", "free later"
    )
    hub_model_id: str | None = flag(None, "Repository name for --push_to_hub.", "free later")
    hub_private_repo: bool = flag(
        True, "Whether a new repository is private; an existing one stays as it is.", "free later"
    )
    hub_dry_run: bool = flag(False, "With --push_to_hub, only list what would be uploaded.", "free later")

    def __post_init__(self) -> None:
        at_least(self, 1, "per_device_train_batch_size", "per_device_eval_batch_size")
        at_least(self, 1, "gradient_accumulation_steps", "logging_steps")
        at_least(self, 0, "eval_steps", "save_steps", "save_total_limit", "dataloader_num_workers", "seed")
        at_least(self, 0, "learning_rate", "weight_decay", "warmup_steps", "max_grad_norm")
        if self.max_steps == 0 or self.max_steps < -1:
            raise ValueError(f"--max_steps must be positive, or -1 to count epochs; got {self.max_steps}")
        if self.max_steps < 0 and self.num_train_epochs <= 0:
            raise ValueError(f"--num_train_epochs must be above 0; got {self.num_train_epochs}")
        if self.push_to_hub and not self.hub_model_id:
            raise ValueError("--push_to_hub needs --hub_model_id USER/NAME")
        hub = ("hub_dry_run", "hub_model_id", "hub_private_repo")
        refuse_idle(self, (not self.push_to_hub and "without --push_to_hub", hub))


@dataclass
class PretrainingArguments(SharedArguments):
    """The flags of run_pretraining.py."""

    train_file: list[str] = flag(
        [],
        "Training text: .txt (blank lines separate documents), .jsonl or .parquet; also .gz and .xz of these.",
        "data",
        nargs="+",
    )
    validation_file: list[str] = flag(
        [], "Held-out text. Default: --validation_split of the documents.", "data", nargs="+"
    )
    validation_split: float = flag(
        0.02, "Share of the documents to hold out if no --validation_file is given.", "fixed"
    )
    dataset_name: str | None = flag(
        None, "A data set of the Hub with a 'text' column and one document per row.", "data"
    )
    dataset_config_name: str | None = flag(None, "Configuration of that data set.", "data")
    streaming: bool = flag(False, "Stream the data set instead of downloading it.")
    max_train_documents: int | None = flag(None, "Use only this many documents, the first ones.", "fixed")
    tokenizer_name: str | None = flag(
        None, "Folder or Hub name of a tokenizer. Default: a vocabulary is learnt from the training text.", "start"
    )
    vocab_size: int = flag(8192, "Size of the vocabulary that is learnt if no --tokenizer_name is given.")
    cased: bool = flag(False, "Learn a cased vocabulary, which keeps upper case and accents.")
    config_name: str | None = flag(
        None,
        f"{'|'.join(CONFIG_SIZES)}, or a folder with config.json; the weights are new and random. Default: mini.",
        "card start",
    )
    model_name_or_path: str | None = flag(None, "A checkpoint to train further: folder or Hub name.", "card start")
    objective: Literal["mlm_nsp", "mlm", "ltr"] = flag(
        "mlm_nsp",
        "mlm_nsp: masked LM and next sentence prediction. mlm: masked LM alone. ltr: left-to-right LM.",
        "fixed card instance",
    )
    max_seq_length: int | None = flag(
        None, "Largest number of tokens of an instance. Default: 128.", "fixed card instance"
    )
    phases: str | None = flag(
        None,
        "Lengths of instances, trained one after the other: LENGTH:SHARE[:BATCH[xACCUMULATION]],..., as in "
        "128:0.9:32,512:0.1:8x4.",
    )
    mlm_probability: float = flag(0.15, "Share of the tokens to predict.", "fixed card instance")
    mask_replace_prob: float = flag(0.8, "Share of the predicted tokens to replace with [MASK].", "fixed instance")
    random_replace_prob: float = flag(
        0.1,
        "Share of the predicted tokens to replace with a random one; the remainder stay as they are.",
        "fixed instance",
    )
    whole_word_mask: bool = flag(False, "Mask all pieces of a word together.", "fixed card instance")
    short_seq_prob: float = flag(0.1, "Share of the instances with a random shorter length.", "fixed instance")
    max_predictions_per_seq: int | None = flag(
        None, "Largest number of predicted tokens per instance.", "fixed instance"
    )
    max_eval_instances: int = flag(2048, "Held-out instances per evaluation.")
    static_shapes: bool = flag(
        False,
        "Give all batches of a phase the same shape, for compilers that need it (meant for TPUs, not tested there).",
    )
    verify_invariance: bool = flag(
        False,
        "Before training, compute a step with its batch split in several ways, and stop if the results differ.",
        "free",
    )
    peak_tflops: float | None = flag(
        None,
        "Peak TFLOP/s of one device, for the utilisation (MFU). Default: measured at the start with matrix products.",
        "free",
    )

    num_train_epochs: float = flag(1.0, "Passes over the training text.")
    learning_rate: float = flag(1e-4, "Peak learning rate (paper, A.2).")
    warmup_steps: float = flag(
        0.01, "As a number of steps or, below 1, a share of all steps (paper: 10,000 of 1,000,000)."
    )
    eval_steps: int = flag(500, "Number of steps between two evaluations; 0: evaluate only at the end.")

    def __post_init__(self) -> None:
        super().__post_init__()
        in_unit_interval(self, "mlm_probability", "mask_replace_prob", "random_replace_prob")
        in_unit_interval(self, "short_seq_prob", "validation_split")
        at_least(self, 1, "max_eval_instances", "vocab_size")
        for name in ("max_train_documents", "max_predictions_per_seq"):
            if getattr(self, name) is not None:
                at_least(self, 1, name)
        if not self.validation_file and self.validation_split in (0, 1):
            raise ValueError("--validation_split must leave text on both sides: above 0 and below 1")
        if self.mlm_probability == 0:
            raise ValueError("--mlm_probability must be above 0: without masks there is nothing to predict")
        if self.mask_replace_prob + self.random_replace_prob > 1 + 1e-9:
            raise ValueError(
                "--mask_replace_prob and --random_replace_prob add up to more than 1: "
                f"{self.mask_replace_prob} + {self.random_replace_prob}"
            )
        if self.phases is not None and self.max_seq_length is not None:
            raise ValueError("give --phases or --max_seq_length, not both")
        self.max_seq_length = 128 if self.max_seq_length is None else self.max_seq_length
        self.max_seq_length = max(phase.length for phase in phases_of(vars(self)))
        if self.max_seq_length < 8:
            raise ValueError(f"--max_seq_length must be at least 8; got {self.max_seq_length}")
        if self.peak_tflops is not None and not self.peak_tflops > 0:
            raise ValueError(f"--peak_tflops must be above 0; got {self.peak_tflops}")
        if self.static_shapes:
            if self.unpad_inputs == "true":
                raise ValueError("--static_shapes computes all padding; drop --unpad_inputs true")
            self.unpad_inputs = "false"
        if self.train_file and self.dataset_name:
            raise ValueError("give --train_file or --dataset_name, not both")
        if self.config_name and self.model_name_or_path:
            raise ValueError("give --config_name (new weights) or --model_name_or_path (continue), not both")
        if self.model_name_or_path and not self.tokenizer_name:
            self.tokenizer_name = self.model_name_or_path
        ltr = self.objective == "ltr" and "under --objective ltr, which masks nothing"
        refuse_idle(
            self,
            (not self.dataset_name and "without --dataset_name", ("dataset_config_name", "streaming")),
            (self.tokenizer_name and "with a tokenizer that is given", ("vocab_size", "cased")),
            (self.validation_file and "with --validation_file", ("validation_split",)),
            (ltr, ("mlm_probability", "mask_replace_prob", "random_replace_prob")),
            (ltr, ("whole_word_mask", "max_predictions_per_seq")),
        )


@dataclass
class FineTuningArguments(SharedArguments):
    """The flags of all fine-tuning scripts."""

    model_name_or_path: str | None = flag(None, "A pre-trained checkpoint: folder or Hub name.", "card start")
    config_name: str | None = flag(None, "For random weights: a size, or a folder with config.json.", "card start")
    tokenizer_name: str | None = flag(None, "Folder or Hub name of the tokenizer; default: the model's.", "start")
    dataset_name: str | None = flag(None, "A data set of the Hub.", "data")
    dataset_config_name: str | None = flag(None, "Configuration of that data set.", "data")
    train_file: str | None = flag(None, "Your own training data.", "data")
    validation_file: str | None = flag(None, "Your own validation data.", "data")
    max_train_samples: int | None = flag(None, "Use only this many training examples, the first ones.", "fixed")
    max_eval_samples: int | None = flag(None, "Use only this many validation examples, the first ones.")
    group_by_length: bool = flag(False, "Fill each optimiser step with examples of similar length.", "fixed")
    load_best_model_at_end: bool = flag(False, "Keep the weights of the best evaluation instead of the last.")
    metric_for_best_model: str | None = flag(
        None, "Metric that decides which evaluation is the best. Default: the paper's.", "choice"
    )
    early_stopping_patience: int = flag(0, "Evaluations without improvement before training stops; 0: never.")
    seeds: int | None = flag(
        None, "Number of runs, with consecutive seeds from --seed on; each has a sub-folder.", "series"
    )
    compare_to: str | None = flag(None, "Folder of another series, to compare run by run.", "series")

    @property
    def many_runs(self) -> bool:
        """Whether this command is a series of runs."""
        return self.seeds is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.model_name_or_path) == bool(self.config_name):
            raise ValueError(
                "give --model_name_or_path CHECKPOINT, or --config_name SIZE with --tokenizer_name DIR "
                "for random weights"
            )
        if self.config_name and not self.tokenizer_name:
            raise ValueError("--config_name (random weights) needs --tokenizer_name DIR")
        for name in ("max_train_samples", "max_eval_samples"):
            if getattr(self, name) is not None:
                at_least(self, 1, name)
        at_least(self, 0, "early_stopping_patience")
        if self.early_stopping_patience and not self.load_best_model_at_end:
            raise ValueError("--early_stopping_patience needs --load_best_model_at_end: the last model is not the best")
        if self.seeds is not None:
            at_least(self, 1, "seeds")
        if self.compare_to and not self.many_runs:
            raise ValueError("--compare_to compares runs by their seeds: give --seeds or --paper")
        if self.many_runs and self.push_to_hub:
            raise ValueError(
                "--push_to_hub uploads one model; leave it out and upload the folder of the best run "
                "with python -m training upload"
            )
        if self.many_runs and self.resume_from_checkpoint not in (None, "auto"):
            raise ValueError("--seeds and --paper resume by themselves; drop --resume_from_checkpoint")
        chosen = self.load_best_model_at_end or self.many_runs
        refuse_idle(
            self,
            (not self.dataset_name and "without --dataset_name", ("dataset_config_name",)),
            (not chosen and "without --load_best_model_at_end or a series of runs", ("metric_for_best_model",)),
        )


@dataclass
class GlueArguments(FineTuningArguments):
    """The flags of run_glue.py."""

    task_name: str | None = flag(
        None,
        "A task of GLUE: cola|sst2|mrpc|stsb|qqp|mnli|qnli|rte|wnli|ax; or one made of the documentation of this "
        "Python installation: builtin_pair (the default without data flags) or builtin_classification.",
        "fixed card data",
    )
    data_dir: str | None = flag(None, "Folder with the official files train.tsv, dev.tsv and test.tsv.", "data")
    test_file: str | None = flag(None, "Your own data to predict.", "later")
    max_seq_length: int = flag(
        128, "Longest input in tokens; if a pair is longer, tokens of its longer text are cut first.", "fixed card"
    )
    label_token: Literal["cls", "last"] = flag(
        "cls",
        "Token from which the label is read; in a network that attends left to right only the last sees all.",
        "fixed card",
    )
    bilstm_on_top: bool = flag(False, "Put a new BiLSTM on top of BERT, and train both (paper, 5.1).", "fixed card")
    do_predict: bool = flag(False, "Write predictions for the test split.", "later")
    write_submission: bool = flag(
        False, "Write the predictions for the GLUE server; see python -m training submission.", "later"
    )
    paper: bool = flag(
        False,
        "The paper's search: 4 learning rates with --seeds restarts each (default 5); the best run on dev counts.",
        "series",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.write_submission and not self.task_name:
            raise ValueError("--write_submission needs --task_name: the GLUE server knows only its own tasks")
        self.do_predict |= self.write_submission
        if self.bilstm_on_top and self.label_token != "last":
            raise ValueError("--bilstm_on_top reads the label from the last token: add --label_token last")
        if self.paper and (self.learning_rate, self.num_train_epochs, self.max_steps) != (5e-5, 3.0, -1):
            raise ValueError("--paper fixes --learning_rate and 3 epochs; drop those flags, or use --seeds with them")

    @property
    def many_runs(self) -> bool:
        """Whether this command is a series of runs: also with --paper."""
        return self.paper or super().many_runs


@dataclass
class SquadArguments(FineTuningArguments):
    """The flags of run_squad.py."""

    version_2_with_negative: bool = flag(False, "The data has questions without an answer (SQuAD 2.0).", "fixed card")
    max_seq_length: int = flag(384, "Tokens of a window: question, part of the context, special tokens.", "fixed card")
    doc_stride: int = flag(128, "Tokens from the start of one window to the start of the next.", "fixed card")
    max_query_length: int = flag(64, "Longest question in tokens; longer ones are cut.", "fixed")
    max_answer_length: int = flag(30, "Longest answer, in tokens.")
    n_best_size: int = flag(20, "Number of candidate answers kept per question.")
    null_score_diff_threshold: float = flag(
        0.0, "Give no answer if the score of no answer exceeds that of the best answer by more than this."
    )
    bilstm_on_top: bool = flag(False, "Put a new BiLSTM on top of BERT, and train both (paper, 5.1).", "fixed card")
    answer_alignment: Literal["offsets", "google"] = flag(
        "offsets", "How tokens are mapped back to text: by character offsets, or as google-research/bert does it."
    )
    cache_dir: str | None = flag(None, "Folder for tokenised windows. Default: OUTPUT_DIR/features.", "free")
    num_train_epochs: float = flag(2.0, "Passes over the training windows.")

    def __post_init__(self) -> None:
        super().__post_init__()
        version_1 = not self.version_2_with_negative and "without --version_2_with_negative"
        refuse_idle(self, (version_1, ("null_score_diff_threshold",)))


TaggerLayers = Literal[
    "embeddings", "second_to_last", "last", "weighted_sum_last_four", "concat_last_four", "weighted_sum_all"
]


@dataclass
class NerArguments(FineTuningArguments):
    """The flags of run_ner.py."""

    test_file: str | None = flag(None, "Further data to predict; it is scored if it has tags.", "later")
    max_seq_length: int = flag(
        512, "Length of a row in tokens: a sentence and as much of its document around it as fits.", "fixed card"
    )
    context: Literal["document", "sentence"] = flag("document", "What the model sees around a sentence.", "fixed card")
    mixed_tags: bool = flag(False, "Accept files in which some entities begin with B- and others with I-.", "fixed")
    feature_based: TaggerLayers | None = flag(
        None, "Freeze BERT; train a BiLSTM on these layers (paper, Table 7).", "fixed card"
    )
    lstm_size: int = flag(768, "Hidden units of that BiLSTM in each direction.", "fixed card")
    per_device_train_batch_size: int = flag(
        8, "Rows per device in one forward pass; a row may contain several sentences."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "lstm_size")
        refuse_idle(self, (not self.feature_based and "without --feature_based", ("lstm_size",)))


@dataclass
class SwagArguments(FineTuningArguments):
    """The flags of run_swag.py."""

    test_file: str | None = flag(None, "Further data to predict; it is scored if it has labels.", "later")
    max_seq_length: int = flag(
        128, "Longest input in tokens; if a pair is longer, tokens of its longer text are cut first.", "fixed card"
    )
    per_device_train_batch_size: int = flag(16, "Examples, each with all its choices, per device in one forward pass.")
    learning_rate: float = flag(2e-5, "Peak learning rate (paper, section 4.4).")


@dataclass
class FeatureArguments:
    """The flags of extract_features.py."""

    model_name_or_path: str = field(metadata={"help": "A checkpoint: folder or Hub name."})
    input_file: str = field(
        metadata={
            "help": "Text file (also .gz, .xz) with one input per line; ' ||| ' separates the two texts of a pair."
        }
    )
    output_file: str = field(metadata={"help": "File to write: .jsonl, or .npz for NumPy."})
    tokenizer_name: str | None = flag(None, "Folder or Hub name of the tokenizer; default: the model's.")
    layers: str = flag("-1,-2,-3,-4", "Layers to write: -1 is the last of 12, -12 the first, -13 the embeddings.")
    pooling: Literal["none", "cls", "mean"] = flag("none", "Vectors to write: of all tokens, of [CLS], or their mean.")
    max_seq_length: int = flag(128, "Largest number of tokens in one input of the model.")
    long_lines: Literal["error", "window", "cut"] = flag(
        "error",
        "What to do with longer lines: refuse them, split them into windows, or cut them as google-research/bert does.",
    )
    batch_size: int = flag(32, "Number of inputs in one forward pass.")
    model_impl: Literal["repro", "transformers"] = flag(
        "repro", "The network: that of this project, or that of transformers."
    )

    def __post_init__(self) -> None:
        at_least(self, 1, "batch_size")


SCRIPTS = {
    "run_pretraining.py": PretrainingArguments,
    "run_glue.py": GlueArguments,
    "run_squad.py": SquadArguments,
    "run_ner.py": NerArguments,
    "run_swag.py": SwagArguments,
}


def flags_with(nature: str) -> tuple[str, ...]:
    """Names of the flags of all ``SCRIPTS`` that have a nature (see ``NATURES``), in the order of --help."""
    named = [name for cls in SCRIPTS.values() for name, found in natures(cls).items() if nature in found]
    return tuple(dict.fromkeys(named))

"""The flags of the fine-tuning scripts."""

from dataclasses import dataclass
from typing import Literal

from bert_training.inputs.flags.checks import at_least, refuse_idle
from bert_training.inputs.flags.controls import ControlArguments
from bert_training.inputs.flags.long_texts import settled_windows
from bert_training.inputs.flags.natures import (
    AFTERWARDS,
    CARD,
    CHOICE,
    DATA,
    EVALUATION,
    FIXED,
    FREE,
    SERIES,
    START,
    STORED,
    flag,
)
from bert_training.inputs.flags.teachers import TaughtArguments
from tokenization.errors import UserError

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "\\t": "\t"}


@dataclass
class FineTuningArguments(ControlArguments):
    """The flags of all fine-tuning scripts."""

    model_name_or_path: str | None = flag(
        None, "A pre-trained checkpoint: folder or Hub name; also an old one.", CARD | START
    )
    config_name: str | None = flag(None, "For random weights: a size, or a folder with config.json.", CARD | START)
    tokenizer_name: str | None = flag(
        None, "The tokenizer's folder, Hub name or vocab.txt; default: the model's.", START
    )
    dataset_name: str | None = flag(None, "A data set of the Hub.", DATA)
    dataset_config_name: str | None = flag(None, "Configuration of that data set.", DATA)
    train_file: str | None = flag(None, "Your own training data.", DATA)
    validation_file: str | None = flag(None, "Your own validation data.", DATA)
    max_train_samples: int | None = flag(None, "Use only this many training examples, the first ones.", FIXED)
    max_eval_samples: int | None = flag(None, "Use only this many validation examples, the first ones.", EVALUATION)
    group_by_length: bool = flag(False, "Fill each optimiser step with examples of similar length.", FIXED)
    load_best_model_at_end: bool = flag(False, "Keep the weights of the best evaluation instead of the last.")
    metric_for_best_model: str | None = flag(
        None, "Metric that decides which evaluation is the best. Default: the paper's.", CHOICE
    )
    early_stopping_patience: int = flag(0, "Evaluations without improvement before training stops; 0: never.")
    seeds: int | None = flag(
        None, "Number of runs, with consecutive seeds from --seed on; each has a sub-folder.", SERIES
    )
    compare_to: str | None = flag(None, "Folder of another series, to compare run by run.", SERIES)

    @property
    def leaves_type_to_cpu(self) -> bool:
        """Whether --mixed_precision is auto by default on a CPU."""
        return True

    @property
    def many_runs(self) -> bool:
        """Whether this command is a series of runs."""
        return self.seeds is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.model_name_or_path) == bool(self.config_name):
            if getattr(self, "teacher", None) and not self.config_name:
                raise UserError(
                    "--teacher alone does not say what the student is: give --keep_layers to make it of layers of the "
                    "teacher, or --model_name_or_path"
                )
            raise UserError(
                "give --model_name_or_path CHECKPOINT, or --config_name SIZE with --tokenizer_name DIR "
                "for random weights"
            )
        if self.config_name and not self.tokenizer_name:
            raise UserError("--config_name (random weights) needs --tokenizer_name DIR")
        for name in ("max_train_samples", "max_eval_samples"):
            if getattr(self, name) is not None:
                at_least(self, 1, name)
        at_least(self, 0, "early_stopping_patience")
        if self.early_stopping_patience and not self.load_best_model_at_end:
            raise UserError(
                "--early_stopping_patience needs --load_best_model_at_end: without it the last weights are saved, not "
                "the best"
            )
        if self.average_last and self.load_best_model_at_end:
            raise UserError(
                "--average_last keeps a mean of weights, and --load_best_model_at_end one of them; drop one"
            )
        if self.seeds is not None:
            at_least(self, 1, "seeds")
        if self.compare_to and not self.many_runs:
            raise UserError("--compare_to compares runs by their seeds: give --seeds or --paper")
        if self.many_runs and self.push_to_hub:
            raise UserError(
                "--push_to_hub uploads one model; leave it out and upload the folder of the best run "
                "with bert-repro upload"
            )
        if self.many_runs and self.resume_from_checkpoint not in (None, "auto"):
            raise UserError("--seeds and --paper resume by themselves; drop --resume_from_checkpoint")
        chosen = self.load_best_model_at_end or self.many_runs
        refuse_idle(
            self,
            (not self.dataset_name and "without --dataset_name", ("dataset_config_name",)),
            (not chosen and "without --load_best_model_at_end or a series of runs", ("metric_for_best_model",)),
        )


def names_in(value: list[str] | str | None) -> tuple[str, ...]:
    """The names that a flag such as --label_column gives, one or several."""
    return (value,) if isinstance(value, str) else tuple(value or ())


OF_OWN_DATA = ("text_column", "label_column", "label_separator", "problem_type", "id_column", "weight_column",
               "group_column", "delimiter")  # fmt: skip


@dataclass
class ClassArguments(TaughtArguments, FineTuningArguments):
    """The flags of the scripts that learn classes."""

    class_weights: str | None = flag(
        None,
        "Weights of the classes in the training loss. balanced: in inverse proportion to their frequencies, as in "
        'scikit-learn; or a JSON file {"label": weight, ...}.',
        FIXED | CARD,
    )
    label_smoothing: float | None = flag(
        None,
        "Share of each training label that is given to all classes alike, such as 0.1. Default: none.",
        FIXED | CARD,
    )

    validation_split: float | None = flag(
        None,
        "Hold out this share of your own training data for validation, such as 0.1: of texts, as many of each class as "
        "that is; of tagged sentences, whole documents if it has several. 0: train without validation data.",
        FIXED,
    )
    split_seed: int | None = flag(None, "Seed by which data is held out. Default: --seed.", FIXED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise UserError(f"--label_smoothing must be at least 0 and below 1; got {self.label_smoothing}")

    def _check_held_out(self, flags: tuple[str, ...]) -> None:
        """Check --validation_split, and fill in --split_seed, which a series keeps for all seeds.

        Args:
            flags: those that hold training data out.
        """
        training, given = self.dataset_name or self.train_file, [getattr(self, name) for name in flags]
        refuse_idle(
            self,
            (self.validation_file and "with --validation_file", flags),
            (not training and "without training data of your own", flags),
            (not any(given) and f"without {' or '.join(f'--{name}' for name in flags)}", ("split_seed",)),
        )
        if self.validation_split is not None and not 0 <= self.validation_split < 1:
            raise UserError(
                f"--validation_split must be at least 0 and below 1, such as 0.1; got {self.validation_split}"
            )
        if self.validation_split == 0:
            without = "--validation_split 0 trains without validation data"
            if self.load_best_model_at_end or self.many_runs:
                flag_given = "--load_best_model_at_end" if self.load_best_model_at_end else "a series of runs"
                raise UserError(f"{without}, so {flag_given} has nothing to compare; give a share such as 0.1")
            refuse_idle(self, (f"as {without}", ("eval_steps", "max_eval_samples")))
        if self.split_seed is not None:
            at_least(self, 0, "split_seed")
        elif any(given):
            self.split_seed = self.seed


@dataclass
class GlueArguments(ClassArguments):
    """The flags of run_glue.py."""

    task_name: str | None = flag(
        None,
        "A task of GLUE: cola|sst2|mrpc|stsb|qqp|mnli|qnli|rte|wnli|ax; or one made from the documentation of this "
        "Python installation: builtin_pair (the default without data flags) or builtin_classification.",
        FIXED | CARD | DATA | EVALUATION,
    )
    data_dir: str | None = flag(None, "Folder with the official files train.tsv, dev.tsv and test.tsv.", DATA)
    test_file: str | None = flag(
        None, "Your own data to predict; it is scored if every row has a label that the model knows.", AFTERWARDS
    )
    text_column: list[str] | None = flag(
        None,
        "Of your own data, the name of the column with the text, or of the two columns with a pair. Default: those "
        "that the model was trained on, or usual names such as text; or sentence1 and sentence2.",
        FIXED | EVALUATION,
        nargs="+",
    )
    id_column: str | None = flag(
        None,
        "Of your own data, the name of the column that identifies a row in the files of predictions. Default: that of "
        "the model's training, or id, idx or index.",
        FIXED | AFTERWARDS,
    )
    weight_column: str | None = flag(
        None, "Of your own training data, the name of the column with the weight of each row in the loss.", FIXED
    )
    group_column: str | None = flag(
        None,
        "The name of the column that says which rows belong together, such as those of one author: "
        "--validation_split and --folds keep them on one side.",
        FIXED,
    )
    delimiter: str | None = flag(
        None,
        "What separates the cells of your own .csv files: comma, semicolon, tab or pipe, or the character itself. "
        "Default: as in the model's training, or the comma.",
        FIXED | DATA | EVALUATION,
    )
    folds: int | None = flag(
        None,
        "Cross-validation: train this many times, each time with another part of your own training data held out.",
        FIXED,
    )
    fold: int | None = flag(None, "Only this one of the --folds, from 1.", FIXED | SERIES)
    label_column: list[str] | str | None = flag(
        None,
        "Of your own data, the name of the column with the label; or, for several labels a text, the names of their "
        "columns, which hold 0 or 1. Default: as for the text.",
        FIXED | EVALUATION,
        nargs="+",
    )
    label_separator: str | None = flag(
        None,
        "Of your own data with several labels a text: what stands between the labels of a cell, such as '|'. Default: "
        "as for the text; lists in JSON or on the Hub need none.",
        FIXED | EVALUATION,
    )
    problem_type: Literal["single_label", "multi_label", "regression"] | None = flag(
        None,
        "Of your own data: whether a text has one class, several labels, or a score. Default: what the model predicts "
        "or, with training data, several labels for lists, --label_separator or several columns of labels, otherwise "
        "classes, unless a label such as 2.5 can only be a score.",
        FIXED | EVALUATION,
    )
    max_seq_length: int = flag(
        128,
        "Longest input in tokens; if a pair is longer, tokens of its longer text are cut first.",
        FIXED | CARD | EVALUATION | STORED,
    )
    label_token: Literal["cls", "last"] = flag(
        "cls",
        "Token from which the label is read; in a network that attends left to right only the last sees all.",
        FIXED | CARD | EVALUATION | STORED,
    )
    bilstm_on_top: bool = flag(
        False, "Put a new BiLSTM on top of BERT, and train both (paper, 5.1).", FIXED | CARD | EVALUATION | STORED
    )
    calibrate: bool = flag(
        False,
        "Find on the validation data the temperature that makes the probabilities most believable, and store it with "
        "the model. Labels do not change.",
        AFTERWARDS,
    )
    long_texts: Literal["cut", "head_tail", "windows"] = flag(
        "cut",
        "What is read of a text of more than --max_seq_length tokens: its beginning; its beginning (a quarter) and its "
        "end; or all of it in overlapping windows, whose logits are pooled.",
        FIXED | CARD | EVALUATION | STORED,
    )
    doc_stride: int | None = flag(
        None,
        "Of windows, tokens from the start of one to the start of the next. Default: three quarters of a window.",
        FIXED | CARD | EVALUATION | STORED,
    )
    window_pooling: Literal["mean", "max"] | None = flag(
        None,
        "The logits of a text from those of its windows. Default: mean.",
        FIXED | CARD | EVALUATION | STORED,
    )
    max_windows: int | None = flag(
        None, "The first windows of a text that are read. Default: 8.", FIXED | CARD | EVALUATION | STORED
    )
    do_predict: bool = flag(False, "Write predictions for the test split.", AFTERWARDS)
    write_submission: bool = flag(
        False, "Write the predictions for the GLUE server; see bert-repro submission.", AFTERWARDS
    )
    paper: bool = flag(
        False,
        "The paper's search: 4 learning rates with --seeds restarts each (default 5); the best run on dev counts.",
        SERIES,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.write_submission and not self.task_name:
            raise UserError("--write_submission needs --task_name: the GLUE server knows only its own tasks")
        self.do_predict |= self.write_submission
        if self.bilstm_on_top and self.label_token != "last":
            raise UserError("--bilstm_on_top reads the label from the last token: add --label_token last")
        if self.paper and (self.learning_rate, self.num_train_epochs, self.max_steps) != (5e-5, 3.0, -1):
            raise UserError("--paper fixes --learning_rate and 3 epochs; drop those flags, or use --seeds with them")
        self._check_columns()
        for name, value in settled_windows(self).items():
            setattr(self, name, value)
        self._check_splits()

    def _check_columns(self) -> None:
        own = self.dataset_name or self.train_file or self.validation_file or self.test_file
        training = self.dataset_name or self.train_file
        fixed = f"with --task_name {self.task_name}, whose columns and labels are fixed"
        refuse_idle(
            self,
            (self.task_name and fixed, OF_OWN_DATA),
            (not own and "without data of your own", OF_OWN_DATA),
            (not training and "without training data", ("weight_column", "group_column")),
            (self.dataset_name and "with --dataset_name", ("delimiter",)),
        )
        if self.delimiter is not None:
            self.delimiter = delimiter_of(self.delimiter)
        columns = self.text_column or []
        if len(columns) > 2 or len({*columns}) < len(columns):
            raise UserError(
                f"--text_column takes one name, or two different ones for a pair; got {' '.join(map(repr, columns))}"
            )
        for name in names_in(self.label_column):
            if name in columns:
                raise UserError(f"--label_column {name} is one of --text_column; a label is no text")
        given: dict[str, str | None] = {name: name for name in (*columns, *names_in(self.label_column))}
        for flag_name in ("id_column", "weight_column", "group_column"):
            name = getattr(self, flag_name)
            # The rows of one text may belong together; everything else in two places is a mistake.
            of_text = flag_name == "group_column" and name in columns
            if name is not None and name in given.values() and not of_text:
                raise UserError(f"--{flag_name} {name} is named by another flag as well; a column is one thing only")
            given[flag_name] = None if flag_name == "id_column" else name  # an id may be the group, too
        self._check_several_labels()

    def _check_several_labels(self) -> None:
        """Check the flags of several labels a text."""
        names = names_in(self.label_column)
        if len(names) == 1:
            (self.label_column,) = names  # as records have it
        if len({*names}) < len(names):
            raise UserError(f"--label_column takes different names; got {' '.join(map(repr, names))}")
        several = f"--label_column {' '.join(names)}" if len(names) > 1 else ""
        given = several or ("--label_separator" if self.label_separator is not None else "")
        if given and self.problem_type in ("single_label", "regression"):
            raise UserError(
                f"{given} is for several labels a text, but --problem_type {self.problem_type} gives a text one; leave "
                "one of them out" + (", or name one column" if several else "")
            )
        refuse_idle(self, (several and "with a column for each label", ("label_separator",)))
        separator = self.label_separator
        if separator is not None and (not separator or set(separator) & set("\t\r\n\0")):
            raise UserError(
                f"--label_separator: expected a mark such as '|' that is no tab and no line end, got {separator!r}"
            )

    def _check_splits(self) -> None:
        """The flags that divide the training data."""
        refuse_idle(
            self,
            (self.task_name and "with --task_name, whose splits are fixed", ("validation_split", "folds")),
            (not self.folds and "without --folds", ("fold",)),
            (not (self.validation_split or self.folds) and "without --validation_split or --folds", ("group_column",)),
        )
        if self.folds is not None:
            at_least(self, 2, "folds")
            if self.validation_split is not None:
                raise UserError("--folds holds out every part in turn; drop --validation_split")
            if self.seeds is not None or self.paper:
                raise UserError(
                    f"--folds is a series of its own; drop {'--paper' if self.paper else '--seeds'}, or give the "
                    "command once for each --seed"
                )
        if self.fold is not None and not 1 <= self.fold <= (self.folds or 0):
            raise UserError(f"--fold must be from 1 to {self.folds}; got {self.fold}")
        self._check_held_out(("validation_split", "folds"))

    @property
    def many_runs(self) -> bool:
        """Whether this command is a series of runs: also with --paper, and with --folds unless it names one."""
        folds = self.folds is not None and self.fold is None
        return self.paper or folds or super().many_runs


def delimiter_of(word: str) -> str:
    """The character that --delimiter names. Raises ValueError for any other."""
    character = DELIMITERS.get(word.lower(), word)
    if character not in DELIMITERS.values():
        raise UserError(
            f"--delimiter: expected comma, semicolon, tab or pipe, or one of these characters; got {word!r}"
        )
    return character


@dataclass
class SquadArguments(TaughtArguments, FineTuningArguments):
    """The flags of run_squad.py."""

    test_file: str | None = flag(
        None,
        "Questions to answer: SQuAD JSON without gold answers, or .jsonl, .csv, .tsv with question, context and, "
        "optionally, id; it is scored if every question has gold answers.",
        AFTERWARDS,
    )
    version_2_with_negative: bool = flag(
        False, "The data has questions without an answer (SQuAD 2.0).", FIXED | CARD | EVALUATION | STORED
    )
    max_seq_length: int = flag(
        384, "Tokens of a window: question, part of the context, special tokens.", FIXED | CARD | EVALUATION | STORED
    )
    doc_stride: int = flag(
        128, "Tokens from the start of one window to the start of the next.", FIXED | CARD | EVALUATION | STORED
    )
    max_query_length: int = flag(64, "Longest question in tokens; longer ones are cut.", FIXED | EVALUATION | STORED)
    max_answer_length: int = flag(30, "Longest answer, in tokens.", EVALUATION | STORED)
    n_best_size: int = flag(20, "Number of candidate answers kept per question.", EVALUATION | STORED)
    null_score_diff_threshold: float | None = flag(
        None,
        "Give no answer if the score of no answer exceeds that of the best answer by more than this. Default: 0, or "
        "without training data the threshold that is stored with the model. If a training has 0, --test_file is "
        "answered with the best threshold of the validation data.",
        EVALUATION,
    )
    bilstm_on_top: bool = flag(
        False, "Put a new BiLSTM on top of BERT, and train both (paper, 5.1).", FIXED | CARD | EVALUATION | STORED
    )
    answer_alignment: Literal["offsets", "google"] = flag(
        "offsets",
        "How tokens are mapped back to text: by character offsets, or as google-research/bert does it.",
        EVALUATION | STORED,
    )
    cache_dir: str | None = flag(None, "Folder for tokenised windows. Default: OUTPUT_DIR/features.", FREE)
    num_train_epochs: float = flag(2.0, "Passes over the training windows.")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "max_answer_length", "n_best_size")
        # 0 has no effect either, but it is accepted, because the records of all runs on SQuAD 1.1 have it.
        idle = self.null_score_diff_threshold and not self.version_2_with_negative
        refuse_idle(self, (idle and "without --version_2_with_negative", ("null_score_diff_threshold",)))
        # Stage 4 of bert_training/tasks/squad/threshold.py. Filled in here, so that run.json has the 0 of all records.
        only_evaluates = (self.validation_file or self.test_file) and not self.train_file
        if self.null_score_diff_threshold is None and not (only_evaluates and self.version_2_with_negative):
            self.null_score_diff_threshold = 0.0


TaggerLayers = Literal[
    "embeddings", "second_to_last", "last", "weighted_sum_last_four", "concat_last_four", "weighted_sum_all"
]


@dataclass
class NerArguments(ClassArguments):
    """The flags of run_ner.py."""

    test_file: str | None = flag(None, "Further data to predict; it is scored if it has tags.", AFTERWARDS)
    max_seq_length: int = flag(
        512,
        "Length of a row in tokens: a sentence and as much of its document around it as fits.",
        FIXED | CARD | EVALUATION | STORED,
    )
    context: Literal["document", "sentence"] = flag(
        "document", "What the model sees around a sentence.", FIXED | CARD | EVALUATION | STORED
    )
    mixed_tags: bool = flag(
        False, "Accept files in which some entities begin with B- and others with I-.", FIXED | EVALUATION
    )
    tag_scheme: Literal["auto", "plain", "io"] = flag(
        "auto",
        "What tags without a prefix such as B- are. plain: each is the class of one word, such as its part of speech. "
        "io: words in a row with one tag are one name, and O is none. auto: plain, if O is not among them.",
        FIXED | EVALUATION,
    )
    tag_names: list[str] | None = flag(
        None, "The names of tags that are numbers in JSON, in the order of the numbers.", FIXED | EVALUATION, nargs="+"
    )
    label_column: str | None = flag(
        None,
        "Name of the field or column of the tags in JSON and data sets of the Hub. Default: ner_tags, tags, ner or "
        "labels.",
        FIXED | EVALUATION,
    )
    feature_based: TaggerLayers | None = flag(
        None, "Freeze BERT; train a BiLSTM on these layers (paper, Table 7).", FIXED | CARD | EVALUATION | STORED
    )
    lstm_size: int = flag(768, "Hidden units of that BiLSTM in each direction.", FIXED | CARD | EVALUATION | STORED)
    per_device_train_batch_size: int = flag(
        8, "Rows per device in one forward pass; a row may contain several sentences."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "lstm_size")
        own = self.dataset_name or self.train_file or self.validation_file or self.test_file
        refuse_idle(
            self,
            (not self.feature_based and "without --feature_based", ("lstm_size",)),
            (
                self.feature_based and "with --feature_based, which trains no layer",
                ("layer_decay", "freeze_layers", "keep_layers", "teacher"),
            ),
            (not own and "without data of your own", ("tag_scheme", "tag_names", "label_column")),
            (self.tag_scheme == "plain" and "with --tag_scheme plain", ("mixed_tags",)),
        )
        self._check_held_out(("validation_split",))
        if self.tag_names and len({*self.tag_names}) < len(self.tag_names):
            raise UserError(f"--tag_names must be different names, got {' '.join(self.tag_names)}")


@dataclass
class SwagArguments(FineTuningArguments):
    """The flags of run_swag.py."""

    test_file: str | None = flag(None, "Further data to predict; it is scored if it has labels.", AFTERWARDS)
    delimiter: str | None = flag(
        None,
        "What separates the cells of .csv files: comma, semicolon, tab or pipe, or the character. Default: the comma.",
        FIXED | DATA | EVALUATION,
    )
    max_seq_length: int = flag(
        128,
        "Longest input in tokens; if a pair is longer, tokens of its longer text are cut first.",
        FIXED | CARD | EVALUATION | STORED,
    )
    per_device_train_batch_size: int = flag(16, "Examples, each with all its choices, per device in one forward pass.")
    learning_rate: float = flag(2e-5, "Peak learning rate (paper, section 4.4).")

    def __post_init__(self) -> None:
        super().__post_init__()
        files = self.train_file or self.validation_file or self.test_file
        refuse_idle(self, (not files and "without files of your own", ("delimiter",)))
        if self.delimiter is not None:
            self.delimiter = delimiter_of(self.delimiter)

"""The flags of the fine-tuning scripts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from unicodedata import normalize

from bert_training.inputs.flags.parsing import APART, CARD, EVALUATION, FIXED, STORED, flag
from bert_training.inputs.flags.shared import SharedArguments, StudentArguments

NAMES = ("text_column", "label_column", "id_column", "weight_column", "group_column", "tag_names",
         "metric_for_best_model")  # fmt: skip
"""The flags with names of columns or labels, which are compared in Unicode's form NFC."""
DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "\\t": "\t"}
FOLDS = re.compile(r"(?:(\d{1,4})/)?(\d{1,4})", re.ASCII)
LONG_TEXTS = re.compile(r"cut|head_tail|windows(:[1-9]\d*)?", re.ASCII)
PROBABILITY = re.compile(r"0?\.\d+", re.ASCII)
ONE_LABEL = ("single_label", "regression")
LAST_TOKEN = ("last", "bilstm")  # the values of --label_token that read the label there
TRAINING = "train_file or dataset_name"
FILES = "train_file or validation_file or test_file"
OWN = f"{FILES} or dataset_name"
SERIES = "seeds or folds"
TEMPERATURE, ABSTAIN = "temperature", "abstain"  # the words of --calibrate
READING = FIXED | CARD | EVALUATION | STORED
OF_OWN_DATA: dict[str, Any] = {"needs": (OWN,), "excludes": ("task_name",)}


@dataclass
class FineTuningArguments(SharedArguments):
    """The flags of all fine-tuning scripts.

    Attributes:
        model_name_or_path: A pre-trained checkpoint: folder or Hub name; also an old one.
        config_name: For random weights: a size, or a folder with config.json.
        tokenizer_name: The tokenizer's folder, Hub name or vocab.txt; default: the model's.
        dataset_name: A data set of the Hub.
        dataset_config_name: Configuration of that data set.
        train_file: Your own training data.
        validation_file: Your own validation data.
        max_train_samples: Use only this many training examples, the first ones.
        max_eval_samples: Use only this many validation examples, the first ones.
        lr_scheduler_type: How the learning rate goes on after the warm-up: linear or cosine to 0, or constant.
        lora_rank: Train only matrices of this rank beside the encoder's (LoRA, by peft), and the head; 8 is usual. They
            are merged at the end; OUTPUT_DIR/adapter keeps them. It wants about ten times the learning rate.
        load_best_model_at_end: Keep the weights of the best evaluation instead of the last.
        metric_for_best_model: Metric that decides which evaluation, or which run of a series, is the best. Default: the
            paper's.
        seeds: Number of runs, with consecutive seeds from --seed on; each has a sub-folder.
        compare_to: Folder of another series, to compare run by run.
    """

    FIRST = (
        *("output_dir", "model_name_or_path", "train_file", "validation_file", "test_file"),
        *("num_train_epochs", "learning_rate", "per_device_train_batch_size", "max_seq_length", "seeds"),
    )
    model_name_or_path: str | None = flag(None, CARD | APART)
    config_name: str | None = flag(None, CARD | APART, needs=("tokenizer_name",), excludes=("model_name_or_path",))
    tokenizer_name: str | None = flag(None, APART)
    dataset_name: str | None = flag(None, APART)
    dataset_config_name: str | None = flag(None, APART, needs=("dataset_name",))
    train_file: str | None = flag(None, APART)
    validation_file: str | None = flag(None, APART)
    max_train_samples: int | None = flag(None, FIXED, at_least=1)
    max_eval_samples: int | None = flag(None, EVALUATION, at_least=1)
    lr_scheduler_type: Literal["linear", "cosine", "constant"] = flag("linear", FIXED | CARD)
    lora_rank: int | None = flag(None, FIXED | CARD, at_least=1, excludes=("config_name",))
    load_best_model_at_end: bool = flag(False)
    metric_for_best_model: str | None = flag(None, needs=(f"load_best_model_at_end or {SERIES}",))
    seeds: int | None = flag(None, APART, at_least=1, excludes=("push_to_hub", "folds"))
    compare_to: str | None = flag(None, APART, needs=(SERIES,))

    @property
    def leaves_type_to_cpu(self) -> bool:
        """Whether --mixed_precision is auto by default on a CPU."""
        return True

    @property
    def many_runs(self) -> bool:
        """Whether this command is a series of runs."""
        return self.seeds is not None

    def settle(self) -> None:
        """Names in the Unicode form in which they are compared."""
        super().settle()
        for name in NAMES:
            given = getattr(self, name, None)
            if isinstance(given, list):
                setattr(self, name, [normalize("NFC", one) for one in given])
            elif given:
                setattr(self, name, normalize("NFC", given))

    def problems(self) -> Iterator[str]:
        """No weights, and a checkpoint for a series, whose runs have their own."""
        yield from super().problems()
        if not self.model_name_or_path and not self.config_name and not getattr(self, "keep_layers", None):
            yield "give --model_name_or_path MODEL or, for random weights, --config_name SIZE and --tokenizer_name DIR"
        if self.many_runs and self.resume_from_checkpoint not in (None, "auto"):
            yield "a series of runs resumes by itself; leave --resume_from_checkpoint out"


@dataclass
class ClassArguments(StudentArguments, FineTuningArguments):
    """The flags of the scripts that learn classes.

    Attributes:
        class_weights: Weights of the classes in the training loss. balanced: in inverse proportion to their
            frequencies, as in scikit-learn; or a JSON file {"label": weight, ...}.
        validation_split: Hold out this share of your own training data for validation, such as 0.1: of texts, as many
            of each class as that is; of tagged sentences, whole documents if it has several. 0: train without
            validation data.
        folds: Cross-validation: train this many times, each time with another part of your own training data held out.
            2/5: only the second of five times.
    """

    class_weights: str | None = flag(None, FIXED | CARD)
    validation_split: float | None = flag(
        None, FIXED, at_least=0, below=1, needs=(TRAINING,), excludes=("validation_file", "task_name", "folds")
    )
    folds: str | None = flag(None, FIXED, needs=(TRAINING,), excludes=("validation_file", "task_name", "push_to_hub"))

    @property
    def num_folds(self) -> int:
        """The number of parts of a cross-validation; 0 without one."""
        match = FOLDS.fullmatch(self.folds or "")
        return int(match[2]) if match else 0

    @property
    def fold(self) -> int | None:
        """The only part of the cross-validation that is held out, from 1; None if each is in turn."""
        match = FOLDS.fullmatch(self.folds or "")
        return int(match[1]) if match and match[1] else None

    @property
    def many_runs(self) -> bool:
        """Whether this command is a series of runs: also with --folds, unless it names one."""
        return bool(self.num_folds and not self.fold) or super().many_runs

    def problems(self) -> Iterator[str]:
        """Folds that cannot be counted, and a choice among evaluations of which there are none."""
        yield from super().problems()
        if self.folds and not (self.num_folds >= 2 and 1 <= (self.fold or 1) <= self.num_folds):
            yield f"--folds must be a number of at least 2, or one of so many, such as 2/5; got {self.folds!r}"
        if self.validation_split == 0 and (self.load_best_model_at_end or self.many_runs):
            yield "--validation_split 0 leaves nothing to choose the best by; give 0.1, or choose nothing"


@dataclass
class GlueArguments(ClassArguments):
    """The flags of run_glue.py.

    Attributes:
        task_name: A task of GLUE: cola|sst2|mrpc|stsb|qqp|mnli|qnli|rte|wnli|ax; or one made from the documentation of
            this Python installation: builtin_pair (the default without data flags) or builtin_classification.
        data_dir: Folder with the official files train.tsv, dev.tsv and test.tsv.
        test_file: Your own data to predict; it is scored if every row has a label that the model knows.
        text_column: Of your own data, the name of the column with the text, or of the two columns with a pair. Default:
            text, or sentence1 and sentence2; without training data, those that the model was trained on.
        id_column: Of your own data, the name of the column that identifies a row in the files of predictions. Default:
            id; without training data, that of the model's training.
        weight_column: Of your own training data, the name of the column with the weight of each row in the loss.
        group_column: The name of the column that says which rows belong together, such as those of one author:
            --validation_split and --folds keep them on one side.
        delimiter: What separates the cells of your own .csv files: comma, semicolon, tab or pipe, or the character
            itself. Default: as in the model's training, or the comma.
        label_column: Of your own data, the name of the column with the label; or, for several labels a text, the names
            of their columns, which hold 0 or 1. Default: label; without training
            data, those of the model's training.
        label_separator: Of your own data with several labels a text: what stands between the labels of a cell, such as
            '|'. Default: as for the label; lists in JSON or on the Hub need none.
        problem_type: Of your own data: whether a text has one class, several labels, or a score. Default: what the
            model predicts or, with training data, several labels for lists, --label_separator or several columns of
            labels, otherwise classes, unless a label such as 2.5 can only be a score.
        max_seq_length: Longest input in tokens; if a pair is longer, tokens of its longer text are cut first.
        label_token: Token from which the label is read; in a network that attends left to right only the last sees all.
            bilstm: from the last token of a new BiLSTM on top of BERT, which is trained with it (paper, 5.1).
        calibrate: Find on the validation data the temperature that makes the probabilities most believable, and store
            it with the model. Labels do not change. abstain: find and store, too, the probability below which a text
            gets none of the classes; rows without a label are such texts. Or that probability itself, such as 0.7.
        long_texts: What is read of a text of more than --max_seq_length tokens. cut: its beginning; head_tail: its
            beginning (a quarter) and its end; windows: all of it, in at most 8 overlapping windows, the mean of whose
            logits counts; windows:20: in at most 20.
        do_predict: Write predictions for the test split; of a task of GLUE, those for its server.
    """

    FIRST = (
        *("output_dir", "model_name_or_path", "task_name", "data_dir", "train_file", "validation_file", "test_file"),
        *("num_train_epochs", "learning_rate", "per_device_train_batch_size"),
    )
    task_name: str | None = flag(None, FIXED | CARD | APART | EVALUATION)
    data_dir: str | None = flag(None, APART)
    test_file: str | None = flag(None, APART)
    text_column: list[str] | None = flag(None, FIXED | EVALUATION, **OF_OWN_DATA)
    id_column: str | None = flag(None, FIXED | APART, **OF_OWN_DATA)
    weight_column: str | None = flag(None, FIXED, needs=(TRAINING,), excludes=("task_name",))
    group_column: str | None = flag(None, FIXED, needs=(TRAINING, "validation_split or folds"), excludes=("task_name",))
    delimiter: str | None = flag(
        None, FIXED | APART | EVALUATION, needs=(FILES,), excludes=("task_name", "dataset_name")
    )
    label_column: list[str] | str | None = flag(None, FIXED | EVALUATION, **OF_OWN_DATA)
    label_separator: str | None = flag(
        None, FIXED | EVALUATION, needs=(OWN,), excludes=("task_name", *(f"problem_type {one}" for one in ONE_LABEL))
    )
    problem_type: Literal["single_label", "multi_label", "regression"] | None = flag(
        None, FIXED | EVALUATION, **OF_OWN_DATA
    )
    max_seq_length: int = flag(128, READING)
    label_token: Literal["cls", "last", "bilstm"] = flag("cls", READING, excludes=("long_texts windows",))
    calibrate: str | None = flag(None, APART, alone=TEMPERATURE)
    long_texts: str = flag("cut", READING)
    do_predict: bool = flag(False, APART)

    @property
    def abstains(self) -> bool:
        """Whether --calibrate also says, or finds, when a text gets none of the classes."""
        return self.calibrate not in (None, TEMPERATURE)

    @property
    def abstain_below(self) -> float | None:
        """The probability that --calibrate names; None if it is to be found."""
        return float(str(self.calibrate)) if self.abstains and self.calibrate != ABSTAIN else None

    def problems(self) -> Iterator[str]:
        """Columns that are two things at once, and values that cannot be read."""
        yield from super().problems()
        yield from delimiter_problems(self.delimiter)
        yield from self._problems_of_columns()
        if not LONG_TEXTS.fullmatch(self.long_texts):
            yield f"--long_texts: expected cut, head_tail, windows, or a number as windows:20; got {self.long_texts!r}"
        if self.abstains and self.calibrate != ABSTAIN and not PROBABILITY.fullmatch(str(self.calibrate)):
            words = f"{TEMPERATURE}, {ABSTAIN}, or a probability below 1, such as 0.7"
            yield f"--calibrate: expected {words}; got {self.calibrate!r}"

    def _problems_of_columns(self) -> Iterator[str]:
        texts, labels = self.text_column or [], names_in(self.label_column)
        if len(texts) > 2:
            yield f"--text_column takes one name, or two for a pair; got {' '.join(map(repr, texts))}"
        # Rows with the same text or id may belong together; everything else in two places is a mistake.
        others = [name for name in (self.id_column, self.weight_column) if name]
        if self.group_column and self.group_column not in (self.id_column, *texts):
            others.append(self.group_column)
        named = [*texts, *labels, *others]
        for name in dict.fromkeys(name for name in named if named.count(name) > 1):
            yield f"two flags, such as --text_column and --label_column, name the column {name!r}; it is one thing only"
        if len(labels) > 1 and (self.label_separator or self.problem_type in ONE_LABEL):
            yield "several names of --label_column exclude --label_separator and a --problem_type of one label a text"
        if (mark := self.label_separator) is not None and (not mark or set(mark) & set("\t\r\n\0")):
            yield f"--label_separator: expected a mark such as '|', no tab or line end; got {mark!r}"

    def settle(self) -> None:
        """The delimiter as a character, and a single label column as a name."""
        super().settle()
        self.delimiter = delimiter_of(self.delimiter)
        if len(names_in(self.label_column)) == 1:
            (self.label_column,) = names_in(self.label_column)


def names_in(value: list[str] | str | None) -> tuple[str, ...]:
    """The names that a flag such as --label_column gives, one or several."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def delimiter_of(word: str | None) -> str | None:
    """The character that --delimiter names."""
    return None if word is None else DELIMITERS.get(word.lower(), word)


def delimiter_problems(word: str | None) -> Iterator[str]:
    """What is wrong with a --delimiter that is none of DELIMITERS."""
    if word is not None and delimiter_of(word) not in DELIMITERS.values():
        yield f"--delimiter: expected comma, semicolon, tab or pipe, or one of these characters; got {word!r}"


@dataclass
class SquadArguments(StudentArguments, FineTuningArguments):
    """The flags of run_squad.py.

    Attributes:
        test_file: Questions to answer: SQuAD JSON without gold answers, or .jsonl, .csv, .tsv with question, context
            and, optionally, id; it is scored if every question has gold answers.
        version_2_with_negative: The data has questions without an answer (SQuAD 2.0).
        max_seq_length: Tokens of a window: question, part of the context, special tokens.
        doc_stride: Tokens from the start of one window to the start of the next.
        max_query_length: Longest question in tokens; longer ones are cut.
        max_answer_length: Longest answer, in tokens.
        n_best_size: Number of candidate answers kept per question.
        null_score_diff_threshold: Give no answer if the score of no answer exceeds that of the best answer by more than
            this. Default: 0, or without training data the threshold that is stored with the model. If a training has 0,
            --test_file is answered with the best threshold of the validation data.
        bilstm_on_top: Put a new BiLSTM on top of BERT, and train both (paper, 5.1).
        num_train_epochs: Passes over the training windows.
    """

    test_file: str | None = flag(None, APART)
    version_2_with_negative: bool = flag(False, READING)
    max_seq_length: int = flag(384, READING)
    doc_stride: int = flag(128, READING, at_least=1)
    max_query_length: int = flag(64, FIXED | EVALUATION | STORED)
    max_answer_length: int = flag(30, EVALUATION | STORED, at_least=1)
    n_best_size: int = flag(20, EVALUATION | STORED, at_least=1)
    null_score_diff_threshold: float | None = flag(None, EVALUATION)
    bilstm_on_top: bool = flag(False, READING)
    num_train_epochs: float = flag(2.0)

    def problems(self) -> Iterator[str]:
        """A threshold for data in which every question has an answer."""
        yield from super().problems()
        if self.null_score_diff_threshold and not self.version_2_with_negative:  # 0 is filled in below
            yield "--null_score_diff_threshold needs --version_2_with_negative; give that, or leave it out"

    def settle(self) -> None:
        """The threshold, unless that of the model counts: stage 4 of bert_training/tasks/squad/threshold.py."""
        super().settle()
        only_evaluates = (self.validation_file or self.test_file) and not self.train_file
        if self.null_score_diff_threshold is None and not (only_evaluates and self.version_2_with_negative):
            self.null_score_diff_threshold = 0.0


TaggerLayers = Literal[
    "embeddings", "second_to_last", "last", "weighted_sum_last_four", "concat_last_four", "weighted_sum_all"
]


@dataclass
class NerArguments(ClassArguments):
    """The flags of run_ner.py.

    Attributes:
        test_file: Further data to predict; it is scored if it has tags.
        max_seq_length: Length of a row in tokens: a sentence and as much of its document around it as fits.
        context: What the model sees around a sentence.
        mixed_tags: Accept files in which some entities begin with B- and others with I-.
        tag_scheme: What tags without a prefix such as B- are. plain: each is the class of one word, such as its part of
            speech. io: words in a row with one tag are one name, and O is none. auto: plain, if O is not among them.
        tag_names: The names of tags that are numbers in JSON, in the order of the numbers.
        label_column: Name of the column of the tags in JSON, Parquet and data sets of the Hub. Default: ner_tags or
            tags; of spans in texts label, labels, spans or entities.
        text_column: Name of the column of texts with spans. Default: text.
        feature_based: Freeze BERT; train a BiLSTM on these layers (paper, Table 7).
        lstm_size: Hidden units of that BiLSTM in each direction.
        per_device_train_batch_size: Rows per device in one forward pass; a row may contain several sentences.
    """

    test_file: str | None = flag(None, APART)
    max_seq_length: int = flag(512, READING, at_least=4)
    context: Literal["document", "sentence"] = flag("document", READING)
    mixed_tags: bool = flag(False, FIXED | EVALUATION, excludes=("tag_scheme plain",))
    tag_scheme: Literal["auto", "plain", "io"] = flag("auto", FIXED | EVALUATION, needs=(OWN,))
    tag_names: list[str] | None = flag(None, FIXED | EVALUATION, needs=(OWN,))
    label_column: str | None = flag(None, FIXED | EVALUATION, needs=(OWN,))
    text_column: str | None = flag(None, FIXED | EVALUATION, needs=(OWN,))
    feature_based: TaggerLayers | None = flag(None, READING, excludes=("keep_layers", "teacher", "lora_rank"))
    lstm_size: int = flag(768, READING, at_least=1, needs=("feature_based",))
    per_device_train_batch_size: int = flag(8)

    def problems(self) -> Iterator[str]:
        """A tag that is named twice."""
        yield from super().problems()
        if self.tag_names and len({*self.tag_names}) < len(self.tag_names):
            yield f"--tag_names must be different names, got {' '.join(self.tag_names)}"


@dataclass
class SwagArguments(FineTuningArguments):
    """The flags of run_swag.py.

    Attributes:
        test_file: Further data to predict; it is scored if it has labels.
        delimiter: What separates the cells of .csv files: comma, semicolon, tab or pipe, or the character. Default: the
            comma.
        max_seq_length: Longest input in tokens; if a pair is longer, tokens of its longer text are cut first.
        per_device_train_batch_size: Examples, each with all its choices, per device in one forward pass.
        learning_rate: Peak learning rate; its default, for 768 units, is scaled (paper, section 4.4).
    """

    test_file: str | None = flag(None, APART)
    delimiter: str | None = flag(None, FIXED | APART | EVALUATION, needs=(FILES,))
    max_seq_length: int = flag(128, READING)
    per_device_train_batch_size: int = flag(16)
    learning_rate: float = flag(2e-5)

    def problems(self) -> Iterator[str]:
        """A delimiter that is none."""
        yield from super().problems()
        yield from delimiter_problems(self.delimiter)

    def settle(self) -> None:
        """The delimiter as a character."""
        super().settle()
        self.delimiter = delimiter_of(self.delimiter)


SPECIAL_TOKENS = 2  # [CLS] and [SEP]
MOST_WINDOWS = 8  # of a text, unless --long_texts says another number


def head_of(kept: int) -> int:
    """Of the tokens that ``--long_texts head_tail`` keeps of a text, how many are from its beginning: a quarter.

    Sun et al. 2019, "How to Fine-Tune BERT for Text Classification?", keep the first 128 and the last 382 of 510.
    """
    return (kept + 2) // 4


def stride_of(room: int) -> int:
    """Tokens from the start of a window with ``room`` tokens of a text to the start of the next: three quarters."""
    return max(1, room * 3 // 4)


def way_and_windows(long_texts: str) -> tuple[str, int]:
    """What a value of --long_texts says: the way in which a text is read, and of windows the largest number."""
    way, _, most = long_texts.partition(":")
    return way, int(most or MOST_WINDOWS)

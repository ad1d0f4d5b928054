"""What the tokenizer of a pre-training run loses of its text, and whether anything is left to predict."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from bert_training.engine.batches import IGNORED
from bert_training.engine.run import Run
from bert_training.inputs.flags.pretraining import PretrainingArguments
from bert_training.inputs.texts import read_lines
from bert_training.pretraining.corpora import Corpora
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.instances import PretrainingInstances
from bert_training.pretraining.text import Text
from tokenization.coverage import SAMPLE, Coverage, coverage
from tokenization.errors import UserError

_BATCH = 256
# (how to get a vocabulary with the characters of the text, how to get a tokenizer that keeps accents)
GIVEN = (
    "take weights or a tokenizer of this language, or learn a vocabulary (no --tokenizer_name)",
    "take a tokenizer that keeps them (strip_accents false in its tokenizer_config.json), or learn a vocabulary "
    "(no --tokenizer_name)",
)
WEIGHTS_GIVEN = (
    "begin with a model of this language",
    "begin with a model whose tokenizer keeps them (strip_accents false in its tokenizer_config.json)",
)
LEARNT = (
    "give a larger --vocab_size, or learn one with bert-repro vocabulary and a larger --limit_alphabet",
    "learn one with bert-repro vocabulary --strip_accents false",
)


def remedies(args: PretrainingArguments, pieces: int | None = None) -> tuple[str, str]:
    """What the user of these flags can do about [UNK], and about stripped accents.

    Args:
        pieces: of held-out text, the size of the vocabulary. One that was learnt has no characters that the training
            text lacks, and one that did not fill its rows has all that it was allowed to have.
    """
    if args.model_name_or_path:
        return WEIGHTS_GIVEN
    if args.tokenizer_name:
        return GIVEN
    if pieces is None or not args.validation_file:
        return LEARNT
    add = "add text like it to --train_file"
    return add if pieces < args.vocab_size else f"{add}, or {LEARNT[0]}", LEARNT[1]


def check_beginning(text: Text, tokenizer: PreTrainedTokenizerBase) -> None:
    """Check the first million characters of each text before the corpora are built, which may take hours.

    Raises:
        ValueError: practically all of them become [UNK].
    """
    lines = text.lines()
    parts = [(text.name, lines)]  # both may have one name
    if text.args.validation_file:
        parts.append((text.held_out_name, read_lines(text.held_out_files, text.args.text_column)))
    for name, part in parts:
        pieces = len(tokenizer) if part is not lines else None
        coverage(tokenizer, _beginning(part)).check_usable(name, remedies(text.args, pieces)[0])


def _beginning(lines: Iterable[str | None]) -> Iterator[str]:
    characters = 0
    for line in lines:
        if line is not None:
            yield line
            characters += len(line)
            if characters >= SAMPLE:
                return


def record_coverage(
    run: Run[PretrainingArguments],
    tokenizer: PreTrainedTokenizerBase,
    corpora: Corpora,
    evaluated: dict[int, PretrainingInstances],
) -> None:
    """Record and print the shares of [UNK] and of stripped accents in all corpora, and warn if they are large.

    The case and the accents of the tokenizer are recorded and printed as well.

    Args:
        evaluated: the held-out instances by their length.

    Raises:
        ValueError: there is nothing to predict in the held-out instances.
    """
    run.only_main(lambda: check_predictable(run.args, evaluated, len(tokenizer)))
    normalizer = tokenizer.backend_tokenizer.normalizer
    if (lower_case := getattr(normalizer, "lowercase", None)) is not None:
        strips = normalizer.strip_accents
        strips = lower_case if strips is None else strips
        run.add_facts(tokenizer={"do_lower_case": lower_case, "strip_accents": strips})
        case = "lower-cased" if lower_case else "cased"
        run.say(f"the tokenizer is {case} and {'strips' if strips else 'keeps'} accents")
    mixed = len(corpora.train) > 1
    train = {f"train_{number}" if mixed else "train": one for number, one in enumerate(corpora.train, 1)}
    titles = {name: f"train text {Path(file).name}" for name, file in zip(train, run.args.train_file)} if mixed else {}
    found = {name: coverage_of_corpus(one, tokenizer) for name, one in (train | {"held_out": corpora.held_out}).items()}
    run.add_facts(coverage={name: counts.facts() for name, counts in found.items()})
    for name, counts in found.items():
        text = titles.get(name, f"{name.replace('_', '-')} text")
        run.say(f"{text}: {counts.summary()}")
        for warning in counts.warnings(text, *remedies(run.args, len(tokenizer) if name == "held_out" else None)):
            run.say(warning)


def coverage_of_corpus(corpus: Corpus, tokenizer: PreTrainedTokenizerBase) -> Coverage:
    """The counts of a corpus: all of its tokens, and characters and words of the samples of its shards."""
    samples = [Coverage.from_facts(facts["coverage"]) for facts in corpus.facts]
    first = max(samples, key=lambda sample: sample.unknown_characters)  # whose examples are shown
    sums = {
        name: sum(getattr(sample, name) for sample in samples)
        for name, value in asdict(first).items()
        if isinstance(value, int)
    }
    unknown = tokenizer.unk_token_id
    sums |= {"tokens": corpus.num_tokens, "unknown_tokens": 0 if unknown is None else int(corpus.unigrams[unknown])}
    return replace(first, **sums)


def check_predictable(args: PretrainingArguments, held_out: dict[int, PretrainingInstances], pieces: int) -> None:
    """Check that the held-out instances that are evaluated have something to predict.

    Args:
        held_out: the instances by their length.
        pieces: the size of the vocabulary.

    Raises:
        ValueError: they hold only [UNK] and other special tokens, which are never predicted.
    """
    for length, instances in held_out.items():
        count = min(args.max_eval_instances, instances.epoch_size(0))
        batches = (instances.batch(start, min(start + _BATCH, count)) for start in range(0, count, _BATCH))
        if not any(bool((batch["labels"] != IGNORED).any()) for batch in batches):
            raise UserError(
                f"the held-out text: expected tokens to predict, but its {count:,} instances of {length} tokens hold "
                f"only [UNK], which is never predicted; give another --validation_file, or {remedies(args, pieces)[0]}"
            )

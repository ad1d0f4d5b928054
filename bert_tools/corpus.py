"""Prepare the corpus of a text: alone, or as one of many tasks on any number of machines with a common disk.

bert-repro corpus --train_file wiki.txt books/*.jsonl --tokenizer_name vocab --output_dir corpus
bert-repro corpus --train_file wiki.txt books/*.jsonl --tokenizer_name vocab --output_dir corpus --tasks 64 --task 17
bert-repro corpus --train_file wiki.txt books/*.jsonl --tokenizer_name vocab --output_dir corpus --join

Without --task, everything is done here. A task makes its shards (OUTPUT_DIR.shards) and joins nothing; when all of them
have ended, in any order, --join verifies the shards and writes the corpus. A task or a join that is started again does
only what is missing. Under Slurm, `sbatch -a 0-63` numbers the tasks from 0:

    srun bert-repro corpus ... --tasks $SLURM_ARRAY_TASK_COUNT --task $SLURM_ARRAY_TASK_ID

run_pretraining.py --corpus_dir reads the corpus.
"""

import argparse
import os
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from bert_training.files.atomic import is_occupied, make_folder, written
from bert_training.files.cores import usable_cores
from bert_training.files.hashing import UnchangedFiles
from bert_training.files.locks import held
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.texts import PLACES, check_apart, check_entries
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.build_corpus import Opened, build_corpus, join, key_of, lock_of
from bert_training.pretraining.corpus import Corpus
from bert_training.pretraining.shard_plan import ShardPlan, plan_of
from bert_training.pretraining.shards import remove_shards, shards_folder
from tokenization.errors import UserError


def main(argv: list[str] | None = None) -> None:
    """Do what the flags say.

    Raises:
        ValueError: the text, the tokenizer or a shard is not what it should be.
        OSError: something could not be written.
    """
    args = _parse(argv)
    target = Path(args.output_dir)
    check_apart(args.train_file, target)
    files = check_entries(args.train_file, print)
    tokenizer = load_tokenizer(args.tokenizer_name, quiet=True)
    plan = plan_of(files, tokenizer, shards_folder(target), args.text_column)
    if args.task is not None:
        _one_task(plan, tokenizer, target, args)
    elif args.join:
        _join_only(plan, tokenizer, target, args.text_column)
    else:
        plan.is_begun()  # shards of another text are not deleted: the tasks that make them may be at work
        _say_notes(plan)
        build_corpus(files, tokenizer, target, args.num_workers, text_column=args.text_column)
    if args.task is None:
        corpus = Corpus.open(target, tokenizer, verify=False)
        print(
            f"{corpus.num_documents:,} documents, {corpus.num_sentences:,} sentences, {corpus.num_tokens:,} tokens in "
            f"{target}"
        )


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = command_parser("corpus", __doc__)
    parser.add_argument("--train_file", "--train-file", nargs="+", required=True, help=PLACES)
    parser.add_argument(
        "--tokenizer_name", "--tokenizer-name", required=True, help="a folder, a Hub name or a vocab.txt"
    )
    parser.add_argument("--output_dir", "--output-dir", required=True, help="the folder of the corpus")
    parser.add_argument(
        "--text_column", "--text-column", default="text", help="field of the text in .jsonl and .parquet files"
    )
    add_task_flags(parser)
    parser.add_argument(
        "--num_workers",
        "--num-workers",
        type=int,
        default=usable_cores(),
        help="processes of this command; default: the cores it may use",
    )
    args = parser.parse_args(argv)
    if os.path.realpath(args.output_dir) == os.getcwd():
        parser.error("--output_dir is the current folder, which the corpus would replace; name a folder in it")
    check_task_flags(parser, args)
    return args


def add_task_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that divide a work on text into tasks."""
    parser.add_argument("--tasks", type=int, help="the number of tasks that share the work")
    parser.add_argument("--task", type=int, help="the number of this task, from 0")
    parser.add_argument("--join", action="store_true", help="join what the tasks have made")


def check_task_flags(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with an error of the parser if these flags contradict each other."""
    if args.join and (args.task is not None or args.tasks is not None):
        parser.error("--join belongs to no task; leave out --tasks and --task")
    if (args.task is None) != (args.tasks is None):
        parser.error("--tasks and --task belong together, as in --tasks 64 --task 17")
    if args.tasks is not None and not 0 <= args.task < args.tasks:
        parser.error(
            f"--task {args.task}: the tasks of --tasks {args.tasks} are numbered from 0 to {args.tasks - 1} (in Slurm, "
            f"--array=0-{args.tasks - 1})"
        )


def _one_task(plan: ShardPlan, tokenizer: PreTrainedTokenizerBase, target: Path, args: argparse.Namespace) -> None:
    if is_occupied(target):
        _check_finished(plan, tokenizer, target, args.text_column)
        print(f"{target} is finished already")
        return
    make_folder(plan.folder)
    lock = plan.folder / f".task-{args.task}-of-{args.tasks}.lock"
    with held(lock, f"{plan.folder}: another process is at work on task {args.task} of {args.tasks}"):
        plan.is_begun()
        _say_notes(plan)
        plan.write_sources(args.task, args.tasks)
        plan.make(args.num_workers, args.task, args.tasks)
    mine = len(plan.jobs[args.task :: args.tasks])
    print(f"task {args.task} of {args.tasks}: {mine} of {len(plan.jobs)} shards are in {plan.folder}")


def _join_only(plan: ShardPlan, tokenizer: PreTrainedTokenizerBase, target: Path, text_column: str) -> None:
    busy = f"{target}: another process is building this corpus; wait until it is done"
    if is_occupied(target):
        build_corpus(plan.files, tokenizer, target, text_column=text_column)  # compares it with the files, and no more
    with written(target), held(lock_of(target), busy):
        if not is_occupied(target):
            described = plan.sources()
            key = key_of(described, tokenizer, text_column)
            join(plan, Opened(iter(()), plan.files, described, key, UnchangedFiles([])), tokenizer, target)
    remove_shards(plan.folder)


def _check_finished(plan: ShardPlan, tokenizer: PreTrainedTokenizerBase, target: Path, text_column: str) -> None:
    """Raise ValueError unless ``target`` is a corpus of files with these names and sizes, and of this tokenizer.

    What is in the files is not compared, since each of many tasks would have to read all of them.
    """
    manifest = Corpus.open(target, tokenizer, verify=False).manifest
    column = manifest["key"].get("text_column", "text")
    found = [(source["name"], source.get("bytes")) for source in manifest["sources"]]
    if column != text_column or found != [(path.name, path.stat().st_size) for path in plan.files]:
        raise UserError(
            f"{target}: holds the corpus of the column `{column}` of other files, "
            f"{', '.join(name for name, _ in found)[:200]}; give what it was made from, or choose another folder"
        )


def _say_notes(plan: ShardPlan) -> None:
    for note in plan.notes():
        print(note)

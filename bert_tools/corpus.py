"""Prepare the corpus of a text with the processes of this machine; run_pretraining.py --corpus_dir reads it.

bert-repro corpus --train_file wiki.txt books/*.jsonl --tokenizer_name vocab --output_dir corpus

The command that is started again makes only the shards that are missing. For many machines, give the same work to the
executors of datatrove: examples/datatrove_corpus.py.
"""

from bert_training.files.processes import usable_cores
from bert_training.inputs.flags.parsing import command_parser
from bert_training.inputs.texts import PLACES, check_files
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.build_corpus import build_corpus


def main(argv: list[str] | None = None) -> None:
    """Build the corpus.

    Raises:
        ValueError: the text or the tokenizer is not what it should be, or the folder holds another corpus.
        OSError: something could not be written.
    """
    parser = command_parser("corpus", __doc__)
    parser.add_argument("--train_file", "--train-file", nargs="+", required=True, help=PLACES)
    parser.add_argument(
        "--tokenizer_name", "--tokenizer-name", required=True, help="a folder, a Hub name or a vocab.txt"
    )
    parser.add_argument("--output_dir", "--output-dir", required=True, help="the folder of the corpus")
    parser.add_argument(
        "--text_column", "--text-column", default="text", help="field of the text in .jsonl and .parquet files"
    )
    parser.add_argument(
        "--num_workers", "--num-workers", type=int, default=usable_cores(), help="default: the cores it may use"
    )
    args = parser.parse_args(argv)
    files = check_files(args.train_file)
    tokenizer = load_tokenizer(args.tokenizer_name, quiet=True)
    corpus = build_corpus(files, tokenizer, args.output_dir, args.num_workers, text_column=args.text_column)
    print(
        f"{corpus.num_documents:,} documents, {corpus.num_sentences:,} sentences, {corpus.num_tokens:,} tokens in "
        f"{args.output_dir}"
    )

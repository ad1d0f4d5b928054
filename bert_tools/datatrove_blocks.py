"""A block for pipelines of datatrove that makes the shards of a corpus: the way to many machines.

    files = sorted(Path("clean").glob("*.jsonl"))
    LocalPipelineExecutor([CorpusShards(files, "vocab", "corpus")], tasks=8, logging_dir="logs/corpus").run()

Each task makes every ``tasks``-th shard. SlurmPipelineExecutor and RayPipelineExecutor take the same block, and start
only the tasks that have not been completed when they are run again; the shards of a task that was killed are kept. The
files are those of the machine on which a task runs, by the same names. The corpus is the same, byte for byte, for any
number of tasks, and what ``bert-repro corpus`` makes of the same files; training reads it with --corpus_dir.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datatrove.data import DocumentsPipeline
from datatrove.pipeline.base import PipelineStep

from bert_training.inputs.texts import check_files
from bert_training.inputs.tokenizers import load_tokenizer
from bert_training.pretraining.build_corpus import make_shard, plan_corpus


class CorpusShards(PipelineStep):  # type: ignore[misc]
    """Make the shards of a corpus; it passes no documents on.

    Args:
        files: entries as of ``--train_file``.
        tokenizer_name: a folder, a Hub name or a vocab.txt.
        output_dir: the folder of the corpus.
        text_column: the field of the text in .jsonl and .parquet files.
    """

    name = "BERT corpus"
    type = "TOKENIZER"

    def __init__(
        self,
        files: Sequence[str | Path],
        tokenizer_name: str,
        output_dir: str | Path,
        text_column: str = "text",
    ):
        super().__init__()
        self.files, self.tokenizer_name, self.output_dir = list(map(str, files)), tokenizer_name, str(output_dir)
        self.text_column = text_column

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> Any:
        """Make the shards of a task.

        Raises:
            ValueError, OSError: as ``make_shard`` does.
        """
        yield from data or ()
        tokenizer = load_tokenizer(self.tokenizer_name, quiet=True)
        jobs = plan_corpus(check_files(self.files), tokenizer, Path(self.output_dir), self.text_column)
        for job in jobs[rank::world_size]:
            with self.track_time():
                make_shard(job, tokenizer)
            self.stat_update("shards")

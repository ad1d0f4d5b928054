"""Clean .jsonl files with datatrove, then encode them as a corpus: each stage in tasks, with logs, and only once.

    python examples/datatrove_corpus.py TEXT_FOLDER TOKENIZER OUTPUT_FOLDER

Started again, a stage runs only the tasks that have not been completed. For a cluster, put SlurmPipelineExecutor (with
time= and partition=) or RayPipelineExecutor in place of LocalPipelineExecutor.
"""

import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import exact_dedup as exact
from datatrove.pipeline.dedup import minhash
from datatrove.pipeline.filters import GopherQualityFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter
from datatrove.utils.hashing import HashConfig

from bert_tools.datatrove_blocks import CorpusShards


def content(document) -> str:
    return document.text


def main(text: str, tokenizer: str, output: str, executor=LocalPipelineExecutor, tasks: int = 4) -> None:
    same = exact.ExactDedupConfig(content, hash_config=HashConfig(hash_fc="sha1"))
    alike = minhash.MinhashConfig(hash_config=HashConfig(hash_fc="sha1"))
    folder = {name: f"{output}/{name}" for name in "hashes equal unique signs buckets alike clean corpus".split()}

    def stage(name: str, *steps, tasks: int = tasks) -> None:
        executor(pipeline=list(steps), tasks=tasks, logging_dir=f"{output}/logs/{name}").run()

    def write(name: str) -> JsonlWriter:  # unpacked, so that its files can be divided
        return JsonlWriter(folder[name], output_filename="${rank}.jsonl", compression=None)

    read, unique = JsonlReader(text), JsonlReader(folder["unique"])
    stage("hashes", read, exact.ExactDedupSignature(folder["hashes"], same))
    stage("equal", exact.ExactFindDedups(folder["hashes"], folder["equal"], same), tasks=1)
    stage("unique", read, exact.ExactDedupFilter(folder["equal"], same), write("unique"))
    stage("signs", unique, minhash.MinhashDedupSignature(folder["signs"], alike))
    stage("buckets", minhash.MinhashDedupBuckets(folder["signs"], folder["buckets"], config=alike), tasks=14)
    stage("alike", minhash.MinhashDedupCluster(folder["buckets"], folder["alike"], alike), tasks=1)
    stage("clean", unique, minhash.MinhashDedupFilter(folder["alike"]), GopherQualityFilter(), write("clean"))
    stage("corpus", CorpusShards(sorted(Path(folder["clean"]).glob("*.jsonl")), tokenizer, folder["corpus"]))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Build a corpus again and again, and end the build by SIGKILL at each line of its last part, one after the other.

tests/pretraining/test_build_corpus.py starts this program:

    python tests/programs/killed_builds.py FOLDER

FOLDER/text.txt is the text, FOLDER/tokenizer the folder of the tokenizer. It prints how many lines were tried.
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from transformers import AutoTokenizer

from bert_training.pretraining import build_corpus, corpus, parallel_encoding

corpus.COMMIT_SECONDS = 0.0


def build(folder: Path, tokenizer, target: str, fatal: int | None) -> tuple[int, int]:
    """Build the corpus, and die at line number ``fatal`` of ``finish``.

    Returns how many lines ``finish`` executed, and how many lines of documents were encoded.
    """
    passed, encoded, active = 0, 0, False

    def lines(frame, event, argument):
        nonlocal passed
        if event == "line":
            passed += 1
            if passed == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
        return lines

    def calls(frame, event, argument):
        inside = frame.f_code.co_filename == corpus.__file__
        return lines if active and inside else None

    def finish(self, *facts):
        nonlocal active
        active = True
        original(self, *facts)
        active = False

    def encoded_chunks(chunks, *rest):
        nonlocal encoded
        for size, ids in encode(chunks, *rest):
            encoded += size
            yield size, ids

    original, encode = corpus.CorpusWriter.finish, parallel_encoding.encoded_chunks
    corpus.CorpusWriter.finish, parallel_encoding.encoded_chunks = finish, encoded_chunks
    sys.settrace(calls)
    try:
        build_corpus.build_corpus([folder / "text.txt"], tokenizer, folder / target)
    finally:
        sys.settrace(None)
        corpus.CorpusWriter.finish, parallel_encoding.encoded_chunks = original, encode
    return passed, encoded


def main(folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    whole, encoded = build(folder, tokenizer, "whole", None)
    assert encoded > 0
    expected = {path.name: path.read_bytes() for path in (folder / "whole").iterdir()}
    for fatal in range(1, whole + 1):
        target = f"killed-{fatal}"
        child = os.fork()
        if not child:
            build(folder, tokenizer, target, fatal)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, fatal
        _, again = build(folder, tokenizer, target, None)
        assert again == 0, f"killed at line {fatal}: {again} lines of documents were encoded again"
        found = {path.name: path.read_bytes() for path in (folder / target).iterdir()}
        assert found == expected, f"killed at line {fatal}: the files differ from those of an uninterrupted build"
        assert not (folder / f"{target}.building").exists()
    print(whole)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

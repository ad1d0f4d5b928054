"""bert-repro corpus: tasks on any number of machines make the corpus that one process makes, or say what is wrong."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert_tools.corpus import main
from bert_training.files import locks
from bert_training.pretraining import ranges, sources
from bert_training.pretraining.corpus import CorpusWriter
from tests.helpers.repository import ROOT
from tests.helpers.small_corpora import make_tokenizer
from tests.helpers.texts_of_all_kinds import tokenizer_of_letters, write_all
from tokenization.bert_tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """A folder with files, their tokenizer, and the corpus that one process makes of them."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "text").mkdir()
    write_all(folder / "text")
    for name, tokenizer in (("tokenizer", tokenizer_of_letters()), ("other", make_tokenizer())):
        vocab = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
        build_tokenizer(vocab).save_pretrained(folder / name)
    main([*flags(folder), "--output_dir", str(folder / "whole")])
    return folder


@pytest.fixture
def text_flags(text) -> list[str]:
    return ["--tokenizer_name", str(text / "tokenizer"), "--num_workers", "1"]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(ranges, "LEAST_BYTES", 1500)


def flags(folder: Path, tokenizer: str = "tokenizer") -> list[str]:
    files = sorted(map(str, (folder / "text").iterdir()))
    return ["--train_file", *files, "--tokenizer_name", str(folder / tokenizer), "--num_workers", "1"]


def task(folder: Path, target: Path, number: int, tasks: int = 3, tokenizer: str = "tokenizer") -> None:
    main([*flags(folder, tokenizer), "--output_dir", str(target), "--tasks", str(tasks), "--task", str(number)])


def join(folder: Path, target: Path) -> None:
    main([*flags(folder), "--output_dir", str(target), "--join"])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("tasks", [1, 3, 64])
def test_tasks_in_any_order_make_the_corpus_of_one_process(text, tmp_path, tasks, capsys):
    order = list(range(tasks))
    random.Random(tasks).shuffle(order)
    for number in order:
        task(text, tmp_path / "c", number, tasks)
    join(text, tmp_path / "c")
    assert contents(tmp_path / "c") == contents(text / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert "c.txt.xz is packed, so one process reads it from its beginning" in capsys.readouterr().out
    task(text, tmp_path / "c", 0, tasks)  # a task and a join that are started again
    join(text, tmp_path / "c")
    assert "is finished already" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_corpus_below_its_own_text_is_refused(text):
    with pytest.raises(ValueError, match=r"--output_dir .*c lies within .*, where all files are read as text"):
        main([*flags(text), "--train_file", str(text), "--output_dir", str(text / "c")])


def test_a_task_that_is_started_again_makes_only_what_is_missing(text, tmp_path):
    for number in (0, 2):
        task(text, tmp_path / "c", number)
    shards = tmp_path / "c.shards"
    with pytest.raises(ValueError, match=r"c\.shards: \d+ of \d+ shards are missing \(1, 4, 7.*task S modulo N"):
        join(text, tmp_path / "c")
    before = {path.name: (path.stat().st_ino, path.read_bytes()) for path in shards.glob("shard-*")}
    assert len(before) > 10
    main([*flags(text), "--output_dir", str(tmp_path / "c"), "--tasks", "3", "--task", "1"])
    after = {path.name: (path.stat().st_ino, path.read_bytes()) for path in shards.glob("shard-*")}
    assert {name: after[name] for name in before} == before
    assert {int(name[6:11]) % 3 for name in set(after) - set(before)} == {1}
    main([*flags(text), "--output_dir", str(tmp_path / "c")])  # the command without a task finds all of them, too
    assert contents(tmp_path / "c") == contents(text / "whole")


def made(text: Path, target: Path) -> list[Path]:
    for number in range(3):
        task(text, target, number)
    return sorted(target.with_name(f"{target.name}.shards").glob("shard-*"))


def test_wrong_shards_are_named(text, tmp_path):
    shards = made(text, tmp_path / "c")
    whole = contents(shards[0].parent)

    def refused(message: str) -> None:
        with pytest.raises(ValueError, match=message):
            join(text, tmp_path / "c")
        assert not (tmp_path / "c").exists()
        for name, content in whole.items():
            (shards[0].parent / name).write_bytes(content)

    shutil.copy(shards[3], shards[4])
    refused(r"shard-00004\.bin: .* differs in: number")
    shards[5].unlink()
    refused(r"1 of \d+ shards are missing \(5\)")
    damaged = bytearray(shards[6].read_bytes())
    damaged[60] ^= 1  # in the ids
    shards[6].write_bytes(damaged)
    refused(r"shard-00006\.bin: expected a whole shard, got a damaged file; delete it")
    shards[7].write_bytes(shards[7].read_bytes()[:-1])
    refused(r"shard-00007\.bin: expected a whole shard, got a damaged file")
    shards[8].write_bytes(b"")
    refused(r"shard-00008\.bin: expected a whole shard, got a damaged file")
    (shards[0].parent / "source-00002.json").write_text("{}")
    refused(r"source-00002\.json: missing or damaged, so that c\.txt\.xz has no SHA-256")
    join(text, tmp_path / "c")
    assert contents(tmp_path / "c") == contents(text / "whole")


def test_shards_of_two_tokenizers_or_texts_are_not_mixed(text, tmp_path):
    task(text, tmp_path / "c", 0)
    before = contents(tmp_path / "c.shards")
    differs = r"shard-00000\.bin: it is a shard of another corpus \(it differs in: {}"
    with pytest.raises(ValueError, match=differs.format("text_tokenizer_sha256, tokenizer_sha256")):
        task(text, tmp_path / "c", 1, tokenizer="other")
    with pytest.raises(ValueError, match=differs.format("text_tokenizer_sha256, tokenizer_sha256")):
        main([*flags(text, "other"), "--output_dir", str(tmp_path / "c")])
    less = [flag for flag in flags(text) if not flag.endswith("a.txt")]
    with pytest.raises(ValueError, match=differs.format("files")):
        main([*less, "--output_dir", str(tmp_path / "c"), "--tasks", "3", "--task", "1"])
    assert contents(tmp_path / "c.shards") == before


@pytest.mark.parametrize("keeps_time", [False, True])
def test_a_file_that_changes_between_two_tasks_is_named(text, tmp_path, keeps_time):
    """Also if its size and its time of change stay the same, as with a clock that jumps."""
    shutil.copytree(text, tmp_path / "own")
    shards = made(tmp_path / "own", tmp_path / "c")
    file, found = tmp_path / "own" / "text" / "a.txt", contents(shards[0].parent)
    time = file.stat()
    content = file.read_bytes()
    file.write_bytes(content.replace(b"bird", b"dogs"))
    if keeps_time:
        os.utime(file, ns=(time.st_atime_ns, time.st_mtime_ns))
    task(tmp_path / "own", tmp_path / "c", 0)
    with pytest.raises(ValueError, match=r"shard-0000\d\.bin: .*a\.txt was changed between two tasks"):
        join(tmp_path / "own", tmp_path / "c")
    file.write_bytes(content)
    task(tmp_path / "own", tmp_path / "c", 0)
    assert contents(shards[0].parent) == found
    join(tmp_path / "own", tmp_path / "c")
    assert contents(tmp_path / "c") == contents(text / "whole")


PROSE = "".join(f"The dog sat by river {number} .\n" for number in range(200))
ROWS = "".join(json.dumps({"text": line}) + "\n" for line in PROSE.splitlines())
HEADINGS = ["", "= Valkyria =", "", "= = Gameplay = =", ""]
AS_ROWS = "".join(json.dumps({"text": line}) + "\n" for line in HEADINGS)


@pytest.mark.parametrize("keeps_time", [False, True])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("name", "content", "head"),
    [
        ("a.txt", PROSE, "\n".join(HEADINGS) + "\n"),  # becomes wikitext, the headings of which are left out
        ("a.txt", "= Old =\na bird\n= = New = =\n" + PROSE, "\n= O =\n\n= = N = =\n\n"),  # wikitext of another kind
        ("a.jsonl", ROWS, AS_ROWS),  # rows of wikitext, which the first shard reads alone
        ("wiki_00", ROWS, "[\n"),  # no longer rows, but lines
    ],
)
def test_a_file_that_is_read_otherwise_between_two_tasks_is_named(
    text_flags, name, content, head, first, keeps_time, tmp_path, monkeypatch
):
    """The beginning of a file decides how all of its shards are read, also those that do not have it."""
    monkeypatch.setattr(sources, "BLOCK", 128)
    file, end = tmp_path / name, 1 + content.index("\n", len(head) - 1)
    changed = f"{head[:-1]}{' ' * (end - len(head))}\n{content[end:]}"
    file.write_text(content)
    command = ["--train_file", str(file), *text_flags, "--output_dir"]
    main([*command, str(tmp_path / "whole")])
    time = file.stat()
    for number in (first, 1 - first):
        file.write_text(content if number == 0 else changed)  # the beginning is in the shard of task 0
        if keeps_time:
            os.utime(file, ns=(time.st_atime_ns, time.st_mtime_ns))
        main([*command, str(tmp_path / "c"), "--tasks", "2", "--task", str(number)])
    with pytest.raises(ValueError, match=rf"shard-00001\.bin: .*{name} was changed between two tasks"):
        main([*command, str(tmp_path / "c"), "--join"])
    file.write_text(content)
    main([*command, str(tmp_path / "c"), "--tasks", "2", "--task", "1"])
    main([*command, str(tmp_path / "c"), "--join"])
    assert contents(tmp_path / "c") == contents(tmp_path / "whole")


def test_a_full_disk_in_the_join_loses_nothing(text, tmp_path, monkeypatch):
    shards = made(text, tmp_path / "c")
    append, appended = CorpusWriter.append, []

    def full(self, *arguments, **more):
        appended.append(arguments)
        if len(appended) > 5:
            raise OSError(28, os.strerror(28))
        append(self, *arguments, **more)

    before = contents(shards[0].parent)
    with monkeypatch.context() as patch:
        patch.setattr(CorpusWriter, "append", full)
        with pytest.raises(OSError, match=r"c could not be written \(No space left"):
            join(text, tmp_path / "c")
    assert contents(shards[0].parent) == before
    join(text, tmp_path / "c")
    assert contents(tmp_path / "c") == contents(text / "whole")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("--tasks 3 --task 3", "--task 3: the tasks of --tasks 3 are numbered from 0 to 2 (in Slurm, --array=0-2)"),
        ("--tasks 3 --task -1", "--task -1: the tasks of --tasks 3 are numbered from 0 to 2"),
        ("--task 0", "--tasks and --task belong together"),
        ("--tasks 3", "--tasks and --task belong together"),
        ("--join --tasks 3 --task 0", "--join belongs to no task"),
    ],
)
def test_flags_that_cannot_be_are_refused(text, tmp_path, capsys, wrong, message):
    with pytest.raises(SystemExit):
        main([*flags(text), "--output_dir", str(tmp_path / "c"), *wrong.split()])
    assert message in capsys.readouterr().err


def test_a_task_that_is_started_twice_at_once_is_refused(text, tmp_path, monkeypatch):
    import fcntl

    (tmp_path / "c.shards").mkdir()
    with open(tmp_path / "c.shards" / ".task-1-of-3.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as in another process
        with pytest.raises(ValueError, match="another process is at work on task 1 of 3"):
            task(text, tmp_path / "c", 1)
    assert not locks._held


def test_a_finished_corpus_of_other_files_is_refused(text, tmp_path):
    shutil.copytree(text / "whole", tmp_path / "c")
    less = [flag for flag in flags(text) if not flag.endswith("a.txt")]
    for more, message in ((["--tasks", "3", "--task", "0"], "of other files"), (["--join"], "made from other input")):
        with pytest.raises(ValueError, match=f"holds (a|the) corpus .*{message}|holds a corpus {message}"):
            main([*less, "--output_dir", str(tmp_path / "c"), *more])


def test_a_join_compares_a_finished_corpus_with_the_files(text, tmp_path):
    """With names and sizes that are the same, only their content and the flags differ."""
    copy = Path(shutil.copytree(text, tmp_path / "text"))
    join(copy, copy / "whole")
    (path,) = (path for path in (copy / "text").iterdir() if path.name == "a.txt")
    path.write_bytes(path.read_bytes().replace(b"a", b"b"))
    with pytest.raises(ValueError, match=r"made from other input \(it differs in: sources\)"):
        join(copy, copy / "whole")
    more = ["--output_dir", str(text / "whole"), "--text_column", "body"]
    with pytest.raises(ValueError, match=r"differs in: .*text_column"):
        main([*flags(text), *more, "--join"])
    with pytest.raises(ValueError, match="holds the corpus of the column `text` of other files"):
        main([*flags(text), *more, "--tasks", "2", "--task", "0"])


def test_errors_name_the_line_of_the_whole_file(text, tmp_path):
    lines = [f"The dog number {number}." for number in range(1000)]
    for name, bad, message in (
        ("a.txt", b"not \xff", r"a\.txt:901: expected UTF-8 text, got byte 0xff at column 5"),
        ("a.jsonl", b'{"text": 1}', r"a\.jsonl:901: expected a row with a text in the field `text`, got int"),
    ):
        rows = [line if name == "a.txt" else json.dumps({"text": line}) for line in lines]
        content = [*(row.encode() for row in rows[:900]), bad, *(row.encode() for row in rows[900:])]
        (tmp_path / name).write_bytes(b"\n".join(content))
        given = ["--train_file", str(tmp_path / name), "--tokenizer_name", str(text / "tokenizer")]
        with pytest.raises(ValueError, match=message):
            main([*given, "--output_dir", str(tmp_path / "c"), "--num_workers", "1"])
        shutil.rmtree(tmp_path / "c.shards")


@pytest.mark.slow
def test_two_machines_with_different_clocks(text, tmp_path):
    """Two processes that see other times and other paths of the same files, as machines with a common disk do."""
    (tmp_path / "mounted").symlink_to(text / "text")
    program = (
        "import sys, time; shift = float(sys.argv[1]); now = time.time; time.time = lambda: now() + shift\n"
        "from bert_training.pretraining import ranges; ranges.LEAST_BYTES = 1500\n"
        "from bert_tools.corpus import main; main(sys.argv[2:])"
    )
    machines = []
    for number, (shift, folder) in enumerate(((-86400.0 * 365, text / "text"), (86400.0 * 365, tmp_path / "mounted"))):
        files = [str(folder / path.name) for path in sorted((text / "text").iterdir())]
        given = ["--train_file", *files, "--tokenizer_name", str(text / "tokenizer"), "--num_workers", "2"]
        given += ["--output_dir", str(tmp_path / "c"), "--tasks", "2", "--task", str(number)]
        machines.append(subprocess.Popen([sys.executable, "-c", program, str(shift), *given], cwd=ROOT))
    assert [machine.wait() for machine in machines] == [0, 0]
    for path in (tmp_path / "c.shards").iterdir():
        os.utime(path, (1e9, 1e9))
    join(text, tmp_path / "c")
    assert contents(tmp_path / "c") == contents(text / "whole")


def test_the_current_folder_is_not_replaced(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        task(text, Path("."), 0)
    assert "--output_dir is the current folder" in capsys.readouterr().err and not list(tmp_path.iterdir())

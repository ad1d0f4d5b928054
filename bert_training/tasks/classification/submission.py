"""Submissions to the GLUE server: zip eleven files of predictions, and check them as the server would.

    bert-repro submission zip runs/cola runs/sst2 ... runs/ax --wnli_majority --output submission.zip
    bert-repro submission check submission.zip

``run_glue.py --do_predict`` writes the files. From a folder with many runs (--seeds), those of the
best run are used. A file begins with ``index<tab>prediction`` and then has one row per test example, in order:

    CoLA.tsv     index  prediction        AX.tsv     index  prediction
                 0      1                            0      entailment
                 1      0                            1      contradiction
"""

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_training.files.atomic import whole_file
from bert_training.files.hashing import is_plain_name
from bert_training.inputs.flags.parsing import command_parser
from bert_training.record import read_summary
from bert_training.tasks.classification.glue import GLUE_TASKS, Task, server_name
from bert_training.tasks.classification.labels import NUMBER
from tokenization.errors import UserError

# Rows of the official test files (Wang et al. 2018, Table 1; the archives of gluebenchmark.com).
TEST_ROWS = {
    "CoLA.tsv": 1063,
    "SST-2.tsv": 1821,
    "MRPC.tsv": 1725,
    "STS-B.tsv": 1379,
    "QQP.tsv": 390_965,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "QNLI.tsv": 5463,
    "RTE.tsv": 3000,
    "WNLI.tsv": 146,
    "AX.tsv": 1104,
}
HEADER = "index\tprediction"
WNLI_MAJORITY = "0"
"""not_entailment. The paper submitted the majority class of WNLI (appendix B.1)."""


def _tasks() -> dict[str, Task]:
    named = {}
    for task in GLUE_TASKS.values():
        for split in task.files:
            named[server_name(task, split)] = task
    return {name: named[name] for name in TEST_ROWS}


TASKS = _tasks()


def problem(name: str, lines: Iterable[str], where: str) -> str | None:
    """The first problem of the file ``name``, as "where:line: ..."; None if it may be submitted."""
    task, rows, line = TASKS[name], TEST_ROWS[name], 0
    for line, text in enumerate(lines, 1):
        here, text = f"{where}:{line}", text.removesuffix("\n")
        if line == 1:
            if text != HEADER:
                return f"{here}: expected the header {HEADER!r}, got {text[:60]!r}"
            continue
        index, tab, prediction = text.partition("\t")
        if not tab or index != str(line - 2):
            return f"{here}: expected the index {line - 2} and a prediction, tab-separated, got {text[:60]!r}"
        if line - 1 > rows:
            return f"{here}: expected {rows:,} predictions, got more"
        if not _fits(task, prediction):
            return f"{here}: expected {_wanted(task)}, got {prediction[:60]!r}"
    if line - 1 < rows:
        return f"{where}: expected {rows:,} predictions, got {max(0, line - 1):,}"
    return None


def _fits(task: Task, prediction: str) -> bool:
    if task.labels is None:
        low, high = task.score_range
        return bool(NUMBER.fullmatch(prediction)) and low <= float(prediction) <= high
    return prediction in (task.spellings or task.labels)


def _wanted(task: Task) -> str:
    if task.labels is None:
        low, high = task.score_range
        return f"a score from {low} to {high}"
    return " or ".join(task.spellings or task.labels)


def problem_of_file(path: Path) -> str | None:
    """The first problem of a file, which must have the name that the server expects; None if it may be submitted."""
    return _problem_of_bytes(path.name, path.read_bytes(), str(path))


def check(path: str | Path) -> dict[str, str | None]:
    """The first problem, or None, of each of the eleven files and of anything else in the zip.

    Raises:
        ValueError: the file is not a zip file, or it is damaged.
    """
    problems: dict[str, str | None] = {}
    names, contents = _entries(Path(path))
    for name in dict.fromkeys([*TEST_ROWS, *names]):
        if name not in TEST_ROWS:
            problems[name] = f"{path}: unexpected entry {name!r:.80}; expected {', '.join(TEST_ROWS)} at the top level"
        elif names.count(name) != 1:
            problems[name] = f"{path}: expected {name} once, found it {names.count(name)} times"
        else:
            problems[name] = _problem_of_bytes(name, contents[name], f"{path}/{name}")
    return problems


def _entries(path: Path) -> tuple[list[str], dict[str, bytes]]:
    """The names of all entries of a zip file, and the contents of those that the server expects."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        return names, {name: archive.read(name) for name in dict.fromkeys(names) if name in TEST_ROWS}


def _problem_of_bytes(name: str, content: bytes, where: str) -> str | None:
    try:
        return problem(name, io.StringIO(content.decode("utf-8"), newline="\n"), where)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return f"{where}:{line}: expected UTF-8 text, got byte 0x{content[error.start]:02x}"


def gather(folders: Iterable[str | Path]) -> dict[str, Path]:
    """The files with predictions in ``folders``, by the names that the server expects.

    Raises:
        ValueError: a folder has no such file, two folders have the same file, or a file has changed since the finished
            run in its folder wrote it.
    """
    files: dict[str, Path] = {}
    for folder in map(Path, folders):
        if (folder / "summary.json").is_file():
            name = read_summary(folder).get("best", {}).get("folder")
            folder = folder / name if is_plain_name(name) else folder
        here = [folder / name for name in TEST_ROWS if (folder / name).is_file()]
        twice = [path.name for path in here if path.name in files]
        if not here or twice:
            raise UserError(
                f"{folder}: expected files such as CoLA.tsv, which run_glue.py --do_predict makes, each in one of the "
                f"folders only; got {', '.join(twice) or 'none'}{' twice' if twice else ''}; give the folders of runs"
            )
        for path in here:
            files[path.name] = path
    return files


def write_zip(folders: Iterable[str | Path], output: str | Path, wnli_majority: bool = False) -> list[str]:
    """Zip the predictions found in the folders of runs; return the names of the files in the zip.

    Args:
        wnli_majority: predict WNLI's majority class, as in the paper, and ignore a run on WNLI.

    Raises:
        ValueError: a file is missing, exists twice or would be refused. The message names every such file, and nothing
            is written.
    """
    contents = {name: path.read_bytes() for name, path in gather(folders).items()}
    if wnli_majority:
        rows = "".join(f"{index}\t{WNLI_MAJORITY}\n" for index in range(TEST_ROWS["WNLI.tsv"]))
        contents["WNLI.tsv"] = f"{HEADER}\n{rows}".encode()
    if problems := [*_problems(contents)]:
        raise UserError("\n".join(["nothing written, the server would refuse this:", *problems]))
    with whole_file(Path(output)) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in TEST_ROWS:
            # With a fixed date, the same predictions give the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), contents[name], zipfile.ZIP_DEFLATED)
    return [*TEST_ROWS]


def _problems(contents: dict[str, bytes]) -> Iterator[str]:
    for name in TEST_ROWS:
        if name not in contents:
            hint = "; --wnli_majority predicts the majority class, as the paper did" if name == "WNLI.tsv" else ""
            yield f"{name}: missing{hint}"
        elif wrong := _problem_of_bytes(name, contents[name], name):
            yield wrong


def main(argv: list[str] | None = None) -> None:
    """Make or check a zip. Raises ValueError if the server would refuse the files."""
    parser = command_parser("submission", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("zip", help="collect the predictions of finished runs")
    command.add_argument("run_dir", nargs="+", help="the output folder of a run_glue.py --do_predict")
    command.add_argument("--output", required=True, help="the zip to write")
    command.add_argument("--wnli_majority", action="store_true", help="predict WNLI's majority class, as the paper did")
    command = commands.add_parser("check", help="check offline whether the server would accept a zip")
    command.add_argument("file", help="a zip of predictions")
    args = parser.parse_args(argv)
    if args.command == "zip":
        print(f"{args.output}: {', '.join(write_zip(args.run_dir, args.output, args.wnli_majority))}")
        return
    problems = check(args.file)
    for name in (name for name in problems if not problems[name]):
        print(f"{name}: {TEST_ROWS[name]:,} predictions, well-formed")
    if wrong := [text for text in problems.values() if text]:
        raise UserError("\n".join(["the server would refuse this:", *wrong]))

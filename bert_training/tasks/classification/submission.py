"""Submissions to the GLUE server: zip eleven files of predictions.

    bert-repro submission runs/cola runs/sst2 ... runs/ax --wnli_majority --output submission.zip

``run_glue.py --do_predict`` writes the files. From a folder with many runs (--seeds), those of the
best run are used. A file begins with ``index<tab>prediction`` and then has one row per test example, in order:

    CoLA.tsv     index  prediction        AX.tsv     index  prediction
                 0      1                            0      entailment
                 1      0                            1      contradiction
"""

import zipfile
from collections.abc import Iterable
from pathlib import Path

from bert_training.files.atomic import whole_file
from bert_training.files.hashing import is_plain_name
from bert_training.inputs.flags.parsing import command_parser
from bert_training.record import SUMMARY, read_summary
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


def problem(name: str, text: str) -> str | None:
    """Why the server would refuse a file with this text: it is that of other rows; None if it may be submitted."""
    header, *rows = text.splitlines()[: TEST_ROWS[name] + 2] or [""]
    if header != HEADER or len(rows) != TEST_ROWS[name]:
        return f"{name}: expected {HEADER!r} and {TEST_ROWS[name]:,} predictions, got {header[:60]!r} and {len(rows):,}"
    return None


def gather(folders: Iterable[str | Path]) -> dict[str, Path]:
    """The files with predictions in ``folders``, by the names that the server expects.

    Raises:
        UserError: a folder has no such file, or two folders have the same file.
    """
    files: dict[str, Path] = {}
    for folder in map(Path, folders):
        if (folder / SUMMARY).is_file():
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
    contents = {name: path.read_text(encoding="utf-8") for name, path in gather(folders).items()}
    if wnli_majority:
        rows = "".join(f"{index}\t{WNLI_MAJORITY}\n" for index in range(TEST_ROWS["WNLI.tsv"]))
        contents["WNLI.tsv"] = f"{HEADER}\n{rows}"
    problems = [problem(name, contents[name]) if name in contents else f"{name}: missing" for name in TEST_ROWS]
    if told := [text for text in problems if text]:
        raise UserError("\n".join(["nothing written, the server would refuse this:", *told]))
    with whole_file(Path(output)) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in TEST_ROWS:
            # With a fixed date, the same predictions give the same bytes.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), contents[name], zipfile.ZIP_DEFLATED)
    return [*TEST_ROWS]


def main(argv: list[str] | None = None) -> None:
    """Write the zip."""
    parser = command_parser("submission", __doc__)
    parser.add_argument("run_dir", nargs="+", help="the output folder of a run_glue.py --do_predict")
    parser.add_argument("--output", required=True, help="the zip to write")
    parser.add_argument("--wnli_majority", action="store_true", help="predict WNLI's majority class, as the paper did")
    args = parser.parse_args(argv)
    print(f"{args.output}: {', '.join(write_zip(args.run_dir, args.output, args.wnli_majority))}")

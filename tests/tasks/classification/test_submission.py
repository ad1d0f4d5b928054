"""The eleven files for the GLUE server are zipped, if they have the rows of its test data."""

import zipfile

import pytest

from bert_training.tasks.classification import submission
from tests.helpers.records import write_summary

# The spelling of the classes and the sizes of the test sets were copied by hand from the instructions of the server.
SPELLINGS = {
    "CoLA.tsv": (1063, ["0", "1"]),
    "SST-2.tsv": (1821, ["0", "1"]),
    "MRPC.tsv": (1725, ["0", "1"]),
    "STS-B.tsv": (1379, ["0.000", "5.000", "3.25", "4"]),
    "QQP.tsv": (390965, ["0", "1"]),
    "MNLI-m.tsv": (9796, ["entailment", "neutral", "contradiction"]),
    "MNLI-mm.tsv": (9847, ["entailment", "neutral", "contradiction"]),
    "QNLI.tsv": (5463, ["entailment", "not_entailment"]),
    "RTE.tsv": (3000, ["entailment", "not_entailment"]),
    "WNLI.tsv": (146, ["0", "1"]),
    "AX.tsv": (1104, ["entailment", "neutral", "contradiction"]),
}


def content(name: str) -> str:
    rows, labels = SPELLINGS[name]
    return "index\tprediction\n" + "".join(f"{i}\t{labels[i % len(labels)]}\n" for i in range(rows))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder for every task, with the files that --do_predict writes."""
    folder = tmp_path_factory.mktemp("runs")
    for name in SPELLINGS:
        run = folder / name.split(".")[0].removesuffix("-mm").removesuffix("-m")
        run.mkdir(exist_ok=True)
        (run / name).write_text(content(name), encoding="utf-8")
    return folder


def test_all_eleven_are_zipped(tmp_path, runs):
    output = tmp_path / "submission.zip"
    submission.main([*(str(run) for run in sorted(runs.iterdir())), f"--output={output}"])
    with zipfile.ZipFile(output) as archive:
        assert archive.namelist() == list(SPELLINGS)
        assert all(archive.read(name).decode() == content(name) for name in SPELLINGS)
    again = tmp_path / "again.zip"
    submission.write_zip(sorted(runs.iterdir(), reverse=True), again)
    assert again.read_bytes() == output.read_bytes()


def test_the_majority_class_replaces_or_stands_in_for_a_run_on_wnli(tmp_path, runs):
    output = tmp_path / "submission.zip"
    others = [run for run in runs.iterdir() if run.name != "WNLI"]
    with pytest.raises(ValueError, match=r"WNLI.tsv: missing"):
        submission.write_zip(others, output)
    assert not output.exists()
    for folders in (others, [*runs.iterdir()]):
        submission.write_zip(folders, output, wnli_majority=True)
        with zipfile.ZipFile(output) as archive:
            assert archive.read("WNLI.tsv").decode() == "index\tprediction\n" + "".join(f"{i}\t0\n" for i in range(146))


def test_the_best_run_of_a_series_is_taken(tmp_path):
    (tmp_path / "seed-43").mkdir()
    (tmp_path / "seed-43" / "RTE.tsv").write_text(content("RTE.tsv"), encoding="utf-8")
    write_summary(tmp_path, runs={}, best={"folder": "seed-43"})
    assert submission.gather([tmp_path]) == {"RTE.tsv": tmp_path / "seed-43" / "RTE.tsv"}


def test_folders_without_predictions_or_with_the_same_are_refused(tmp_path, runs):
    with pytest.raises(
        ValueError, match=r"expected files such as CoLA.tsv, which run_glue.py --do_predict makes, .*; got none"
    ):
        submission.gather([tmp_path])
    with pytest.raises(ValueError, match=r"each in one of the folders only; got RTE.tsv twice; give"):
        submission.gather([runs / "RTE", runs / "RTE"])


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (("index\tprediction\n", ""), "got '0\\t0' and 1,062"),
        (("\n1062\t0", ""), "got 'index\\tprediction' and 1,062"),
        (("\n1062\t0", "\n1062\t0\n1063\t0"), "got 'index\\tprediction' and 1,064"),
    ],
)
def test_predictions_for_other_rows_are_refused(change, got):
    text = content("CoLA.tsv")
    assert submission.problem("CoLA.tsv", text) is None
    assert submission.problem("CoLA.tsv", text.replace(*change, 1)).endswith(got)
    assert submission.problem("RTE.tsv", "").endswith("and 3,000 predictions, got '' and 0")

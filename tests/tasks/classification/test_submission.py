"""The eleven files for the GLUE server: which of them may be zipped, and what the offline check finds."""

import io
import sys
import zipfile

import pytest

from bert_training.engine.errors import report_errors
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


def test_all_eleven_are_zipped_and_pass_the_check(tmp_path, runs, capsys):
    output = tmp_path / "submission.zip"
    submission.main(["zip", *(str(run) for run in sorted(runs.iterdir())), f"--output={output}"])
    with zipfile.ZipFile(output) as archive:
        assert archive.namelist() == list(SPELLINGS)
        assert all(archive.read(name).decode() == content(name) for name in SPELLINGS)
    assert set(submission.check(output).values()) == {None}
    submission.main(["check", str(output)])
    assert "QQP.tsv: 390,965 predictions, well-formed" in capsys.readouterr().out
    again = tmp_path / "again.zip"
    submission.write_zip(sorted(runs.iterdir(), reverse=True), again)
    assert again.read_bytes() == output.read_bytes()


def test_the_majority_class_replaces_or_stands_in_for_a_run_on_wnli(tmp_path, runs):
    output = tmp_path / "submission.zip"
    others = [run for run in runs.iterdir() if run.name != "WNLI"]
    with pytest.raises(ValueError, match=r"WNLI.tsv: missing; --wnli_majority predicts the majority class"):
        submission.write_zip(others, output)
    assert not output.exists()
    for folders in (others, [*runs.iterdir()]):
        submission.write_zip(folders, output, wnli_majority=True)
        with zipfile.ZipFile(output) as archive:
            assert archive.read("WNLI.tsv").decode() == "index\tprediction\n" + "".join(f"{i}\t0\n" for i in range(146))
    assert set(submission.check(output).values()) == {None}


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
    ("name", "change", "expected"),
    [
        ("CoLA.tsv", ("index\tprediction\n", ""), "CoLA.tsv:1: expected the header 'index\\tprediction', got '0\\t0'"),
        ("CoLA.tsv", ("index\tprediction", "id\tprediction"), ":1: expected the header"),
        ("CoLA.tsv", ("index\tprediction\n", "\ufeffindex\tprediction\n"), ":1: expected the header"),
        ("CoLA.tsv", ("\n1\t1", ""), ":3: expected the index 1 and a prediction, tab-separated, got '2\\t0'"),
        ("CoLA.tsv", ("\n1\t1", "\n1,1"), ":3: expected the index 1 and a prediction"),
        ("CoLA.tsv", ("\n1\t1", "\n1\t1\r"), ":3: expected 0 or 1, got '1\\r'"),
        ("CoLA.tsv", ("\n1062\t0", ""), "CoLA.tsv: expected 1,063 predictions, got 1,062"),
        ("CoLA.tsv", ("\n1062\t0", "\n1062\t0\n1063\t0"), ":1065: expected 1,063 predictions, got more"),
        ("CoLA.tsv", ("\n5\t1", "\n5\tacceptable"), ":7: expected 0 or 1, got 'acceptable'"),
        ("QNLI.tsv", ("\n0\tentailment", "\n0\t0"), ":2: expected entailment or not_entailment, got '0'"),
        ("AX.tsv", ("\n1\tneutral", "\n1\tNeutral"), ":3: expected entailment or neutral or contradiction"),
        ("STS-B.tsv", ("\n0\t0.000", "\n0\t-0.001"), ":2: expected a score from 0 to 5, got '-0.001'"),
        ("STS-B.tsv", ("\n1\t5.000", "\n1\t5.001"), ":3: expected a score from 0 to 5, got '5.001'"),
        ("STS-B.tsv", ("\n1\t5.000", "\n1\tnan"), ":3: expected a score from 0 to 5, got 'nan'"),
    ],
)
def test_what_the_server_would_refuse_is_refused(name, change, expected):
    text = content(name)
    assert change[0] in text
    assert expected in submission.problem(name, io.StringIO(text.replace(*change, 1), newline="\n"), name)
    assert submission.problem(name, io.StringIO(text, newline="\n"), name) is None


def test_empty_and_broken_files_are_refused(tmp_path):
    path = tmp_path / "RTE.tsv"
    path.write_bytes(b"")
    assert submission.problem_of_file(path) == f"{path}: expected 3,000 predictions, got 0"
    path.write_bytes(b"index\tprediction\n0\tentail\xffment\n")
    assert submission.problem_of_file(path) == f"{path}:2: expected UTF-8 text, got byte 0xff"


def test_the_check_names_every_problem_of_a_zip_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in list(SPELLINGS)[1:]:
            archive.writestr(f"folder/{name}" if name == "RTE.tsv" else name, content(name))
        archive.writestr("WNLI.tsv.bak", "")
    monkeypatch.setattr(sys, "argv", ["submission.py"])
    assert report_errors(lambda: submission.main(["check", str(path)])) == 2
    out, error = capsys.readouterr()
    assert f"{path}: expected CoLA.tsv once, found it 0 times" in error
    assert f"{path}: unexpected entry 'folder/RTE.tsv'" in error
    assert f"{path}: unexpected entry 'WNLI.tsv.bak'" in error
    assert len(out.splitlines()) == 9

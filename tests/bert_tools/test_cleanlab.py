"""bert-repro doubts: planted wrong labels are found, and cleanlab's own functions for tasks judge the same."""

import csv
import json

import numpy as np
import pytest

from bert_tools import doubts
from tests.helpers.ecosystem import deprecations, needed

needed("cleanlab")
pytestmark = [pytest.mark.slow, *deprecations]
NAMES = ("film", "book", "song")


def planted(rows: int = 300, wrong: int = 15) -> tuple[np.ndarray, np.ndarray, set[int]]:
    """Given labels, the probabilities of a good model, and the rows whose labels are wrong."""
    random = np.random.default_rng(0)
    true = random.integers(0, 3, rows)
    shares = random.dirichlet(np.ones(3), rows) + 4 * np.eye(3)[true] * random.uniform(0.4, 1, (rows, 1))
    chosen = random.choice(rows, wrong, replace=False)
    given = true.copy()
    given[chosen] = (true[chosen] + 1) % 3
    return given, shares / shares.sum(1, keepdims=True), {*chosen.tolist()}


def judged(given, shares) -> list[doubts.Judged]:
    pairs = zip(given, shares.tolist())
    return [doubts.Judged(str(n), "", NAMES[label], dict(zip(NAMES, row))) for n, (label, row) in enumerate(pairs)]


@pytest.mark.tried(
    "cleanlab", "`bert-repro doubts`: planted wrong labels stand first, also of several labels and of words"
)
def test_planted_errors_are_found_in_each_kind_of_task(tmp_path, capsys):
    from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
    from cleanlab.token_classification.filter import find_label_issues as find_token_issues

    given, shares, wrong = planted()
    found = doubts.doubts(judged(given, shares))
    first = {int(one.judged.place) for one in found[: len(wrong)]}
    assert len(first & wrong) >= len(wrong) - 1
    assert all(one.likely != one.judged.given for one in found)

    # Words: sentences of three words.
    words = doubts.doubts(judged(given, shares))
    of_cleanlab = find_token_issues(given.reshape(-1, 3).tolist(), [*shares.reshape(-1, 3, 3)], n_jobs=1)
    assert {divmod(int(one.judged.place), 3) for one in words if one.probable} == set(of_cleanlab)

    # Several labels: each is a question of its own.
    several = [[label] if row % 2 else sorted({label, 2}) for row, label in enumerate(given.tolist())]
    expected = find_multilabel_issues_per_class(several, shares, n_jobs=1)
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [
        json.dumps({"id": str(n), "probabilities": dict(zip(NAMES, row))}) for n, row in enumerate(shares.tolist())
    ]
    (folder / "predictions_validation.jsonl").write_text("\n".join(lines) + "\n")
    true = [json.dumps({"true": [NAMES[label] for label in labels]}) for labels in several]
    (folder / "scored_validation.jsonl").write_text("\n".join(true) + "\n")
    for column, rows in zip(np.asarray(expected).T, doubts.judged_labels(folder), strict=True):
        probable = {int(one.judged.place) for one in doubts.doubts(rows) if one.probable}
        assert probable == {*np.flatnonzero(column).tolist()}

    doubts.main([str(folder)])
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    assert len(rows) == int(np.asarray(expected).sum()) and rows[0]["given"].removeprefix("not ") in NAMES

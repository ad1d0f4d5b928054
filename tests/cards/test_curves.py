"""The picture of the training curves: what is read from the records, and that the picture is readable."""

import importlib.util
import itertools
import json
import math

import pytest

from bert_training.cards.curves import curve_of, draw_curves, main, panels_of, running_mean
from bert_training.cards.metrics import held_out_files, metrics_of

PRETRAINING = [
    {"event": "corpus", "unigram_entropy": 6.4},
    *(
        {"event": "train", "step": s, "loss": 9.0 - s / 50, "mlm_loss": 8.3 - s / 50, "nsp_loss": 0.7, "grad_norm": 1.0}
        for s in range(1, 101)
    ),
    *(
        {"event": "eval", "step": s, "eval_mlm_loss": 7.0, "eval_mlm_accuracy": 0.1, "eval_nsp_accuracy": s / 200}
        for s in (50, 100)
    ),
]
SQUAD = [
    {"event": "train", "step": 1, "loss": 4.5},
    {"event": "eval", "step": 9, "eval_exact_match": 12.5, "eval_f1": 20.0, "eval_total": 80},
]
FILES = [
    {"event": "eval", "step": s, "eval_law_mlm_loss": 6.0 - s / 100, "eval_wiki_mlm_loss": 5.0 + s / 100}
    for s in (0, 100)
]
SCORES, OF_FILES = "Held-out scores, per cent", "Loss of each held-out file, nats"
STSB = [{"event": "eval", "step": 9, "eval_pearson": -0.25, "eval_spearmanr": 0.5}]


def write(folder, events):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_of_a_step_that_was_made_twice_the_last_record_counts():
    events = [
        {"event": "train", "step": s, "loss": v} for s, v in ((10, 3.0), (20, 2.0), (30, 9.0), (20, 1.5), (40, 1.0))
    ]
    assert curve_of(events, "train", "loss") == ([10, 20, 30, 40], [3.0, 1.5, 9.0, 1.0])
    assert curve_of(events, "eval", "loss") == ([], [])


def test_scores_are_per_cent():
    assert panels_of(PRETRAINING)[SCORES] == {
        "masked pieces": ([50, 100], [10, 10]),
        "next sentence": ([50, 100], [25, 50]),
    }
    assert panels_of(SQUAD)[SCORES] == {"exact match": ([9], [12.5]), "F1": ([9], [20.0])}
    assert panels_of(STSB)[SCORES] == {"Pearson": ([9], [-25]), "Spearman": ([9], [50])}


def test_each_held_out_file_has_a_curve_of_its_loss():
    assert panels_of(FILES)[OF_FILES] == {"law": ([0, 100], [6.0, 5.0]), "wiki": ([0, 100], [5.0, 6.0])}
    assert OF_FILES not in panels_of(PRETRAINING) and held_out_files(FILES[0]) == ["law", "wiki"]
    rows = metrics_of(FILES[0])
    names = [rows[key].card_name for key in list(rows)[-2:]]
    assert names == ["Masked-piece loss, nats: law", "Masked-piece loss, nats: wiki"]


def test_the_running_mean_worked_by_hand():
    assert running_mean([4.0, 2.0, 6.0, 1.0], 2) == [4.0, 3.0, 4.0, 3.5]
    assert all(map(math.isclose, running_mean([1.0, 2.0, 3.0], 1), [1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    "events",
    [PRETRAINING, SQUAD[:1]],
    ids=["pretraining", "loss"],
)
def test_every_kind_of_run_has_a_picture(tmp_path, events):
    from matplotlib.image import imread

    path = draw_curves(write(tmp_path, events))
    assert path == tmp_path / "training_curves.png"
    height, width, _ = imread(path).shape
    assert height > 500 and width == (736 if events == SQUAD[:1] else 1350)
    assert 0.005 < (imread(path)[..., :3].min(-1) < 0.6).mean() < 0.5  # The picture is neither empty nor black.


def texts_and_lines(monkeypatch, folder):
    import bert_training.cards.curves

    made = []
    new_figure = bert_training.cards.curves.new_figure
    monkeypatch.setattr(
        bert_training.cards.curves,
        "new_figure",
        lambda *args, **more: made.append(new_figure(*args, **more)) or made[0],
    )
    draw_curves(folder)
    (_, axes), *_ = made
    return axes


def test_the_entropy_line_and_the_labels(monkeypatch, tmp_path):
    losses, right = texts_and_lines(monkeypatch, write(tmp_path, PRETRAINING))
    assert any(list(line.get_ydata()) == [6.4, 6.4] for line in losses.lines)
    assert {text.get_text().split()[0] for text in losses.texts} == {"training", "held", "unigram"}
    assert losses.lines[0].get_ydata()[0] == pytest.approx(8.28)  # This is the masked-LM loss.
    labels = {text.get_text() for text in right.texts}
    assert labels == {"masked pieces 10", "next sentence 50"}
    heights = sorted(text.xy[1] for text in right.texts)
    assert min(b - a for a, b in itertools.pairwise(heights)) > 2  # Labels do not overlap.


def test_without_matplotlib_there_is_no_picture_but_advice(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert draw_curves(write(tmp_path, SQUAD)) is None
    assert "pip install matplotlib" in capsys.readouterr().out and not list(tmp_path.glob("*.png"))
    main([str(tmp_path), str(tmp_path)])
    advice = "the curves are not drawn because matplotlib is missing: pip install matplotlib"
    assert capsys.readouterr().out.splitlines() == [advice, advice]

"""lab/benchmarks/speedrun.py: its clock, its judge, its record and its ledger, and a run of everything at tiny
sizes.
"""

import contextlib
import json
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer, BertConfig
from transformers import BertForMaskedLM as StockForMaskedLM

from bert_training.engine.batches import IGNORED
from bert_training.pretraining.build_corpus import build_corpus
from lab import tables
from lab.benchmarks import contestants, speedrun
from lab.benchmarks.held_out import HeldOut
from modeling_bert_repro import BertForPreTraining

# --- clock and judge ---------------------------------------------------------------------------------------------


class Time:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_the_clock_stands_still_while_it_is_paused():
    time = Time()
    clock = contestants.Clock(90.0, time)
    assert clock.seconds() == 10
    with contextlib.suppress(ValueError), clock.paused():
        time.pass_by(1000)
        raise ValueError
    time.pass_by(3)
    assert clock.seconds() == 13


class Network:
    """A network without weights, which is saved as an empty file."""

    def state_dict(self):
        return {}

    def save_pretrained(self, folder):
        folder.mkdir()


def make_judge(folder, losses, seconds_each=10.0, **rules):
    """A judge that takes a minute for each loss, and a function that trains for `seconds_each` and lets it look."""
    time = Time()
    run = {"folder": str(folder), "target": 4.5, "seconds": 35.0, "data": "", "judge": []} | rules
    judge = contestants.Judge(run, contestants.Clock(time.now, time))
    remaining = iter(losses)

    def loss(_):
        time.pass_by(60)
        return next(remaining)

    judge.held_out = SimpleNamespace(loss=loss)

    def train_and_look(step):
        time.pass_by(seconds_each)
        return judge.look(step, Network())

    return judge, train_and_look


def looks(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "judged.jsonl").read_text().splitlines()]


def test_a_run_stops_at_the_target_and_keeps_the_network(tmp_path):
    _, look = make_judge(tmp_path, [6.0, 4.51, 4.5])
    assert look(1) == {"eval_mlm_loss": 6.0} and look(2) == {"eval_mlm_loss": 4.51}
    assert not (tmp_path / "reached").exists()
    with pytest.raises(contestants.Stopped, match=r"^reached$"):
        look(3)
    assert (tmp_path / "reached").is_dir()
    assert [(record["step"], record["seconds"]) for record in looks(tmp_path)] == [(1, 10), (2, 20), (3, 30)]


def test_a_run_stops_when_its_time_is_over_even_with_the_target_in_sight(tmp_path):
    _, look = make_judge(tmp_path, [6.0, 6.0, 6.0, 4.0])
    for step in (1, 2, 3):
        look(step)
    with pytest.raises(contestants.Stopped, match="out of time"):
        look(4)  # after 40 seconds of 35
    assert not (tmp_path / "reached").exists()


@pytest.mark.parametrize(
    ("end", "losses", "expected"),
    [
        ("reached", [6.0, 4.4], {"reached": True, "step": 2, "seconds": 20.0, "loss": 4.4}),
        ("out of time", [6.0, 5.0, 5.5], {"reached": False, "step": 2, "seconds": 20.0, "loss": 5.0}),
        ("all steps done", [5.0], {"reached": False, "step": 1, "seconds": 10.0, "loss": 5.0}),
    ],
)
def test_the_result_of_a_run(end, losses, expected):
    records = [{"step": n, "seconds": 10.0 * n, "loss": loss} for n, loss in enumerate(losses, 1)] + [{"end": end}]
    result = speedrun.result_of("\n".join(map(json.dumps, records)))
    assert {name: result[name] for name in expected} == expected and result["end"] == end
    assert result["curve"] == [[n, 10.0 * n, loss] for n, loss in enumerate(losses, 1)]


@torch.inference_mode()
def masked_loss(model, batches, predictions: int) -> float:
    """The mean loss for each prediction, as transformers' class computes it."""
    parts = []
    for batch in batches:
        batch = {name: tensor for name, tensor in batch.items() if name != "next_sentence_label"}
        parts.append(float(model(**batch).loss) * int((batch["labels"] != IGNORED).sum()))
    return sum(parts) / predictions


@pytest.mark.parametrize("kind", ["pairs", "packed"])
def test_all_networks_are_judged_alike(tmp_path, tokenizer_folder, text_file, small_config, kind):
    """Ours and transformers' have one loss for one set of weights, which is the loss that they compute themselves."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.save_pretrained(tmp_path / "vocabulary")
    build_corpus([text_file], tokenizer, tmp_path / "held_out")
    small_config.update({"vocab_size": len(tokenizer)})
    BertConfig(**small_config.to_dict()).save_pretrained(tmp_path / "config")
    own = BertForPreTraining(small_config).eval()
    before = torch.get_rng_state()
    judge = HeldOut(tmp_path, kind, 32, 40)
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(len(batch["labels"]) for batch in judge.batches) == 40
    stock = StockForMaskedLM(BertConfig(**small_config.to_dict())).eval()
    stock.load_state_dict(own.state_dict(), strict=False)
    expected = masked_loss(stock, judge.batches, judge.predictions)
    assert judge.loss(own.state_dict()) == pytest.approx(expected, rel=1e-5)
    assert judge.loss(stock.state_dict()) == pytest.approx(expected, rel=1e-5)
    less = {name: weight for name, weight in own.state_dict().items() if "position_embeddings" not in name}
    with pytest.raises(ValueError, match=r"needs bert\.embeddings\.position_embeddings\.weight, which this network"):
        judge.loss(less)


def test_blocks_are_those_of_run_mlm(monkeypatch, tokenizer_folder):
    """Three texts at a time: 4 + 3 + 4 tokens give two blocks of 5, and one token is dropped; then 3 give none."""
    monkeypatch.setattr(contestants, "RUN_MLM_TEXTS", 3)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    texts = ["the king", "house", "old river", "night"]
    ids = [token for text in texts[:3] for token in tokenizer(text)["input_ids"]]
    blocks = contestants.packed_blocks(tokenizer, texts, 5)
    assert [block["input_ids"] for block in blocks] == [ids[:5], ids[5:10]]
    assert all(len(column) == 5 for block in blocks for column in block.values())
    assert blocks[0]["special_tokens_mask"] == [1, 0, 0, 1, 1]


# --- the record --------------------------------------------------------------------------------------------------


RULES = {"contestants": {"fast": "", "paper": ""}, "seeds": 2}
FACTS = {"date": "2026-01-02", "commit": "1234567"}


def test_an_unfinished_record_is_continued_under_the_same_rules_only(tmp_path):
    path = tmp_path / "speedrun.json"
    _, record = speedrun.open_record(path, "x", RULES, FACTS)
    assert record == {"what": "x", **FACTS, "rules": RULES, "runs": []}

    def opened(what="x", rules=RULES, commit=FACTS["commit"], runs=3):
        path.write_text(json.dumps({"2026-01-02": record | {"runs": [{}] * runs}}))
        facts = {"date": "2026-01-03", "commit": commit}
        records, found = speedrun.open_record(path, what, rules, facts)
        assert records[max(records)] is found and len(records["2026-01-02"]["runs"]) == runs
        return found["date"], len(found["runs"])

    assert opened() == ("2026-01-02", 3)
    assert opened(runs=4) == ("2026-01-03", 0)  # It was complete.
    assert opened(what="y") == ("2026-01-03", 0)
    assert opened(rules=RULES | {"target": 4}) == ("2026-01-03", 0)
    assert opened(commit="7654321") == ("2026-01-03", 0)


@pytest.fixture
def no_work(monkeypatch, tmp_path):
    """The command without data, judge and runs: every run of `fast` takes 5 seconds times its seed."""
    made = []

    def make_run(name, seed, args, data, held_out):
        if len(made) == make_run.limit:
            raise KeyboardInterrupt
        made.append((name, seed))
        result = {"reached": name == "fast", "end": "", "loss": 4.0 + (name != "fast"), "seconds": 5.0 * seed}
        return {"contestant": name, "seed": seed} | result

    make_run.limit, make_run.made = 99, made
    (tmp_path / "data.json").write_text(json.dumps({"text": ["corpus"], "pieces": 1000}))
    monkeypatch.setattr(speedrun, "prepare", lambda args: tmp_path)
    monkeypatch.setattr(speedrun, "HeldOut", lambda *_: None)
    monkeypatch.setattr(speedrun, "make_run", make_run)
    return make_run


def test_contestants_take_turns_and_a_stopped_program_continues(no_work, tmp_path, capsys):
    output = tmp_path / "record.json"
    command = ["--contestants", "fast", "paper", "--work_dir", str(tmp_path), "--output", str(output), "--what", "w"]
    no_work.limit = 3
    with pytest.raises(KeyboardInterrupt):
        speedrun.main(command)
    no_work.limit = 99
    speedrun.main(command)
    assert no_work.made == [(name, seed) for seed in (1, 2, 3) for name in ("fast", "paper")]
    (record,) = json.loads(output.read_text()).values()
    assert len(record["runs"]) == 6 and record["rules"]["contestants"]["fast"] == "--recipe fast"
    assert {"commit", "versions", "command", "device", "load_at_start"} <= set(record)
    printed = capsys.readouterr().out
    assert "| fast | 3 of 3 | 10 (5 to 15) | 4.000 to 4.000 |" in printed
    assert "| paper | 0 of 3 | not reached within 1800 s and 3,000 steps | 5.000 to 5.000 |" in printed


def test_flags_of_a_contestant_come_last(tmp_path):
    more = ["--flags", "fast=--max_steps 7", "transformers-tuned=--learning_rate 1"]
    args = speedrun.parse(["--contestants", "fast", "transformers-tuned", "--steps", "50", *more])
    own = speedrun.describe_run("fast", 2, args, tmp_path)
    assert own["flags"][-4:] == ["--recipe", "fast", "--max_steps", "7"] and own["every"] == 2
    assert own["flags"][own["flags"].index("--seed") + 1] == "2"
    theirs = speedrun.describe_run("transformers-tuned", 2, args, tmp_path)["flags"]
    assert theirs[-8:-2] == ["--per_device_train_batch_size", "64", "--learning_rate", "0.002", "--warmup_steps", "5"]
    assert theirs[-2:] == ["--learning_rate", "1"]


# --- the ledger --------------------------------------------------------------------------------------------------


def record_of(date, reached, seconds=(30.0, 10.0, 20.0)):
    runs = [
        {"contestant": "fast", "seed": n, "reached": ok, "loss": 4.4, "seconds": taken}
        for n, (ok, taken) in enumerate(zip(reached, seconds), 1)
    ]
    runs += [{"contestant": "paper", "seed": 1, "reached": False, "loss": 5.0, "seconds": 60.0}]
    rules = {"config_name": "tiny", "text": ["corpus"], "pieces": 8192, "target": 4.5, "seconds": 60.0, "steps": 3000}
    rules["contestants"] = {"fast": "--recipe fast", "paper": "--recipe paper"}
    return {"date": date, "what": f"idea of {date}", "commit": "abc", "rules": rules, "runs": runs}


def test_the_ledger_has_the_records_whose_seeds_are_all_under_the_target():
    dates = {"2026-01-01": [True] * 3, "2026-01-02": [True, True, False], "2026-01-03": [True] * 3}
    records = {date: record_of(date, reached) for date, reached in dates.items()}
    records["2026-01-04"] = record_of("2026-01-04", [True] * 2)  # two seeds are too few
    alone = record_of("2026-01-05", [True] * 2)  # the second table has the contestants of the newest race with several
    alone["rules"]["contestants"] = {"fast": "--recipe fast"}
    records["2026-01-05"] = alone | {"runs": alone["runs"][:1]}
    lines = tables.speedrun(records).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| 2026-01-03", "| 2026-01-01"] and lines[4] == ""
    times = "3 | 20 (10 to 30) | not reached within 60 s and 3,000 steps | not measured |"
    assert lines[2] == f"| 2026-01-03 | idea of 2026-01-03 | tiny, corpus, 8,192 pieces, 4.5 nats | abc | {times}"
    assert lines[-2:] == [
        "| fast | 2 of 2 | 20 (10 to 30) | 4.400 to 4.400 |",
        "| paper | 0 of 1 | not reached within 60 s and 3,000 steps | 5.000 to 5.000 |",
    ]


# --- everything --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_of_everything_at_tiny_sizes(tmp_path, capsys):
    speedrun.main(["--smoke", "--work_dir", str(tmp_path)])
    (record,) = json.loads((tmp_path / "speedrun.json").read_text()).values()
    assert [run["contestant"] for run in record["runs"]] == ["fast", "paper", "transformers-tuned"]
    for run in record["runs"]:
        seconds = [seconds for _, seconds, _ in run["curve"]]
        assert len(seconds) == 20 or run["reached"]
        assert seconds == sorted(seconds) and 0 < seconds[0] < 60 and run["loss"] < 6.5
    assert (tmp_path / "runs" / "fast-1" / "reached" / "model.safetensors").is_file()
    assert "| contestant |" in capsys.readouterr().out

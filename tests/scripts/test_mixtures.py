"""run_pretraining.py on a mixture of two files, with two held-out files, from end to end."""

import shutil

import pytest
from transformers import AutoTokenizer

from bert_training.pretraining.data import training_instances
from bert_training.pretraining.text import open_training_corpora
from tests.helpers.pretraining_runs import pretrain
from tests.helpers.records import events, read
from tests.helpers.same_runs import check_same
from tests.helpers.torchrun import torchrun

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture
def flags(pretraining_flags, pretrained, text_file, tmp_path):
    """A function that makes the flags: 6 of 10, then 4 of 10 instances from a short text, which runs out."""
    documents = text_file.read_text().strip().split("\n\n")
    for name, part in (
        ("short.txt", documents[:4]),
        ("wiki.held.txt", documents[4:9]),
        ("law_held.txt", documents[9:]),
    ):
        (tmp_path / name).write_text("\n\n".join(part) + "\n")

    def make(name, batch="5x2", **more) -> list[str]:
        given = {"tokenizer_name": None, "config_name": None, "max_seq_length": None, "validation_split": None}
        given |= {"train_file": None, "model_name_or_path": pretrained, "max_steps": 8, "eval_steps": 4}
        given |= {"phases": f"16:0.5:{batch}@3:2,32:0.5:{batch}@0.4:0.6"} | more
        files = [f"{tmp_path}/short.txt", str(text_file), "--validation_file"]
        files += [f"{tmp_path}/law_held.txt", f"{tmp_path}/wiki.held.txt"]
        return [*pretraining_flags(name, **given), "--train_file", *files]

    return make


def test_a_mixture_from_end_to_end_and_resumed(flags, tmp_path, capsys):
    whole = pretrain(flags("whole", save_total_limit=0))
    said = capsys.readouterr().out
    facts, results = read(whole, "run.json"), read(whole, "all_results.json")
    assert [(one["name"], one["share"]) for one in facts["mixture"]] == [("short.txt", 0.5), ("text.txt", 0.5)]
    tokenizer = AutoTokenizer.from_pretrained(whole)
    train = training_instances(facts["flags"], open_training_corpora(whole, facts["flags"], tokenizer), tokenizer)
    sizes = [[instances.epoch_size(0) for instances in train[length]] for length in (16, 32)]
    read_by_hand = [24 / sizes[0][0] + 16 / sizes[1][0], 16 / sizes[0][1] + 24 / sizes[1][1]]
    assert [one["epochs"] for one in facts["mixture"]] == pytest.approx(read_by_hand, abs=1e-4)
    assert len({instances.settings.seed for instances in train[16]}) == 2  # each file has random numbers of its own
    assert facts["phases"] == "4 steps of 10 x 16 of the mixture 3:2, 4 steps of 10 x 32 of the mixture 0.4:0.6"

    # Each held-out file has results of its own, before the first step as well.
    evaluated = events(whole, "eval")
    assert [event["step"] for event in evaluated] == [0, 4, 8]
    for event in (*evaluated, results):
        for name in ("law_held", "wiki_held"):
            ends = {"mlm_loss", "mlm_accuracy", "nsp_accuracy"}
            assert {f"eval_{name}_{end}" for end in ends} <= event.keys()
    assert "| Masked-piece loss, nats: wiki_held |" in (whole / "README.md").read_text()

    # The short file runs out, and nothing else does.
    assert {event["source"] for event in events(whole, "epoch")} == {"short.txt"}
    first = events(whole, "epoch")[0]
    assert f"step {first['step']}: short.txt has run out and begins its epoch {first['epoch']}" in said

    again = shutil.copytree(whole, tmp_path / "again")
    for name in ("checkpoint-8", "checkpoint-6"):
        shutil.rmtree(again / name)
    (again / "all_results.json").unlink()  # Without this file the run is not finished.
    pretrain([*flags("again", save_total_limit=0), "--resume_from_checkpoint", "auto"])
    check_same(whole, again)

    (again / "all_results.json").unlink()
    with pytest.raises(ValueError, match=r"mixture 0.4:0.6 -> .* of the mixture 0.5:0.5, with 1 process"):
        pretrain([*flags("again", phases="16:0.5:5x2@3:2,32:0.5:5x2@0.5:0.5"), "--resume_from_checkpoint", "auto"])


@pytest.mark.slow
def test_two_processes_see_the_mixture_of_one(flags, tmp_path):
    alone, together = pretrain(flags("alone")), tmp_path / "pair"
    torchrun("run_pretraining.py", flags("pair", batch="5x1"))
    for kind in ("train", "eval", "epoch"):
        for one, two in zip(events(alone, kind), events(together, kind), strict=True):
            for key in one.keys() - {"tokens_per_second", "seconds_per_step"}:
                assert two[key] == (one[key] if isinstance(one[key], str) else pytest.approx(one[key], rel=1e-4)), key
    for part in sorted((alone / "corpus").glob("*/shard-00000/manifest.json")):
        assert part.read_text() == (together / part.relative_to(alone)).read_text()

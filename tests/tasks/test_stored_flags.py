"""bert_training/tasks/stored_flags.py: a model is fed as in its training, unless a flag says otherwise."""

import json
import re
import shutil

import pytest
from transformers import AutoConfig, BertConfig, PretrainedConfig

import run_glue
import run_squad
from bert_training.inputs.flags.fine_tuning import GlueArguments, NerArguments, SquadArguments, SwagArguments
from bert_training.inputs.flags.natures import EVALUATION, natures
from bert_training.inputs.flags.parsing import parse_arguments
from bert_training.tasks.stored_flags import defaults_of_model, store_flags, stored_flags, stored_length, stored_names
from tests.helpers import short_runs
from tests.helpers.records import read

pytestmark = pytest.mark.usefixtures("no_pictures")

NO_DATA = {"seed", "per_device_eval_batch_size", "mixed_precision", "model_impl", "max_eval_samples"}
FINE_TUNING = ("run_glue", "run_squad", "run_ner", "run_swag")


@pytest.fixture(scope="module")
def models(tmp_path_factory, pretrained, short_data):
    """A finished run of every script, made when it is first asked for."""
    made = {}

    def model(script: str, *more: str):
        key = (script, *more)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("models") / script
            with pytest.MonkeyPatch.context() as patch:
                short_runs.no_pictures(patch)
                short_runs.start(script, short_runs.flags(script, short_data, made[key], pretrained, *more))
        return made[key]

    return model


def evaluate(script: str, model, data, folder, *more: str) -> dict:
    """The run.json of an evaluation without any flag that says how the model is fed."""
    (file,) = data.glob(f"{script}.*")
    short_runs.start(
        script, ["--model_name_or_path", str(model), "--validation_file", str(file), "--output_dir", str(folder), *more]
    )
    return read(folder, "run.json")


TAGS = {"mixed_tags", "tag_scheme", "tag_names", "label_column", "text_column"}
COLUMNS = (
    "text_column",
    "label_column",
    "label_separator",
    "problem_type",
    "delimiter",
)  # stored as what they were found to be


def test_which_flags_are_stored():
    """All flags of nature EVALUATION but those of the evaluation itself, and those that describe the data."""
    for cls, data in ((GlueArguments, {"task_name", *COLUMNS}), (NerArguments, TAGS),
                      (SwagArguments, {"delimiter"}), (SquadArguments, {"null_score_diff_threshold"})):  # fmt: skip
        of_evaluation = {name for name, nature in natures(cls).items() if nature & EVALUATION}
        assert of_evaluation - NO_DATA - data == set(stored_names(cls))


@pytest.mark.parametrize("script", FINE_TUNING)
def test_an_evaluation_without_flags_is_that_of_the_training(models, script, short_data, tmp_path, capsys):
    """The lengths of the short runs are no defaults: with 128 or 384 tokens, the network would even be too short."""
    model = models(script)
    facts = evaluate(script, model, short_data, tmp_path / "again")
    trained = read(model, "run.json")["flags"]
    stored = facts["stored_with_the_model"]
    assert stored and stored == {name: trained[name] for name in stored} and stored["max_seq_length"] == 24
    assert {name: facts["flags"][name] for name in stored} == stored and facts["given_instead"] == {}
    assert "as the model was fine-tuned: " in (out := capsys.readouterr().out) and "max_seq_length 24" in out
    before, after = read(model, "all_results.json"), read(tmp_path / "again", "all_results.json")
    assert {name: after[name] for name in after if name.startswith("eval_")} == {
        name: before[name] for name in before if name.startswith("eval_")
    }


def test_a_given_flag_wins_and_is_said_and_recorded(models, short_data, tmp_path, capsys):
    model = models("run_glue")
    facts = evaluate("run_glue", model, short_data, tmp_path / "again", "--max_seq_length=12")
    assert facts["flags"]["max_seq_length"] == 12 and facts["given_instead"] == {"max_seq_length": 12}
    assert facts["stored_with_the_model"]["max_seq_length"] == 24
    out = capsys.readouterr().out
    assert "warning: max_seq_length 12, but the model was fine-tuned with 24; --max_seq_length 24 feeds it" in out
    # What the weights were trained with stays what it was, also in the folder of this evaluation.
    assert read(tmp_path / "again", "config.json")["fine_tuning"] == read(model, "config.json")["fine_tuning"]


def test_the_same_command_resumes_whatever_has_become_of_the_model(models, short_data, tmp_path, capsys):
    """The defaults of a run are those with which it began, the rate among them."""
    model = tmp_path / "model"
    shutil.copytree(models("run_glue"), model)
    (file,) = short_data.glob("run_glue.*")
    command = ["--model_name_or_path", str(model), "--train_file", str(file), "--validation_file", str(file),
               "--max_steps=2", "--save_steps=1", "--output_dir", str(tmp_path / "run"),
               "--resume_from_checkpoint=auto"]  # fmt: skip
    run_glue.main(command)
    assert read(tmp_path / "run", "run.json")["flags"]["max_seq_length"] == 24
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    shutil.rmtree(model)
    run_glue.main(command)
    assert "this run is finished" in capsys.readouterr().out
    shutil.copytree(models("run_glue"), model)
    for name in ("all_results.json", "hashes.json"):
        (tmp_path / "run" / name).unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoint-2")
    run_glue.main(command)
    assert "resuming from" in capsys.readouterr().out
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights


def test_a_series_takes_nothing_from_a_neighbour(models, tmp_path):
    """The folder of the series also has a pre-training, which stores nothing with its model."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base/run.json").write_text(json.dumps({"format": 1, "script": "x", "flags": {}}))
    given = {"output_dir": str(tmp_path), "model_name_or_path": str(models("run_squad")), "seeds": 2}
    assert defaults_of_model(SquadArguments, given)["max_seq_length"] == 24
    (tmp_path / "base").rename(tmp_path / "seed-42")
    assert "max_seq_length" not in defaults_of_model(SquadArguments, given)


def test_only_models_of_the_same_script_bring_defaults(models, tmp_path):
    """A model of SQuAD as the start of a classifier does not carry its length over, and leaves nothing behind."""
    given = {"output_dir": str(tmp_path), "model_name_or_path": str(models("run_squad"))}
    assert {*defaults_of_model(GlueArguments, given)} == {"learning_rate"} == {*defaults_of_model(NerArguments, given)}
    config = BertConfig.from_pretrained(models("run_squad"))
    config.null_score_diff_threshold = 1.0
    store_flags(config, GlueArguments(output_dir="x", model_name_or_path="y"))
    assert not hasattr(config, "question_answering") and not hasattr(config, "null_score_diff_threshold")
    assert config.fine_tuning["script"] == "run_glue.py"
    # The network was pre-trained further, which leaves the field in the config but not the head in the model.
    fields = config.to_dict() | {"architectures": ["BertForPreTraining"]}
    assert stored_flags(GlueArguments, fields) == {}
    config.architectures = ["BertForPreTraining"]
    assert stored_length(config) is None


def test_random_weights_bring_only_a_rate(tmp_path):
    given = {"output_dir": str(tmp_path), "config_name": "tiny"}
    assert defaults_of_model(GlueArguments, given) == {"learning_rate": 1e-3}


@pytest.mark.parametrize("cls", [GlueArguments, SquadArguments, NerArguments, SwagArguments])
def test_the_default_rate_is_the_papers_scaled_to_the_width(cls, tmp_path, monkeypatch):
    """5e-5 (SWAG: 2e-5) at 768 units, times the square of 768 / width, from 0.4 to 20."""
    paper = 2e-5 if cls is SwagArguments else 5e-5
    words = ["--output_dir", str(tmp_path / "run"), "--model_name_or_path", str(tmp_path)]
    for width, times in ((768, 1), (384, 4), (256, 9), (128, 20), (1024, 0.5625), (4096, 0.4)):
        (tmp_path / "config.json").write_text(json.dumps({"hidden_size": width}))
        assert parse_arguments(cls, words, defaults_of_model).learning_rate == pytest.approx(times * paper, rel=5e-3)
    assert parse_arguments(cls, [*words, "--learning_rate=3e-5"], defaults_of_model).learning_rate == 3e-5
    (tmp_path / "run.yaml").write_text("learning_rate: 3e-5")
    assert (
        parse_arguments(cls, [*words, "--config", str(tmp_path / "run.yaml")], defaults_of_model).learning_rate == 3e-5
    )
    on_hub = [*words[:3], "you/on-the-hub"]
    monkeypatch.setattr(PretrainedConfig, "get_config_dict", lambda name: ({"hidden_size": 384}, {}))
    assert parse_arguments(cls, on_hub, defaults_of_model).learning_rate == 4 * paper
    if cls is GlueArguments:
        student = {"output_dir": "x", "teacher": "you/on-the-hub", "keep_layers": "0,2"}
        assert defaults_of_model(cls, student)["learning_rate"] == 4 * paper


def test_every_reader_of_a_config_keeps_the_flags(models, tmp_path):
    """A dict in a config survives transformers' own reading and writing, also in checkpoints."""
    model = models("run_ner", "--save_steps=1", "--context=sentence")
    stored = {"script": "run_ner.py", "max_seq_length": 24, "context": "sentence", "lstm_size": 768}
    stored["words"] = read(model, "config.json")["fine_tuning"]["words"]  # how text becomes words
    assert read(model / "checkpoint-1", "config.json")["fine_tuning"] == stored
    AutoConfig.from_pretrained(model).save_pretrained(tmp_path)
    assert read(tmp_path, "config.json")["fine_tuning"] == stored


def test_the_network_that_reads_the_text_is_stored_too(models, short_data, tmp_path):
    model = models("run_ner", "--feature_based=last", "--lstm_size=8")
    facts = evaluate("run_ner", model, short_data, tmp_path / "tags")
    assert facts["flags"]["feature_based"] == "last" and facts["flags"]["lstm_size"] == 8


def test_answers_of_version_2_are_the_default_of_an_evaluation_only(models, short_data, tmp_path, capsys):
    """With its threshold, as `ask` answers. Of a training, the flag says what the data is."""
    model = models("run_squad", "--version_2_with_negative")
    facts = evaluate("run_squad", model, short_data, tmp_path / "again")
    assert facts["flags"]["version_2_with_negative"]
    assert facts["null_score_diff_threshold"] == read(model, "config.json")["null_score_diff_threshold"]
    (file,) = short_data.glob("run_squad.*")
    run_squad.main(["--model_name_or_path", str(model), "--train_file", str(file), "--validation_file", str(file),
                    "--max_steps=1", "--save_steps=0", "--output_dir", str(tmp_path / "further")])  # fmt: skip
    assert read(tmp_path / "further", "run.json")["flags"]["version_2_with_negative"] is False
    assert "warning: version_2_with_negative false, but the model was fine-tuned with true" in capsys.readouterr().out
    assert "null_score_diff_threshold" not in read(tmp_path / "further", "config.json")


def test_a_run_says_once_where_its_rate_comes_from(pretrained, short_data, tmp_path, capsys):
    width = BertConfig.from_pretrained(pretrained).hidden_size
    short_runs.start("run_glue", short_runs.flags("run_glue", short_data, tmp_path / "run", pretrained))
    out = capsys.readouterr().out
    (line,) = re.findall("^learning rate .*", out, re.MULTILINE)
    rate = read(tmp_path / "run", "run.json")["flags"]["learning_rate"]
    assert line == f"learning rate {rate:g}: 5e-5 at 768 units, scaled to {width}" and rate == pytest.approx(1e-3)
    assert f"| `learning_rate` | {rate}" in (tmp_path / "run" / "README.md").read_text()
    assert "warning: eval_accuracy is no higher than 0.5, which one answer to every example reaches; change" in out

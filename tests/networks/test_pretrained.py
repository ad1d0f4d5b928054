"""bert_training/networks/pretrained.py: where a left-to-right network is accepted, and old checkpoints straight
away.
"""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

import extract_features
import modeling_bert_repro
import run_glue
import run_swag
from bert_training.engine.errors import report_errors
from bert_training.files.hashing import sha256
from bert_training.networks import tokenizer_files
from bert_training.networks.configuration import config_labels
from bert_training.networks.initial_weights import load_network, weights_sha256
from bert_training.networks.old_checkpoints import is_old_checkpoint
from bert_training.networks.old_vocabularies import old_tokenizer
from bert_training.networks.pretrained import (
    check_model_name,
    checkpoint_config,
    load_config,
    load_tokenizer,
    weights_tokenizer,
)
from bert_training.tools import ask, convert
from modeling_bert_repro import BertForSequenceClassification
from tests.helpers import short_runs
from tests.helpers.model_folders import edit_json
from tests.helpers.old_checkpoints import (
    WRITTEN,
    aged,
    nvidia_names,
    old_names,
    saved_as,
    state_and_config,
    write_sentence_transformers,
)
from tests.helpers.torchrun import torchrun


@pytest.fixture
def left_to_right(tmp_path, tokenizer_folder, small_config, vocab):
    """A folder with the tokenizer and a left-to-right network."""
    small_config.is_decoder, small_config.vocab_size = True, len(vocab)
    shutil.copytree(tokenizer_folder, tmp_path / "ltr")
    BertForSequenceClassification(small_config).save_pretrained(tmp_path / "ltr")
    return str(tmp_path / "ltr")


@pytest.mark.parametrize("script", [run_glue, run_swag])
def test_left_to_right_is_refused_where_the_first_token_decides(left_to_right, tmp_path, script):
    flags = ["--model_name_or_path", left_to_right, "--output_dir", str(tmp_path / "out"), "--max_seq_length", "32"]
    with pytest.raises(ValueError, match="attends left to right"):
        script.main(flags)
    assert not (tmp_path / "out").exists()


def test_left_to_right_is_accepted_where_every_token_has_a_label(left_to_right):
    flags = {"config_name": None, "model_name_or_path": left_to_right, "max_seq_length": 32}
    assert load_config(SimpleNamespace(**flags), AutoTokenizer.from_pretrained(left_to_right)).is_decoder


# --- old checkpoints ------------------------------------------------------------------------------------------------


def source(kind: str, folder: Path) -> Path:
    """An old checkpoint of this kind, with the weights of ``WRITTEN / "pretrained"``."""
    state = state_and_config()[0]
    if kind == "google":
        return Path(shutil.copytree(WRITTEN / "pretrained", folder))
    if kind == "prefix":
        return Path(shutil.copytree(WRITTEN / "several_files", folder)) / "bert_model.ckpt"
    if kind == "module.":
        return saved_as(folder, {old_names(name): tensor for name, tensor in state.items()})
    if kind == "module., config.json":
        source("module.", folder)
        (folder / "bert_config.json").rename(folder / "config.json")
        return folder
    if kind == "nvidia":
        stored = {"model": {nvidia_names(name): tensor for name, tensor in state.items()}, "epoch": 3}
        return saved_as(folder, stored, "ckpt_8601.pt") / "ckpt_8601.pt"
    encoder = {name.removeprefix("bert."): tensor for name, tensor in state.items() if name.startswith("bert.")}
    return write_sentence_transformers(folder, encoder)


SOURCES = ("google", "prefix", "module.", "module., config.json", "nvidia", "sentence-transformers")


@pytest.mark.parametrize("kind", SOURCES)
def test_an_old_checkpoint_is_read_straight_away_as_convert_reads_it(tmp_path, kind, capsys, monkeypatch):
    old, new = source(kind, tmp_path / "old"), tmp_path / "new"
    files = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}
    convert.main([str(old), str(new)])
    capsys.readouterr()
    check_model_name(str(old))
    tokenizer, config = load_tokenizer(str(old)), checkpoint_config(str(old))
    assert capsys.readouterr().out == f"{old}: the tokenizer is lower-cased; 0 of 20 pieces have capital letters\n"
    monkeypatch.setenv("RANK", "1")
    load_tokenizer(str(old))
    assert capsys.readouterr().out == ""  # The other processes say nothing.
    converted = AutoTokenizer.from_pretrained(new)
    assert tokenizer.backend_tokenizer.to_str() == converted.backend_tokenizer.to_str()
    assert (tokenizer.model_max_length, type(tokenizer).__name__) == (12, type(converted).__name__)
    shape = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act")
    assert [getattr(config, name) for name in shape] == [getattr(checkpoint_config(str(new)), name) for name in shape]
    ours = load_network(modeling_bert_repro.BertModel, str(old)).model.state_dict()
    theirs = load_network(modeling_bert_repro.BertModel, str(new)).model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    weights = [path for path in files if path.suffix in (".index", ".bin", ".pt") or ".data-" in path.name]
    assert weights_sha256(str(old)) == {path.name: sha256(path) for path in weights}
    assert files == {path: path.read_bytes() for path in (tmp_path / "old").rglob("*") if path.is_file()}


def test_what_transformers_reads_is_no_old_checkpoint(tmp_path, pretrained):
    assert not any(map(is_old_checkpoint, (pretrained, tmp_path, "bert-base-uncased", "google-bert/bert-base-uncased")))
    state, config = state_and_config()
    config.save_pretrained(tmp_path / "gamma")
    stored = {old_names(name).removeprefix("module."): tensor for name, tensor in state.items()}
    torch.save(stored, tmp_path / "gamma" / "pytorch_model.bin")
    assert not is_old_checkpoint(tmp_path / "gamma")
    loaded = load_network(modeling_bert_repro.BertForPreTraining, str(tmp_path / "gamma")).model.state_dict()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def test_the_head_of_an_old_classifier_is_counted():
    config = checkpoint_config(str(WRITTEN / "classifier"))
    assert config.num_labels == 3
    loaded = load_network(BertForSequenceClassification, str(WRITTEN / "classifier"), config=config)
    assert loaded.new == [] and loaded.model.classifier.weight.shape == (3, 16)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            lambda folder: shutil.copy(folder / "bert_model.ckpt.index", folder / "x.index"),
            "found 2: bert_model.ckpt, x; give the path of one of them, .*/bert_model.ckpt, or convert it with "
            "bert-repro convert .*/bert_model.ckpt FOLDER",
        ),
        (
            lambda folder: torch.save({}, folder / "pytorch_model.bin"),
            "found 2: pytorch_model.bin, bert_model.ckpt; give .*bert-repro convert",
        ),
        (
            lambda folder: (folder / "bert_config.json").unlink(),
            "expected config.json or bert_config.json in .*; give --config_file FILE to bert-repro convert",
        ),
        (
            lambda folder: (folder / "vocab.txt").unlink(),
            "no vocab.txt beside the weights; give --vocab_file FILE to bert-repro convert",
        ),
        (
            lambda folder: (folder / "vocab.txt").write_text((folder / "vocab.txt").read_text().replace("j", "J")),
            "is that of a lower-cased model, but 1 pieces have capitals; decide it with bert-repro convert "
            r".* FOLDER --do_lower_case true \(or false\), and give that FOLDER",
        ),
    ],
)
def test_an_ambiguous_source_is_one_error_that_names_the_command(tmp_path, capsys, prepare, message):
    folder = Path(shutil.copytree(WRITTEN / "pretrained", tmp_path / "uncased_L-2_H-16_A-2"))
    prepare(folder)
    flags = ["--model_name_or_path", str(folder), "--output_dir", str(tmp_path / "out"), "--max_seq_length", "12"]
    with pytest.raises(ValueError, match=message):
        run_glue.main(flags)
    assert report_errors(lambda: run_glue.main(flags)) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    short_runs.write_data(folder)
    return folder


def started(script: str, data: Path, folder: Path, model: Path, *more: str) -> dict:
    """The content of run.json after a run that begins with ``model``."""
    short_runs.start(script, short_runs.flags(script, data, folder, model, *more))
    return json.loads((folder / "run.json").read_text())


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_every_script_starts_from_an_old_checkpoint_and_resumes(tmp_path, pretrained, data, script):
    """It gives the bits that it gives from a folder of today, and it is refused if the old weights change."""
    old = aged(pretrained, tmp_path / "old")
    facts = started(script, data, tmp_path / "run", old, "--save_steps", "1")
    assert facts["flags"]["model_name_or_path"] == str(old)
    assert facts["initial_weights"] == {"pytorch_model.bin": sha256(old / "pytorch_model.bin")}
    today = started(script, data, tmp_path / "today", pretrained)
    assert facts["tokenizer_sha256"] == today["tokenizer_sha256"]
    weights = (tmp_path / "today" / "model.safetensors").read_bytes()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
    for name in ("all_results.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoint-2")
    again = ("--save_steps", "1", "--resume_from_checkpoint", "auto")
    assert len(started(script, data, tmp_path / "run", old, *again)["earlier"]) == 1
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
    (tmp_path / "run" / "all_results.json").unlink()
    state = torch.load(old / "pytorch_model.bin", weights_only=True)
    state["module.bert.embeddings.LayerNorm.gamma"] += 1
    torch.save(state, old / "pytorch_model.bin")
    with pytest.raises(ValueError, match="belongs to a run from other weights; resume with the --model_name_or_path"):
        started(script, data, tmp_path / "run", old, *again)


@pytest.mark.slow
def test_two_processes_start_from_an_old_checkpoint(tmp_path, pretrained, data):
    """Each reads the files and writes none; the first one says what was found."""
    old = aged(pretrained, tmp_path / "old")
    flags = short_runs.flags("run_glue", data, tmp_path / "run", old)
    done = torchrun("run_glue.py", flags)
    assert done.stdout.count(f"{old}: the tokenizer is lower-cased") == 1
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["processes"] == 2
    assert facts["initial_weights"] == {"pytorch_model.bin": sha256(old / "pytorch_model.bin")}
    assert sorted(path.name for path in old.iterdir()) == ["bert_config.json", "pytorch_model.bin", "vocab.txt"]


def test_features_and_answers_of_old_checkpoints(tmp_path):
    (tmp_path / "texts.txt").write_text("a b\nab c\n")
    convert.main([str(WRITTEN / "squad"), str(tmp_path / "new")])
    for name, model in (("old", WRITTEN / "squad"), ("new", tmp_path / "new")):
        flags = f"--model_name_or_path {model} --input_file {tmp_path}/texts.txt --output_file {tmp_path}/{name}.jsonl"
        extract_features.main([*flags.split(), "--layers=-1,-2", "--max_seq_length", "12"])
    assert (tmp_path / "old.jsonl").read_text() == (tmp_path / "new.jsonl").read_text()
    models = [ask.load(str(place))[0] for place in (WRITTEN / "squad", tmp_path / "new")]
    states = [model.state_dict() for model in models]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
    with pytest.raises(ValueError, match=r"has no weights for qa_outputs\.bias, qa_outputs\.weight, so it is not"):
        ask.load(str(WRITTEN / "pretrained"))


def test_a_folder_without_a_tokenizer_is_one_error(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"expected a folder or a name on the Hub with a tokenizer .*line 1 column 2"):
        load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("names", [{"0": "a", "2": "b"}, {"0": "a", "1": "a"}, {"0": "a", "1": ""}])
def test_labels_without_a_name_of_their_own_are_refused(tmp_path, pretrained, names):
    shutil.copytree(pretrained, tmp_path / "model")
    edit_json(tmp_path / "model" / "config.json", id2label=names, label2id={"a": 0, "b": 1}, num_labels=2)
    with pytest.raises(ValueError, match=r"id2label in config\.json must give each of the numbers"):
        config_labels(checkpoint_config(str(tmp_path / "model")))


def test_ids_of_a_damaged_tokenizer_are_compared(tmp_path, tokenizer_folder):
    """Without [SEP] in its vocabulary, the library would give it another id, in silence."""
    shutil.copytree(tokenizer_folder, tmp_path / "tokenizer")
    path = tmp_path / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    del content["model"]["vocab"]["[SEP]"]
    path.write_text(json.dumps(content))
    message = r"tokenizer\.json: \$\.added_tokens\[\d\] says that '\[SEP\]' has the id 3, but|to two pieces, '\[SEP\]'"
    with pytest.raises(ValueError, match=message):
        load_tokenizer(str(path.parent))


@pytest.mark.parametrize("on_the_hub", [False, True])
def test_a_tokenizer_of_a_version_elsewhere_is_not_opened(tmp_path, tokenizer_folder, monkeypatch, on_the_hub):
    """transformers reads such a file in place of tokenizer.json: that of another folder, which is published later."""
    folder, other = tmp_path / "tokenizer", tmp_path / "other"
    for place in (folder, other):
        shutil.copytree(tokenizer_folder, place)
    (other / "tokenizer.json").rename(other / "tokenizer.4.0.json")
    edit_json(folder / "tokenizer_config.json", fast_tokenizer_files=["../other/tokenizer.4.0.json"])
    name = "somebody/model" if on_the_hub else str(folder)
    if on_the_hub:
        monkeypatch.setattr(tokenizer_files, "cached_file", lambda _, file, **more: str(folder / file))
    with pytest.raises(ValueError, match=r"expected in 'fast_tokenizer_files' names of files beside it.*got '../other"):
        load_tokenizer(name)
    if not on_the_hub:
        with pytest.raises(ValueError, match="nothing outside its folder is read"):
            old_tokenizer(folder, 512)
        edit_json(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.json", "tokenizer.4.0.json"])
        shutil.copy(other / "tokenizer.4.0.json", folder)
        assert load_tokenizer(name).convert_tokens_to_ids("[SEP]") == 3


def test_the_current_folder_is_a_model(pretrained, monkeypatch):
    monkeypatch.chdir(pretrained)
    for name in (".", "./"):
        check_model_name(name)
        assert checkpoint_config(name).hidden_size and len(load_tokenizer(name))
    monkeypatch.chdir(pretrained.parent)
    with pytest.raises(ValueError, match=r"expected a folder with the weights of a model; it has no config.json"):
        check_model_name(".")


def test_the_tokenizer_of_weights_on_the_hub_is_fetched(tokenizer_folder, monkeypatch):
    """With an empty cache, too: it shows which rows of the weights are which pieces."""
    asked = []

    def cached(_, file, local_files_only):
        asked.append(local_files_only)
        if local_files_only:
            raise OSError("not in the cache")
        return str(tokenizer_folder / file)

    monkeypatch.setattr(tokenizer_files, "cached_file", cached)
    assert len(weights_tokenizer("somebody/model")) == len(load_tokenizer(str(tokenizer_folder))) and asked == [False]

"""The tokenizers that all scripts save: what transformers and programs that read vocab.txt find in them."""

import copy
import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer, pipeline

import run_pretraining
from bert_training.inputs.tokenizers import load_tokenizer
from tests.helpers import short_runs
from tests.helpers.model_folders import edit_json
from tests.helpers.small_networks import save_random_network
from tokenization import load_vocab

TRUNCATION = {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
PADDING = {"strategy": {"Fixed": 4}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0}
CALLS = {"max_length", "stride", "truncation_strategy", "pad_to_multiple_of"}


@pytest.fixture(scope="module")
def edited(tmp_path_factory, tokenizer_folder, pretrained_config, vocab) -> Path:
    """A model with an added token, a word of the user in an unused row of vocab.txt, and somebody's last call."""
    folder = shutil.copytree(tokenizer_folder, tmp_path_factory.mktemp("edited") / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E1]"]})
    tokenizer.save_pretrained(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["[unused0]"] = content["model"]["vocab"].pop("house")
    content |= {"truncation": TRUNCATION, "padding": PADDING | {"pad_token": "[PAD]"}}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    config = copy.deepcopy(pretrained_config)
    config.vocab_size, config.max_position_embeddings = len(vocab) + 1, 32
    return save_random_network(tmp_path_factory.mktemp("model"), folder, config)


@pytest.mark.parametrize("script", short_runs.AT_ONCE_AND_SLOWLY)
def test_the_saved_tokenizer_fits_the_network_and_has_a_row_for_every_id(
    script, edited, vocab, short_data, tmp_path, no_pictures
):
    assert AutoTokenizer.from_pretrained(edited).tokenize("house") == list("h") + [f"##{char}" for char in "ouse"]
    out = tmp_path / "run"
    short_runs.start(script, short_runs.flags(script, short_data, out, edited))
    opened = AutoTokenizer.from_pretrained(out)
    assert opened.tokenize("the house [E1]") == ["the", "house", "[E1]"]
    assert opened.model_max_length == 32
    assert len(opened("house " * 99, truncation=True)["input_ids"]) == 32
    saved = json.loads((out / "tokenizer.json").read_text())
    assert saved["truncation"] is None and saved["padding"] is None
    assert not CALLS & set(json.loads((out / "tokenizer_config.json").read_text()))
    assert list(load_vocab(out / "vocab.txt")) == [*vocab, "[E1]"]
    assert load_tokenizer(str(out)).get_vocab() == opened.get_vocab() == {**load_vocab(out / "vocab.txt")}


def test_truncation_of_the_source_does_not_cut_the_corpus(edited, pretrained, short_data, tmp_path, no_pictures):
    tokens = []
    for name, model in (("cut", edited), ("whole", pretrained)):
        run_pretraining.main(short_runs.flags("run_pretraining", short_data, tmp_path / name, model))
        tokens.append(json.loads((tmp_path / name / "run.json").read_text())["corpus"]["tokens"])
    assert tokens[0] == tokens[1]


def test_a_learnt_vocabulary_decides_the_size_of_a_named_folder(tmp_path, text_file, network_shape, capsys):
    positions = 100
    shape = shutil.copytree(network_shape, tmp_path / "shape")
    edit_json(shape / "config.json", vocab_size=30522, max_position_embeddings=positions)
    flags = f"--config_name {shape} --vocab_size 120 --train_file {text_file} --output_dir {tmp_path / 'run'} "
    flags += "--validation_split 0.2 --max_steps 1 --max_seq_length 24 --per_device_train_batch_size 4"
    run_pretraining.main(flags.split())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["vocab_size"] == len(load_vocab(tmp_path / "run" / "vocab.txt")) <= 120
    assert "the folder's config says 30522" in capsys.readouterr().out
    fill_mask = pipeline("fill-mask", model=str(tmp_path / "run"), tokenizer_kwargs={"truncation": True})
    assert fill_mask.tokenizer.model_max_length == positions and len(fill_mask("the [MASK] " + "house " * 200)) == 5

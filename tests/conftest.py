"""The small networks, tokenizers and texts that the tests share. Nothing here uses the network."""

import copy
import gc
import os
import shutil
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "")

from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from transformers import BertConfig

from modeling_bert_repro import fast_dropout, fast_path
from tests.helpers.words import WORDS, sentence

torch.set_num_threads(1)


def pytest_collection_finish():
    # Every run ends with a garbage collection; frozen modules are not searched again.
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """Accelerate keeps its state as long as the process lives; here every test begins without one."""

    def forget():
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    yield forget
    forget()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets (see CONTRIBUTING.md). Without one, the tests that need it are skipped."""
    folder = os.environ.get("BERT_REPRO_DATA")
    if not folder:
        pytest.skip("BERT_REPRO_DATA is not set")
    return Path(folder)


@pytest.fixture
def small_config() -> BertConfig:
    from tests.helpers import tiny_training

    return tiny_training.small_config()


@pytest.fixture(scope="session")
def vocab() -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz.,?"
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return specials + list(letters) + [f"##{c}" for c in letters[:26]] + [w for w in WORDS if len(w) > 1]


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory, vocab) -> Path:
    """A saved tokenizer whose words are ``WORDS``."""
    from tokenization import build_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer(vocab).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def pretrained_config(vocab) -> BertConfig:
    """Two narrow layers without dropout, for the tokenizer of ``tokenizer_folder``."""
    return BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory, tokenizer_folder, pretrained_config) -> Path:
    """A pre-training checkpoint without dropout, with its tokenizer."""
    import modeling_bert_repro

    folder = tmp_path_factory.mktemp("pretrained")
    shutil.copytree(tokenizer_folder, folder, dirs_exist_ok=True)
    torch.manual_seed(0)
    modeling_bert_repro.BertForPreTraining(copy.deepcopy(pretrained_config)).save_pretrained(folder)
    return folder


@pytest.fixture
def no_pictures(monkeypatch) -> None:
    """The runs of this test draw no training curves, which would take up to half of their time."""
    from tests.helpers import short_runs

    short_runs.no_pictures(monkeypatch)


@pytest.fixture(scope="session")
def glue_files(tmp_path_factory) -> Path:
    """A folder with a sub-folder of small official files for every task of GLUE."""
    from tests.helpers.official_files import LAYOUTS, write_task

    folder = tmp_path_factory.mktemp("glue")
    for task in LAYOUTS:
        write_task(folder / task, task)
    return folder


@pytest.fixture(scope="session")
def text_file(tmp_path_factory) -> Path:
    """60 documents of 3 to 8 sentences, with one sentence a line and a blank line between documents."""
    import numpy as np

    generator = np.random.default_rng(0)
    documents = ["\n".join(sentence(generator) for _ in range(generator.integers(3, 9))) for _ in range(60)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def make_run(tmp_path):
    """A function that makes a ``Run`` on the CPU with the given flags, without a script around it."""
    from accelerate import Accelerator

    from training.engine.run import Run
    from training.flags.shared import SharedArguments

    def make(**flags) -> Run:
        flags = {"output_dir": str(tmp_path / "run"), "per_device_train_batch_size": 4, **flags}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = Run(SharedArguments(**flags), Accelerator(cpu=True))
        run.output_dir.mkdir(parents=True, exist_ok=True)
        return run

    return make


@pytest.fixture
def fast_paths(monkeypatch) -> set[str]:
    """Those of the network's fast paths ("unpadded", "dropout") that were taken since the set was last emptied."""
    taken, find, draw = set(), fast_path.find_tokens, fast_dropout.fast_dropout

    def find_tokens(*args, **options):
        tokens = find(*args, **options)
        if tokens is not None:
            taken.add("unpadded")
        return tokens

    def drop(values, p):
        taken.add("dropout")
        return draw(values, p)

    monkeypatch.setattr(fast_path, "find_tokens", find_tokens)
    monkeypatch.setattr(fast_dropout, "fast_dropout", drop)
    return taken

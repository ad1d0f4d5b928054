"""The small networks, tokenizers and texts that the tests share. Nothing here uses the network."""

import copy
import gc
import json
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"
# The cache of the built-in data begins empty; the tests and the processes that they start share it.
os.environ["HF_ASSETS_CACHE"] = tempfile.mkdtemp(prefix="bert-repro-assets-")
# The code of folders that are opened with trust_remote_code goes into one cache of this process.
os.environ["HF_MODULES_CACHE"] = tempfile.mkdtemp(prefix="bert-repro-modules-")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# As accelerate launch would: the type does not depend on the processor unless a test lets it.
os.environ["ACCELERATE_MIXED_PRECISION"] = "no"
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "")

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bert_training.files import processes as locks
from tests.helpers.words import WORDS, sentence

if TYPE_CHECKING:
    from transformers import BertConfig

# Under nohup, this process and those that it starts would ignore the signal, which some tests send.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
ASSETS = os.environ["HF_ASSETS_CACHE"]
TEST_FILES = ("run_ner", "run_swag")  # the scripts that predict and score --test_file


def pytest_sessionstart(session):
    """The process that hands out the tests to others (-n 2) need not wait for these imports."""
    if not session.config.getoption("numprocesses", None):
        import torch
        import transformers  # noqa: F401

        torch.set_num_threads(1)


def pytest_unconfigure():
    for folder in (ASSETS, os.environ["HF_MODULES_CACHE"]):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_finish():
    # Every run ends with a garbage collection; frozen modules are not searched again.
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def frozen_objects():
    """The garbage collections of a file's runs do not search what the tests of other files have left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_accelerate():
    """Accelerate keeps its state as long as the process lives; here every test begins without one."""
    from accelerate.state import AcceleratorState, GradientState

    def forget():
        locks.release_all()  # A process keeps the locks of a run that it has stopped.
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    yield forget
    forget()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk():
    """Runs wait for the disk some twenty times, in case the power fails, which no test can make happen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # A wrong descriptor is still an error.
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets (see CONTRIBUTING.md). Without one, the tests that need it are skipped."""
    folder = os.environ.get("BERT_REPRO_DATA")
    if not folder:
        pytest.skip("BERT_REPRO_DATA is not set")
    return Path(folder)


@pytest.fixture
def small_config() -> "BertConfig":
    from tests.helpers import small_networks

    return small_networks.small_config()


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
def pretrained_config(vocab) -> "BertConfig":
    """Two narrow layers without dropout, for the tokenizer of ``tokenizer_folder``."""
    from tests.helpers.small_networks import LEARNS_FAST, NO_DROPOUT, small_config

    return small_config(vocab_size=len(vocab), max_position_embeddings=64, **LEARNS_FAST, **NO_DROPOUT)


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory, tokenizer_folder, pretrained_config) -> Path:
    """A pre-training checkpoint without dropout, with its tokenizer."""
    from tests.helpers.small_networks import save_random_network

    return save_random_network(
        tmp_path_factory.mktemp("pretrained"), tokenizer_folder, copy.deepcopy(pretrained_config)
    )


@pytest.fixture(scope="session")
def network_shape(tmp_path_factory, pretrained_config) -> Path:
    """A folder with the configuration of ``pretrained`` alone, for --config_name."""
    folder = tmp_path_factory.mktemp("shape")
    pretrained_config.save_pretrained(folder)
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
def short_data(tmp_path_factory) -> Path:
    """A folder with a file of data for each script, for the runs of tests/helpers/short_runs.py."""
    from tests.helpers.short_runs import write_data

    folder = tmp_path_factory.mktemp("short_runs")
    write_data(folder)
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

    from bert_training.engine.run import Run
    from bert_training.inputs.flags.shared import SharedArguments

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
    from modeling_bert_repro import fast_dropout, fast_path

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


@pytest.fixture(scope="session")
def run_data(tmp_path_factory) -> Path:
    """The data of the runs; some questions of run_squad.py have no answer."""
    from tests.helpers import short_runs
    from tests.helpers.squad_examples import squad_content

    folder = tmp_path_factory.mktemp("data")
    short_runs.write_data(folder)
    (folder / "run_squad.json").write_text(json.dumps(squad_content(12, negative=True)))
    return folder


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory, pretrained, run_data) -> dict[str, Path]:
    """The finished folder of each script."""
    from tests.helpers import short_runs

    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        short_runs.no_pictures(patch)
        for script in short_runs.SCRIPTS:
            more = ["--version_2_with_negative"] if script == "run_squad" else []
            if script in TEST_FILES:
                more += ["--test_file", str(next(run_data.glob(f"{script}.*")))]
            short_runs.start(script, short_runs.flags(script, run_data, place / script, pretrained, *more))
    return {script: place / script for script in short_runs.SCRIPTS}


@pytest.fixture
def copy_of_run(finished_runs, tmp_path) -> Callable[[str], Path]:
    """A function that copies the finished folder of a script; the card names the folder, so the name stays."""
    return lambda script: Path(shutil.copytree(finished_runs[script], tmp_path / script))

"""training/engine/launch.py: the start of a run."""

import os

import pytest

from tests.helpers.clean_process import run_program
from training.engine.launch import CACHE_CAPACITIES, keep_few_primitives


@pytest.mark.parametrize("mixed_precision, kept", [("no", 16), ("bf16", 64)])
def test_onednn_keeps_the_primitives_of_a_step(tmp_path, mixed_precision, kept):
    """With the 1,024 primitives that it keeps by default, none would be made again."""
    program = "tests/programs/cached_primitives.py"
    printed = run_program(program, str(tmp_path / "run"), mixed_precision).splitlines()
    found = [line.split(",")[3] for line in printed if "create:cache" in line]
    if not found:
        pytest.skip("this build of torch does not compute GELU with oneDNN")
    assert found == ["create:cache_hit"] * kept + ["create:cache_miss"] * (100 - kept)


@pytest.mark.parametrize("name", CACHE_CAPACITIES)
def test_the_users_capacity_is_left_as_it_is(monkeypatch, name):
    for each in CACHE_CAPACITIES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "512")
    keep_few_primitives("no")
    assert {each: os.environ[each] for each in CACHE_CAPACITIES if each in os.environ} == {name: "512"}

"""What a release contains, its version, and the files that contributors rely on."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import bert_training
import modeling_bert_repro
from tests.helpers.repository import ROOT

PACKAGES = ("modeling_bert_repro", "tokenization", "bert_training", "bert_tools", "bert_deploy")
SCRIPTS = sorted(path.name for path in (*ROOT.glob("run_*.py"), ROOT / "extract_features.py"))
# This runs in a process of its own, because setuptools changes the state of the process.
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def content(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_of_packages() -> set[str]:
    found = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}


def test_the_wheel_is_complete_and_the_sdist_gives_the_same(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    sdist = build("sdist", source, tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert not (unpacked / "tests").exists()
    (tmp_path / "again").mkdir()
    wheel, again = build("wheel", source, tmp_path), build("wheel", unpacked, tmp_path / "again")
    found = content(wheel)
    programs = {Path(name).name for name in found if ".data/scripts/" in name}
    modules = {name for name in found if ".dist-info/" not in name and ".data/" not in name}
    assert (modules, programs) == (files_of_packages(), set(SCRIPTS))
    assert found == content(again)
    assert wheel.name == f"modeling_bert_repro-{modeling_bert_repro.__version__}-py3-none-any.whl"


def test_the_version_is_written_once():
    """setup.py reads the version without importing torch, the installed package has it, and the other files agree."""
    code = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; import runpy\n"
    code += "sys.argv = ['setup.py', '--version']; runpy.run_path('setup.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    version = modeling_bert_repro.__version__
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [version]), done.stderr
    assert bert_training.__version__ == version, "the installed package has another version; call make install"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    released = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == version
    files = [ROOT / "setup.py", ROOT / "pyproject.toml", *(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))]
    literal = re.compile(r"(?<![a-z])(?<![a-z]_)version(__)? ?= ?[\"']\d+\.\d")
    written = [path for path in files if literal.search(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(ROOT)) for path in written] == ["modeling_bert_repro/__init__.py"]


def test_every_requirement_is_pinned():
    """Each requirement of setup.py has an exact version in constraints.txt."""
    pinned = {
        line.partition("==")[0].lower().replace("-", "_")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    tree = ast.parse((ROOT / "setup.py").read_text())
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "setup")
    given = {k.arg: k.value for k in call.keywords}
    extras = ast.literal_eval(given["extras_require"])
    wanted = [*ast.literal_eval(given["install_requires"]), *(one for extra in extras.values() for one in extra)]
    names = {re.split(r"[<>=]", requirement)[0].lower().replace("-", "_") for requirement in wanted}
    assert names - pinned == set()


def test_what_is_locked_is_what_is_pinned():
    """Every package of .ci/locked.txt has its version of constraints.txt and hashes; torch has an index of its own."""
    pins = {
        re.sub(r"[-_.]+", "-", line.partition("==")[0].lower()): line.partition("==")[2]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    blocks = re.findall(
        r"^([\w-]+)==([^\s;]+).*\n((?: .*\n)*)", (ROOT / ".ci" / "locked.txt").read_text(), re.MULTILINE
    )
    assert {name: version for name, version, _ in blocks} == {name: pins[name] for name, *_ in blocks}
    assert {"transformers", "numpy", "setuptools", "pytest"} <= {name for name, *_ in blocks}
    for name, _, hashes in blocks:
        assert re.fullmatch(r"( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+", hashes), name

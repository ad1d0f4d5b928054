"""What a release contains, its version, and the files that contributors rely on."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
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
    """The build reads the version without importing torch, the installed package has it, and the other files agree."""
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


def test_what_is_installed_and_published_is_fixed():
    """Actions are named by commits, rights are named, no second index is mixed in, and a release has hashes."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
        used = [step["uses"] for step in steps if "uses" in step]
        assert [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == [] != used
        given = workflow["permissions"], *(job.get("permissions", {}) for job in workflow["jobs"].values())
        more = {right for rights in given for right, level in rights.items() if level != "read"}
        assert more == ({"contents", "id-token", "attestations"} if path.stem == "release" else set())
        assert "pull_request_target" not in path.read_text()
        kept = [step.get("with", {}).get("persist-credentials") for step in steps if "checkout" in step.get("uses", "")]
        assert set(kept) == {False}
    files = [ROOT / "Makefile", ROOT / "CONTRIBUTING.md", *(ROOT / ".ci").iterdir(), *ROOT.glob(".github/**/*.yml")]
    mixed = [path.name for path in files if re.search("PIP_FLAGS=.*extra-index|: --extra-index", path.read_text())]
    assert mixed == []
    image = (ROOT / "examples" / "Dockerfile").read_text()
    assert [name for name in PACKAGES if f"COPY {name} {name}\n" not in image] == []
    assert "SHA256SUMS" in (ROOT / ".ci" / "release").read_text()


def pins(file: str) -> dict[str, str]:
    """Name -> version, of a file of .ci/lock."""
    found = re.findall(r"^([\w-]+)==([^\s;]+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    return dict(found)


def test_every_requirement_is_pinned():
    """Each requirement of pyproject.toml has an exact version in constraints.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [
        *project["dependencies"],
        *(one for extra in extras for one in extra if not one.startswith(project["name"])),
    ]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=]", requirement)[0].lower()) for requirement in wanted}
    assert names <= pins("constraints.txt").keys()


def test_what_is_locked_is_what_is_pinned():
    """constraints.txt has the versions of uv.lock, .ci/locked.txt has hashes, too; torch has an index of its own."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    pinned = pins("constraints.txt")
    assert pinned == {one["name"]: one["version"] for one in lock if one["name"] in pinned}
    blocks = re.findall(
        r"^([\w-]+)==([^\s;]+).*\n((?: .*\n)*)", (ROOT / ".ci" / "locked.txt").read_text(), re.MULTILINE
    )
    assert {name: version for name, version, _ in blocks} == {name: pinned[name] for name, *_ in blocks}
    assert {"transformers", "numpy", "setuptools", "pytest"} <= {name for name, *_ in blocks}
    for name, _, hashes in blocks:
        assert re.fullmatch(r"( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+", hashes), name

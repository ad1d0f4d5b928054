"""Write the page of a model as a Space of the Hub: ``app.py``, what it imports, its requirements and the model.

The Space needs no checkout of this project, which is on no package index: it holds those modules that the page imports,
under their own names. Its requirements are the versions that are installed here. What a trained folder holds besides
the model (records, text, code, states of training) stays where it is.
"""

import ast
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from bert_training.app.folder import OpenedModel, check_inside
from bert_training.files import atomic
from bert_training.files.json_files import read_json
from bert_training.files.publishing import CONFIGS, published_config
from bert_training.inputs.flags.objectives import DEFAULT
from bert_training.inputs.models import files_of_index
from tokenization.errors import UserError

ROOT = Path(__file__).parents[2]
OWN = ("bert_training", "tokenization", "modeling_bert_repro")
START = "bert_training.app.page"
APP = '''"""The page of a model, written by bert-repro app --space."""

from pathlib import Path

from bert_training.app.page import serve

serve(Path(__file__).parent / "model", NAME)
'''
MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
               "added_tokens.json")  # fmt: skip


def write_space(opened: OpenedModel, target: str) -> None:
    """Write the Space into a new folder.

    Raises:
        ValueError: the folder exists and is not empty.
    """
    folder = Path(target)
    if atomic.is_occupied(folder):
        raise UserError(f"--space {folder}: exists already; give the name of a new folder")
    modules = needed_modules()
    atomic.make_folder(folder.parent)
    with atomic.new_folder(folder) as draft:
        for module in modules.values():
            copy = draft / module.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(module, copy)
        _copy_model(opened.folder, opened.folder, draft / "model")
        _write_facts(opened, draft / "model")
        for _, checkpoint in opened.checkpoints:
            _copy_model(opened.folder, checkpoint, draft / "model" / checkpoint.name)
        (draft / "app.py").write_text(APP.replace("NAME", ascii(opened.name)), encoding="utf-8")
        (draft / "requirements.txt").write_text("\n".join(requirements(modules)) + "\n", encoding="utf-8")
        (draft / "README.md").write_text(_readme(opened), encoding="utf-8")
    print(f"{folder}: try it with python app.py in that folder; then create a Gradio Space and upload the folder:")
    print(f"  hf upload --repo-type space NAME/SPACE {folder}")


def needed_modules(start: str = START) -> dict[str, Path]:
    """The modules of this project that one module imports, directly or through others: name -> file."""
    found: dict[str, Path] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        path = ROOT.joinpath(*name.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if name in found or name.split(".")[0] not in OWN or not file.is_file():
            continue  # also a name that is imported from a module, such as a function
        found[name] = file
        waiting += [name.rpartition(".")[0], *_imports(file, name if path.is_dir() else name.rpartition(".")[0])]
    return found


def _imports(file: Path, package: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            names += [".".join(base), *(".".join([*base, alias.name]) for alias in node.names)]
    return names


def requirements(modules: dict[str, Path]) -> list[str]:
    """The packages that the modules import, in the versions that are installed here; Gradio is among them.

    Packages that are not installed are skipped; the page does not need them.
    """
    distributions = importlib.metadata.packages_distributions()
    tops = {name.split(".")[0] for file in modules.values() for name in _imports(file, "") if name}
    wanted = {distributions[top][0] for top in tops - set(sys.stdlib_module_names) - set(OWN) if top in distributions}
    # Without what follows "+" in "2.13.0+cpu", which PyPI does not have.
    return sorted(f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in wanted)


def _copy_model(folder: Path, source: Path, target: Path) -> None:
    """Copy the files of a model; ``source`` is ``folder`` or one of its checkpoints, and nothing else is copied."""
    target.mkdir(parents=True)
    index = source / SAFE_WEIGHTS_INDEX_NAME
    parts = [SAFE_WEIGHTS_NAME]
    if not (source / SAFE_WEIGHTS_NAME).is_file():
        parts = [index.name, *files_of_index(index)]
    for name in (*MODEL_FILES, *parts):
        if (source / name).is_file():
            check_inside(folder, source / name)
            if name in CONFIGS:
                atomic.write_json(target / name, published_config(read_json(source / name)))
            else:
                shutil.copyfile(source / name, target / name)


def _write_facts(opened: OpenedModel, target: Path) -> None:
    """Those facts of run.json that the page needs, without flags, paths and names of data."""
    facts: dict = {"flags": {"label_token": "last"} if opened.at_the_end else {}}
    if opened.objective != DEFAULT:  # it says what the head of the pairs tells
        facts["flags"]["objective"] = opened.objective
    if opened.texts:
        facts["texts_per_example"] = opened.texts
    facts["builtin_data"] = opened.builtin
    atomic.write_json(target / "run.json", facts)


def _readme(opened: OpenedModel) -> str:
    title = json.dumps(f"BERT: {opened.name}", ensure_ascii=True)  # JSON strings are YAML strings
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"""---
title: {title}
emoji: 📖
colorFrom: blue
colorTo: gray
sdk: gradio
sdk_version: "{importlib.metadata.version("gradio")}"
python_version: "{python}"
app_file: app.py
pinned: false
---

This page shows what a BERT says about your texts. The folder `model` holds the model, and the folders `bert_training`,
`modeling_bert_repro` and `tokenization` those modules of the project modeling-bert-repro (Apache-2.0) that the page
needs.
"""

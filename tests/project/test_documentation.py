"""What the documentation names exists: links, files, functions, tests, flags and commands; and its code runs.

Three conventions hold on every page of the documentation, and the last one also in the headers of the scripts:
- ``bert_training/engine/optimizer.py: create_optimizer`` names a function, class or constant of that file.
- A link to a file of code has the file's name as its text, alone or as in ``optimizer.py: parameter_groups``.
- A command that contains ... is a sketch: its flags must exist, but it need not be complete.
"""

import ast
import functools
import importlib.util
import itertools
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import launch_command_parser
from transformers import BertConfig

from bert_training import __main__
from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.fine_tuning import GlueArguments
from bert_training.inputs.flags.parsing import FIXED, parse_arguments
from bert_training.inputs.flags.scripts import SCRIPTS, flags_with
from bert_training.tasks.classification import glue
from bert_training.tasks.classification.sources import load_data
from modeling_bert_repro import BertForPreTraining, heads
from modeling_bert_repro.pretrained import CODE_FILES
from tests.helpers.repository import HOUSES, ROOT, pages
from tokenization import build_tokenizer

FLAGS = {
    **{name: script.arguments for name, script in SCRIPTS.items()},
    "extract_features.py": FeatureArguments,
}
PAGES = pages()
SCRIPTS = sorted({*ROOT.glob("*.py")} - {ROOT / "setup.py"})
SOURCES = [
    *SCRIPTS,
    *(path for house in (*HOUSES, "tokenization", "examples") for path in ROOT.glob(f"{house}/**/*.py")),
]
FOLDERS = r"(?:docs|tests|bert_training|bert_tools|bert_deploy|tokenization|modeling_bert_repro|examples|lab|\.ci)"
SUFFIXES = r"(?:py|md|json|toml|txt|sh)"
# The flags of programs that start our scripts. They stand on the command line before the script.
LAUNCHERS = {
    *("--multi_gpu", "--num_processes", "--num_machines", "--config_file", "--mixed_precision", "--cpu"),
    "--master_port",
    *("--nodes", "--gpus-per-node", "--cpus-per-task", "--partition", "--time"),  # of sbatch
    *("--nnodes", "--node_rank", "--nproc_per_node", "--rdzv_backend", "--rdzv_endpoint", "--master_addr"),
    *("--partition", "--account", "--signal", "--requeue", "--open-mode", "--zone", "--worker", "--command"),
    *("--tpu", "--main_training_function"),
    *("--standalone", "--machine_rank", "--main_process_ip", "--main_process_port", "--extra-index-url", "--help"),
    *("--extra", "--torch-backend"),  # of uv
}
# A command begins a line, possibly after "do" and assignments.
COMMAND = re.compile(r"^\s*(?:do\s+)?(?:\w+=\S+\s+)*((?:python3?|accelerate launch|torchrun|bert-repro)\s.*)")


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: str(path.relative_to(ROOT)))


def text_of(path: Path) -> str:
    """The text of a page, or the docstring of a script. Lines that end with a backslash are joined."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    return re.sub(r"\s*\\\n\s*", " ", text)


# --- The checks: each function returns the mistakes in a text --------------------------------------------------------


def broken_links(text: str, page: Path) -> list[str]:
    """The links of a Markdown page to a file or folder that does not exist, or to a heading that is not there."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)|^\[[^]]+\]:\s+(\S+)", text, re.MULTILINE):
        file, _, anchor = "".join(target).partition("#")
        there = page.parent / file if file else page
        if re.match(r"https?:|mailto:", file):
            continue
        if not there.exists() or (anchor and anchor not in anchors(there.read_text(encoding="utf-8"))):
            broken.append("".join(target))
    return broken


def anchors(text: str) -> set[str]:
    """The names that GitHub gives the headings of a page: lower-case, with hyphens, and numbered if they repeat."""
    found: list[str] = []
    for title in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        found.append(re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-"))
    return {name + (f"-{n}" if (n := found[:place].count(name)) else "") for place, name in enumerate(found)}


def missing_files(text: str) -> list[str]:
    named = re.findall(rf"(?<![\w/.])({FOLDERS}/[\w/.-]+\.{SUFFIXES})\b", text)
    named += re.findall(r"(?<![\w/.])(run_[a-z]+\.py)\b", text)
    return [name for name in named if not (ROOT / name).is_file()]


def missing_names(text: str, page: Path = ROOT / "README.md") -> list[str]:
    """The names of functions, classes and constants that are not in the file named before them.

    A link shows only the last part of the file's path; the page says which file it is.
    """
    linked = re.findall(r"\[`([\w.]+\.py)(?::\s(\w+))?`\]\(([^)\s]+)\)", text)
    wrong = [
        f"[{shown}: {name}]({target})"
        for shown, name, target in linked
        if Path(target).name != shown or (name and not defines(page.parent / target, name))
    ]
    unlinked = re.findall(r"`([\w/.]+\.py):\s(\w+)`(?!\])", text)
    return wrong + [f"{file}: {name}" for file, name in unlinked if not defines(ROOT / file, name)]


def defines(file: Path, name: str) -> bool:
    """Whether a Python file exists and defines a function, class or constant of this name."""
    pattern = rf"^ *(def|class) {name}\b|^{name}\b.* = "
    return file.is_file() and re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE) is not None


def missing_tests(text: str) -> list[str]:
    """Those mentions of ``tests/ROOM/test_x.py -k word`` whose word is in no name of a test in that file."""
    return [
        f"{file} -k {word}"
        for file, word in re.findall(r"`(tests/[\w/]+\.py) -k (\w+)", text)
        if not re.search(rf"^def test_\w*{word}", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]


@functools.cache
def flags_of_parsers(paths: tuple[Path, ...]) -> frozenset[str]:
    found = set()
    for path in paths:
        found |= set(re.findall(r"add_argument\(\s*\"(--[\w-]+)\"", path.read_text(encoding="utf-8")))
    return frozenset(found)


def flags_of_scripts() -> set[str]:
    return {f"--{field.name}" for cls in FLAGS.values() for field in fields(cls)}


def unknown_flags(text: str, more: frozenset[str] = frozenset()) -> list[str]:
    known = flags_of_scripts() | flags_of_parsers(tuple(SOURCES)) | LAUNCHERS | more
    # lab/tests/test_pages.py knows the flags of the laboratory's programs.
    text = re.sub(r"<!--.*?-->|(?<!/)\blab/[\w/]+\.py[^`\n]*", "", text, flags=re.DOTALL)
    mentioned = re.findall(r"(?<![\w-])--[a-z][\w-]*\b(?!-)", text)
    return [flag for flag in mentioned if flag not in known and "--" + flag[2:].replace("-", "_") not in known]


def commands(text: str) -> list[str]:
    """The commands in fenced blocks, in inline code and, in the headers of scripts, on indented lines."""
    lines = [line for block in re.findall(r"```.*?```", text, re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text) + [line for line in text.splitlines() if line.startswith("    ")]
    return [match for line in lines for part in line.split(";") for match in COMMAND.findall(part)]


def bad_commands(text: str) -> list[str]:
    problems = []
    for command in dict.fromkeys(one for line in commands(text) for one in line.split(" && ")):
        words = shlex.split(command, comments=True)
        script = next((word for word in words if (ROOT / word).is_file() and word.endswith(".py")), None)
        if words[:2] == ["accelerate", "launch"]:
            problems += unknown_to_accelerate(words, command)
        if words[0] == "bert-repro":
            problems += bad_module("bert_training", words[1:], command)
        elif words[1:2] == ["-m"]:
            problems += bad_module(words[2], words[3:], command)
        elif script is not None and script in {path.name for path in SCRIPTS} and "..." not in words:
            problems += refused(script, words[words.index(script) + 1 :], command)
        elif script is None and words[1:] and words[1].endswith(".py"):
            problems.append(f"{command}: no such script")
    return problems


def unknown_to_accelerate(words: list[str], command: str) -> list[str]:
    """The flags before the script that ``accelerate launch`` does not have."""
    known = launch_command_parser()._option_string_actions
    before = itertools.takewhile(lambda word: ".py" not in word, words)
    return [f"{command}: no flag {word}" for word in before if word.startswith("--") and word not in known]


def bad_module(name: str, words: list[str], command: str) -> list[str]:
    if importlib.util.find_spec(name) is None:
        return [f"{command}: no such module"]
    if not (ROOT / name.partition(".")[0]).is_dir():  # venv, pytest, pip
        return []
    if name == "bert_training" and words and words[0] not in __main__.commands():
        return [f"{command}: no such command of bert-repro"]
    folders = HOUSES if name == "bert_training" else (name.partition(".")[0],)
    files = tuple(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    known = flags_of_parsers(files) | flags_of_scripts()
    flags = [word.strip("[]").partition("=")[0] for word in words if word.lstrip("[").startswith("--")]
    return [f"{command}: no flag {flag}" for flag in flags if flag not in known | {"--help", "--"}]


def refused(script: str, words: list[str], command: str) -> list[str]:
    """An error if the script has no such flags or does not accept their values. Nothing is run."""
    try:
        parse_arguments(FLAGS[script], words)
    except SystemExit:
        return [f"{command}: refused by {script}"]
    return []


# --- The pages -------------------------------------------------------------------------------------------------------


@by_name(PAGES)
def test_links_files_and_names_exist(path):
    text = text_of(path)
    assert not broken_links(text, path)
    assert not missing_files(text)
    assert not missing_names(text, path)
    assert not missing_tests(text)


@by_name([*PAGES, *SCRIPTS, *ROOT.glob("examples/*.sh")])
def test_flags_exist_and_commands_parse(path, capsys, tmp_path, monkeypatch):
    """The commands may give the page's own YAML as --config; its first line is its name."""
    text = text_of(path)
    for name, block in re.findall(r"^```yaml\n# (\w+\.yaml)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(block)
    monkeypatch.chdir(tmp_path)
    problems = bad_commands(text) + unknown_flags(text)
    assert not problems, capsys.readouterr().err


@by_name([path for path in SOURCES if path.parent != ROOT])
def test_headers_of_modules_name_what_exists(path):
    text = text_of(path)
    assert not bad_commands(text) + unknown_flags(text) + missing_files(text)


@by_name(PAGES)
def test_make_targets_exist(path):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {*re.findall(r"[`\n]make ([a-z-]+)", path.read_text())} <= targets


def test_ci_runs_the_tests_as_the_readme_does():
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    commands_of_readme = {line.partition("#")[0].strip() for block in blocks for line in block.splitlines()}
    assert {"make demo", "make test"} <= commands_of_readme
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_readme_lists_every_command():
    tables = re.findall(r"(?:^\|.*\n)+", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert list(__main__.commands()) in [sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) for table in tables]


def test_the_task_of_contributing_can_be_trained(tmp_path, monkeypatch):
    row = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL).group(1)
    ((name, task),) = eval("{" + row + "}", vars(glue)).items()
    monkeypatch.setitem(glue.GLUE_TASKS, name, task)
    lines = "id\tsentence1\tsentence2\tlabel\n1\ta b\tb a\t0\n2\tc\tc\t1\n"
    for file in ("train.tsv", "dev.tsv"):
        (tmp_path / file).write_text(lines)
    flags = {"task_name": name, "data_dir": str(tmp_path), "model_name_or_path": "m", "output_dir": "o"}
    data = load_data(GlueArguments(**flags))
    assert data.splits["validation"].texts == (["a b", "c"], ["b a", "c"])
    assert data.splits["train"].labels == [0, 1]


def test_the_head_of_contributing_has_exact_losses():
    """The micro-batches of the example add up to the loss of the whole batch."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    names = dict(vars(heads))
    exec(next(block for block in blocks if block.startswith("class ")), names)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = names["BertForMeanClassification"](BertConfig(vocab_size=50, num_labels=3, **sizes)).eval()
    ids = torch.arange(5, 23).view(3, 6)
    batch = {"input_ids": ids, "attention_mask": (ids % 6 != 4).long(), "labels": torch.tensor([0, 2, -100])}
    parts = [model(**{name: part[i : i + 1] for name, part in batch.items()}, num_items_in_batch=2) for i in range(3)]
    whole = model(**batch)
    assert whole.loss.item() == pytest.approx(sum(part.loss.item() for part in parts))
    torch.testing.assert_close(torch.cat([part.logits for part in parts]), whole.logits)


# --- docs/checkpoints.md ---------------------------------------------------------------------------------------------

CHECKPOINTS = ROOT / "docs" / "checkpoints.md"


@pytest.fixture
def tiny_model() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(
        BertConfig(
            vocab_size=97,
            hidden_size=24,
            intermediate_size=40,
            max_position_embeddings=48,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
    )


def test_the_list_of_what_must_not_change_is_complete():
    text = CHECKPOINTS.read_text().partition("the error names the difference:\n\n")[2].partition("\n\n")[0]
    counted = {"max_steps", "num_train_epochs", "phases", "per_device_train_batch_size", "gradient_accumulation_steps"}
    assert set(re.findall(r"--(\w+)", text)) - counted == set(flags_with(FIXED))


def test_the_code_files_of_a_folder_are_all_named():
    row = next(line for line in CHECKPOINTS.read_text().splitlines() if line.startswith("| `modeling_bert.py`"))
    assert set(re.findall(r"`(\w+\.py)`", row)) == {*CODE_FILES}


def test_the_code_of_checkpoints_runs(tiny_model, vocab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pieces = vocab[: tiny_model.config.vocab_size]
    tiny_model.save_pretrained("runs/mini")
    build_tokenizer(pieces).save_pretrained("runs/mini")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", CHECKPOINTS.read_text(), re.DOTALL):
        exec(block, names)
    assert type(names["model"]).__module__.startswith("transformers.models.bert")
    assert len(names["guesses"]) == 5
    assert names["classifier"].num_labels == 3

"""Hostile text in data, names and records: pages and cards show it, and terminals do not obey it."""

import html.parser
import json
import random
import re
import shutil
import unicodedata
from pathlib import Path

import pytest
import yaml

from bert_training.files.atomic import write_json
from bert_training.files.hashing import HASHES, hashes_of, hashes_record
from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.hostile_input import SECONDS, refused
from tests.helpers import short_runs
from tests.helpers.fault_runs import Ended, run
from tests.helpers.model_folders import edit_json

# Clear the screen, write to the clipboard, overwrite the line, turn the text around, ring.
ESCAPES = "\x1b[2J\x1b]52;c;cm0gLXJm\x07\rok \u202everified\x9b31m"
MARKUP = "<script>hacked=1</script><img src=x onerror=hack()>\"'&`|[x](javascript:hack())"
BREAK = "\n---\nlicense: evil\n---\n```\n# evil <b>\n| a | b |"
FORMULA = '=HYPERLINK("http://evil","x")'


def check_printed(ended: Ended) -> None:
    """Nothing of what was printed moves a cursor, rings, writes to a clipboard or turns text around."""
    for character in set(ended.printed) - set("\n\t"):
        assert unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp"), (character, ended.printed[-2000:])
        assert not "\u202a" <= character <= "\u202e" and not "\u2066" <= character <= "\u2069"
    assert "Traceback" not in ended.printed, ended.printed[-3000:]


class Tags(html.parser.HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}


def check_markdown(path: Path) -> None:
    """Outside of code, a page of Markdown has no tag, no link of a stranger and no heading of a stranger."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("---\n"):
        front, text = text[4:].split("\n---\n", 1)
        fields = yaml.safe_load(front)
        assert "license" not in fields and fields["library_name"] == "transformers"
    assert text.count("\n```") % 2 == 0, text
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    assert not Tags(text).tags and "# evil" not in re.findall(r"^#.*", text, re.MULTILINE), text
    assert not re.search(r"(?<!\\)\]\(javascript", text), text


def check_pages(folder: Path) -> None:
    for path in folder.rglob("*.md"):
        check_markdown(path)
    for path in folder.rglob("answers.html"):
        page = Tags(path.read_text(encoding="utf-8"))
        assert not {"script", "img", "b", "a", "iframe"} & set(page.tags)
        assert not [name for name in page.attributes if name.startswith("on") or name in ("src", "href")]


def start(place: Path, script: str, pretrained: Path, data: Path, file: Path | None = None, out: str = "out") -> Ended:
    words = short_runs.flags(script, data, place, pretrained)
    words[words.index("--output_dir") + 1] = str(place / out)
    if file is not None:
        for flag in ("--train_file", "--validation_file"):
            words[words.index(flag) + 1] = str(file)
    return run(script, words, place, seconds=SECONDS)


# --- data -------------------------------------------------------------------------------------------------------


def labels(place: Path, attack: str) -> Path:
    rows = [{"text": attack, "label": attack}, {"text": "the king", "label": FORMULA}] * 4
    (place / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place / "data.jsonl"


def tags(place: Path, attack: str) -> Path:
    word = "".join(attack.split())
    text = f"{word} B-{word}\nking O\n\nqueen B-{word}\n. O\n\n" * 4
    (place / "data.txt").write_text(text, encoding="utf-8", newline="\n")
    return place / "data.txt"


def questions(place: Path, attack: str) -> Path:
    context = f"the old {attack} house by the river ."
    # An attack is longer than a window, and a run whose answers are all longer is refused.
    answers = [attack.strip(), "house"] * 4
    asked = [
        {
            "id": f"{attack}{i}",
            "question": f"{attack} ?",
            "answers": [{"text": text, "answer_start": context.index(text)}],
        }
        for i, text in enumerate(answers)
    ]
    content = {"data": [{"title": attack, "paragraphs": [{"context": context, "qas": asked}]}]}
    (place / "data.json").write_text(json.dumps(content))
    return place / "data.json"


def endings(place: Path, attack: str) -> Path:
    quoted = '"' + attack.replace('"', '""').replace("\r", " ") + '"'
    header = "sent1,sent2,ending0,ending1,ending2,ending3,label\n"
    text = header + f'{quoted},he,{quoted},"{FORMULA.replace(chr(34), "")}",c,d,1\n' * 8
    (place / "data.csv").write_text(text, encoding="utf-8", newline="\n")
    return place / "data.csv"


MAKERS = {"run_glue": labels, "run_ner": tags, "run_squad": questions, "run_swag": endings}


@faults("hostile input", 8)
def test_hostile_data_is_shown_and_not_obeyed(seed, short_data, pretrained, tmp_path, record_property):
    """Labels, tags, questions, ids and endings with escape sequences, tags and formulas."""
    script = list(MAKERS)[(seed + seed // 4) % 4]
    attack = (ESCAPES + MARKUP, MARKUP + BREAK.replace("\n", " ") + ESCAPES)[seed // 4]
    ended = start(tmp_path, script, pretrained, short_data, MAKERS[script](tmp_path, attack))
    assert not ended.timed_out
    check_printed(ended)
    if ended.status == 2:
        refused(ended, "data.")
    else:
        assert ended.status == 0, ended.printed
        check_pages(tmp_path / "out")
    record_property("outcome", "refused" if ended.status else "written harmlessly")


# --- errors that quote ------------------------------------------------------------------------------------------


def quoted(place: Path, kind: str) -> tuple[str, Path]:
    content = {
        "glue.tsv": f"text\tlabel\na\tx\n{ESCAPES}\ty\t{ESCAPES}\n",
        "glue.csv": f'text,label\n"{ESCAPES},x\n',
        "glue.jsonl": f'{{"text": "a", "label": "x"}}\n{ESCAPES}\n',
        "header.csv": f"{ESCAPES},{ESCAPES}\na,b\n",
        "ner.txt": f"Anna {ESCAPES.replace(chr(32), '')}\n",
        "squad.json": json.dumps({"data": [{"title": ESCAPES, "paragraphs": [{"context": 3}]}]}),
        "swag.csv": f"sent1,sent2,ending0,label\na,b,c,{ESCAPES.replace(chr(13), '')}\n",
        "text.jsonl": f'{{"{"[" * 10}": 1}}\n{ESCAPES}',
    }[kind]
    (place / kind).write_text(content, encoding="utf-8", newline="")
    script = {"glue": "run_glue", "header": "run_glue", "ner": "run_ner", "squad": "run_squad", "swag": "run_swag"}
    return script.get(kind.partition(".")[0], "run_pretraining"), place / kind


@faults("hostile input", 8)
def test_an_error_that_quotes_the_data_is_harmless(seed, short_data, pretrained, tmp_path, record_property):
    kinds = ["glue.tsv", "glue.csv", "glue.jsonl", "header.csv", "ner.txt", "squad.json", "swag.csv", "text.jsonl"]
    script, file = quoted(tmp_path, kinds[seed])
    ended = start(tmp_path, script, pretrained, short_data, file)
    check_printed(ended)
    refused(ended, str(file))
    record_property("outcome", "refused")


# --- names of files ---------------------------------------------------------------------------------------------

NAMES = {
    "escapes": ESCAPES + ".csv",
    "markup": MARKUP.replace("/", "") + ".csv",
    "line ends": BREAK.replace("/", "") + ".csv",
    "a dash": "-rf --output_dir x.csv",
    "quotes": "a'b\"c $(touch hacked) ; `touch hacked`.csv",
    "formula": FORMULA.replace("/", "") + ".csv",
    "braces": "{0} {x!r} %s %(x)s \\N{BELL}.csv",
    "not UTF-8": "\udcff\udcfe.csv",
    "other scripts": "данные 数据 בית.csv",
}


@faults("hostile input", 9)
def test_any_name_of_a_file_may_be_given(seed, pretrained, short_data, tmp_path, record_property):
    """The run ends well, or says in one line what is wrong with the name; its folder's name is hostile as well."""
    kind = random.Random(4).sample(sorted(NAMES), len(NAMES))[seed]
    file = tmp_path / NAMES[kind]
    shutil.copy(short_data / "run_glue.csv", file)
    out = NAMES[kind].removesuffix(".csv") if kind != "not UTF-8" else "out"
    ended = start(tmp_path, "run_glue", pretrained, short_data, file, out)
    check_printed(ended)
    assert not (tmp_path / "hacked").exists()
    if kind == "not UTF-8":
        refused(ended, "is not UTF-8; rename the file")
        record_property("outcome", "refused")
        return
    assert ended.status == 0, ended.printed
    check_pages(tmp_path)
    told = run("bert_training", ["report", f"./{out}", "--output_dir", "report"], tmp_path)
    check_printed(told)
    assert told.status == 0, told.printed
    check_pages(tmp_path / "report")
    verified = run("bert_training", ["verify", f"./{out}", "--skip_evaluation"], tmp_path)
    check_printed(verified)
    assert verified.status == 0, verified.printed
    record_property("outcome", "written harmlessly")


# --- records ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(short_data, pretrained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    assert start(folder, "run_glue", pretrained, short_data).status == 0
    return folder / "out"


def in_run(**fields: object):
    return lambda folder: edit_json(folder / "run.json", **fields)


def in_flags(**fields: object):
    def change(folder: Path) -> None:
        flags = json.loads((folder / "run.json").read_text())["flags"]
        edit_json(folder / "run.json", flags=flags | fields)

    return change


def metric(folder: Path) -> None:
    event = {"event": "eval", "step": 1, ESCAPES: 1.0, "eval_accuracy": 0.5}
    (folder / "metrics.jsonl").write_text(json.dumps(event) + "\n")


ATTACK = ESCAPES + MARKUP + BREAK
RECORDS = {
    "task": in_flags(task_name=ATTACK),
    "origin": in_flags(model_name_or_path=ATTACK),
    "device": in_run(device=ATTACK),
    "commit": in_run(commit=ATTACK),
    "versions": in_run(versions={ATTACK: ATTACK}),
    "command": in_run(command=[ATTACK]),
    "script": in_run(script=ATTACK),
    "data": in_run(data={"task": ATTACK, "splits": {ATTACK: {"examples": 1, "source": ATTACK, "sha256": ATTACK}}}),
    "hashes": lambda folder: edit_json(folder / "hashes.json", sha256={ATTACK: ATTACK}),
    "results": lambda folder: edit_json(folder / "all_results.json", **{ATTACK: 1.0}),
    "metric": metric,
    "nested": lambda folder: (folder / "run.json").write_text("[" * 100_000),
}


@faults("hostile input", 12)
def test_a_hostile_record_is_shown_and_not_obeyed(seed, finished, tmp_path, record_property):
    """The report and the verification of a folder whose records a stranger has rewritten."""
    name = random.Random(5).sample(sorted(RECORDS), len(RECORDS))[seed]
    shutil.copytree(finished, tmp_path / "run")
    RECORDS[name](tmp_path / "run")
    verified = run("bert_training", ["verify", "run", "--skip_evaluation"], tmp_path)
    check_printed(verified)
    assert verified.status == 1 and "differs" in verified.printed, verified.printed
    write_json(tmp_path / "run" / HASHES, hashes_record(hashes_of(tmp_path / "run")))  # A forger does this, too.
    verified = run("bert_training", ["verify", "run", "--skip_evaluation"], tmp_path)
    check_printed(verified)
    assert all(line[:1] in (" ", "r") for line in verified.printed.strip().split("\n")), verified.printed
    told = run("bert_training", ["report", "run", "--output_dir", "report"], tmp_path)
    check_printed(told)
    if told.status:
        refused(told, "run.json")
    else:
        check_pages(tmp_path / "report")
    curves = run("bert_training", ["curves", "run"], tmp_path, pictures=True)
    check_printed(curves)
    assert curves.status in (0, 2), curves.printed
    record_property("outcome", "refused" if told.status else "written harmlessly")

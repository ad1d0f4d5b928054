"""The figures on the pages are those of the records, and a mistake that is planted in a page is found."""

import ast
import json
import random
import re
import subprocess

import pytest

from bert_training.tools.figures import all_figures, blocks_of, format_like, mistakes, output_of, pages, value_of
from lab.benchmarks import provenance, tables
from lab.tests.helpers.paper_plans import write_table
from tests.helpers.repository import ROOT

PAGES = pages()
MUTATIONS = 50


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_pages_say_what_the_records_say(path):
    found = mistakes(path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found) + "\ntraining/tools/figures.py explains how a figure is tied to its record."


def mutated(text: str, figure, rng: random.Random) -> str:
    """The page after a change of one digit of the figure, or of its sign."""
    old = figure.text
    if rng.random() < 0.25 and not text[figure.start - 1].isalnum():
        new = {"+": "-", "-": "+", "−": "+"}[old[0]] + old[1:] if old[0] in "+-−" else f"-{old}"
    else:
        place = rng.choice([place for place, character in enumerate(old) if character.isdigit()])
        new = old[:place] + rng.choice([digit for digit in "0123456789" if digit != old[place]]) + old[place + 1 :]
    return text[: figure.start] + new + text[figure.end :]


def test_planted_mistakes_are_all_found():
    """Any figure of any page may be wrong: in the text or a table, of a record, a constant, or printed by a command."""
    rng = random.Random(0)
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    everywhere = [(path, figure) for path, text in texts.items() for figure in all_figures(text)]
    assert len(everywhere) > 500
    for path, figure in rng.sample(everywhere, MUTATIONS):
        planted = mutated(texts[path], figure, rng)
        change = f"{figure.text} at {figure.start} became {planted[figure.start :][:12]!r}"
        assert mistakes(planted), f"{path.name}: nobody noticed that {change}"


def texts_of(text: str) -> list[list[str]]:
    return [[figure.text for figure in block.figures] for block in blocks_of(text) if block.figures]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It was 1.09, -0.6 or +0.3 %, of 395,451 in 81 minutes, 3 times, 1e-5.", "1.09 -0.6 +0.3 395,451 81 3 1e-5"),
        ("Five of 12 seeds in 2015, 16 x 128, L=4, rows 1.0-2.5 MB.", "1.0 2.5"),
        ("torch 2.13, Python 3.11 to 3.13, SQuAD 1.1 and 2.0, section 4.1, Table 7, v2.0, U+2B820", ""),
        ("`0.5` [a 1.5](docs/x-2.5.md) https://a.b/3.5 <!-- 4.5 -->", "1.5"),
        ("| a 1.5 | 128 |\n|---|---|\n| 12 | 1 row |\n| 24.8 ± 1.7 (5) | 1 to 2 |", "1.5 12 24.8 1.7 5 1 2"),
        ("50 per cent, 30 MB, 7 points, 12 s", "50 30 7 12"),
    ],
)  # fmt: skip
def test_which_numbers_of_a_text_are_figures(text, expected):
    assert " ".join(figure for block in texts_of(text) for figure in block) == expected


def test_blocks_are_paragraphs_items_tables_and_headings():
    text = "# A 1.1\n\nOne 1.2\nand 1.3.\n- two 1.4\n  and 1.5\n- three 1.6\n\n| 1.7 |\n|---|\n| 1.8 |\nFour 1.9\n"
    assert texts_of(text) == [["1.1"], ["1.2", "1.3"], ["1.4", "1.5"], ["1.6"], ["1.7", "1.8"], ["1.9"]]


RUN = "mini-14000#eval_mlm_loss"  # 6.3602
TIED = f"The loss is 6.360 of 30,522.\n\n<!-- figures: {RUN}; =30,522 (pieces) -->\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("6.360", "6.361"),
        ("6.360", "-6.360"),
        ("6.360", "+6.350"),
        ("6.360", "636.0"),
        ("6.360", "6.549"),  # the same quantity of another run
        ("6.360", "0.159"),  # another quantity of the same record
        ("30,522", "30,523"),
        ("is 6.360 of 30,522", "of 30,522 is 6.360"),
        ("6.360", "6.360 and 1.5"),
        ("\n\n<!--", "\n\n- another item\n\n<!--"),
        (RUN, "mini-14000#eval_nothing"),
        (RUN, "nothing#eval_mlm_loss"),
        (RUN, f"percent({RUN})"),
        (RUN, "mini-14000#eval_mlm_loss[0]"),
    ],
)
def test_a_mistake_in_a_tied_text_is_found(old, new):
    assert not mistakes(TIED)
    assert mistakes(TIED.replace(old, new, 1))


def test_words_may_change_around_the_figures():
    text = (
        f"- At the end: 6.360 nats, says the **record**;\n  of 30,522.\n  <!-- figures: {RUN}; =30,522 -->\n- Next.\n"
    )
    assert not mistakes(text)
    assert not mistakes("5.1 %\n<!-- constants: 5.1 -->\n\n# A\n")


def test_the_value_of_an_entry_and_its_printed_form():
    folder = ROOT / "lab" / "records" / "runs" / "minilm-cola"
    scores = [json.loads((folder / f"seed-{s}/all_results.json").read_text()) for s in range(42, 47)]
    values = [score["eval_matthews_correlation"] for score in scores]
    assert value_of("mean(minilm-cola/seed-*#eval_matthews_correlation)") == pytest.approx(sum(values) / 5)
    assert value_of("mini-14000/metrics.jsonl#[event=eval,step=6000].eval_mlm_loss") == pytest.approx(6.528, abs=5e-4)
    assert value_of('lengths.json#lengths["mrpc train"].padded_to') == 128
    assert value_of("rounded(ratio(1000, 3), 100)") == 300
    forms = [
        (1234.5678, "1,234.57"),
        (-0.04, "-0.0"),
        (0.3, "+0.3"),
        (3e-5, "3e-5"),
        (-2.0, "−2.0"),
        (1e6, "1,000,000"),
    ]
    for value, text in forms:
        assert format_like(value, text) == text
    with pytest.raises(ValueError, match="the record has no single"):
        value_of("mini-14000/metrics.jsonl#[event=eval].eval_mlm_loss")


def test_what_a_command_prints_is_compared_as_a_whole():
    command = "python lab/tables.py lengths.json"
    block = f"<!-- {command} -->\n{output_of(command)}<!-- end -->"
    page = f"# A\n\n{block}\n"
    assert not mistakes(page)
    assert mistakes(page.replace("41.6", "41.7", 1))
    with pytest.raises(ValueError, match=r"expected step_cpu.json, .* or FOLDER:STEP,STEP of a run; got nothing.json"):
        tables.output(["nothing.json"])
    with pytest.raises(ValueError, match="expected an evaluation at step 7; there are those at"):
        tables.output(["lab/records/runs/mini-14000:7"])


@pytest.fixture
def fresh_outputs():
    """What commands printed is kept; here it is forgotten before and after the test, whose records are its own."""
    output_of.cache_clear()
    yield
    output_of.cache_clear()


def test_a_copy_of_a_recorded_report_is_compared_as_a_whole(fresh_outputs, monkeypatch, tmp_path):
    monkeypatch.setattr("bert_training.tools.figures.ROOT", tmp_path)
    folder = tmp_path / "lab/records/runs/paper/table7"
    write_table(folder, "7")
    command = "copy of lab/records/runs/paper/table7/report.md"
    copied = output_of(command)
    assert "](runs/paper/table7/report.png)" in copied and "**What the paper concludes**" in copied
    assert "the level of that interval" not in copied and "| Embeddings | " in copied
    page = f"# A\n\n<!-- {command} -->\n{copied}<!-- end -->\n"
    assert not mistakes(page)
    assert mistakes(page.replace("*contradicted*", "*holds*", 1))
    assert mistakes(page.replace("±", "+", 1))
    (folder / "report.md").unlink()
    output_of.cache_clear()
    with pytest.raises(ValueError, match="no such recorded report"):
        output_of(command)


# --- lab/benchmarks/provenance.py
# ----------------------------------------------------------------------------------------


def test_a_record_names_the_files_that_took_part():
    record = provenance.provenance("lab/benchmarks/step.py", ["--tiny"])
    assert record["command"] == "python lab/benchmarks/step.py --tiny"
    assert {"date", "commit", "versions", "device", "cores", "load_at_start"} <= set(record)
    # Both are imported in this process.
    assert "lab/benchmarks/step.py" in record["sources"] and "lab/tables.py" in record["sources"]
    assert not [name for name in record["sources"] if name.startswith(("tests", ".")) or "site-packages" in name]


def test_a_tree_with_new_records_alone_is_the_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    record, code = tmp_path / "benchmarks" / "results" / "step.json", tmp_path / "step.py"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    code.write_text("x = 1\n")
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    record.write_text("{1}")
    clean = provenance.commit()
    code.write_text("x = 2\n")
    assert not clean.endswith("-dirty") and provenance.commit() == f"{clean}-dirty"


@pytest.mark.parametrize("path", sorted(ROOT.glob("lab/benchmarks/*.py")), ids=lambda path: path.name)
def test_every_benchmark_records_its_sources(path):
    text = path.read_text(encoding="utf-8")
    writes = re.search(r"write_text\(json\.dumps|write_json\(", text)
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    named = [ast.literal_eval(c.args[0]) for c in calls if getattr(c.func, "id", "") == "provenance" and c.args]
    assert named == ([f"lab/benchmarks/{path.name}"] if writes or path.name == "step.py" else [])

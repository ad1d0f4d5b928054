"""Malformed tables: GLUE's official TSVs, TSV, CSV and JSON lines of the user, SWAG and named entities."""

import random
import re

from lab.tests.helpers.fault_campaign import faults
from lab.tests.helpers.malformed import judged
from lab.tests.helpers.malformed_tables import (
    ANSWERS,
    READ,
    TEXTS,
    as_csv,
    conll_oracle,
    conll_read,
    damaged_own,
    glue_oracle,
    glue_rows,
    own_oracle,
    own_read,
    swag_oracle,
    swag_read,
)
from lab.tests.helpers.mutations import damaged_json_lines, damaged_lines, damaged_table
from tests.helpers.official_files import (
    LAYOUTS,
    write_task,
)
from tests.helpers.tagged_text import CONLL

ROW = "malformed input"


WHOLE = (
    r"got none|at least two labels|expected lines of a word and its tag, got an empty|all tags to train on are"
    r"|got UTF-16|expected a column|is there twice|expected a header line|may be a class"
    r"|of another row"
)


@faults(ROW, 300)
def test_official_files_of_glue(seed, tmp_path, record_property):
    draw = random.Random(seed)
    task = sorted(LAYOUTS)[seed // 10 % 10]  # every tenth seed has another task
    name = draw.choice(sorted(LAYOUTS[task]))
    path = write_task(tmp_path, task, rows=12) / name
    content = path.read_bytes()
    damage = damaged_lines(draw, content) if draw.random() < 0.4 else damaged_table(draw, content, b"\t")
    path.write_bytes(damage)
    outcome = judged(lambda: glue_rows(task, path), lambda: glue_oracle(task, name, damage), name, WHOLE)
    record_property("outcome", outcome)


@faults(ROW, 260)
def test_tables_of_the_user(seed, tmp_path, record_property):
    draw = random.Random(seed)
    kind = draw.choice(sorted(READ))
    content = damaged_own(draw, kind)
    path = tmp_path / f"own{kind}"
    path.write_bytes(content)
    outcome = judged(lambda: own_read(path), lambda: own_oracle(READ[kind](content)), path.name, WHOLE)
    record_property("outcome", outcome)


@faults(ROW, 140)
def test_swag(seed, tmp_path, record_property):
    draw = random.Random(seed)
    rows = [
        {"": str(number), "sent1": f"{draw.choice(TEXTS)} {number}", "sent2": draw.choice(TEXTS)}
        | {f"ending{place}": f"{draw.choice(ANSWERS)} {place}" for place in range(4)}
        | {"label": str(number % 4)}
        for number in range(8)
    ]
    kind = draw.choice((".csv", ".csv", ".jsonl"))
    if kind == ".jsonl":
        content = damaged_json_lines(draw, [row | {"label": int(row["label"])} for row in rows])
    else:
        content = as_csv(rows, "\n")
        content = damaged_lines(draw, content) if draw.random() < 0.5 else damaged_table(draw, content, b",")
    path = tmp_path / f"val{kind}"
    path.write_bytes(content)
    outcome = judged(lambda: swag_read(path), lambda: swag_oracle(READ[kind](content)), path.name, WHOLE)
    record_property("outcome", outcome)


@faults(ROW, 200)
def test_named_entities(seed, tmp_path, record_property):
    draw = random.Random(seed)
    content = CONLL.encode()
    if draw.random() < 0.5:  # the same tags as BIO
        content = content.replace(b"Anna NNP I-NP I-PER", b"Anna NNP I-NP B-PER")
        content = re.sub(
            rb"(?<= O)\n((?:\S+ ){3})I-|(?<=\n\n)((?:\S+ ){3})I-",
            lambda m: (b"\n" + m[1] if m[1] else m[2]) + b"B-",
            content,
        )
    if draw.random() < 0.3:
        content = content.replace(b" ", b"\t")
    kind, separator = draw.random(), b"\t" if b"\t" in content else b" "
    if kind < 0.4:
        content = damaged_lines(draw, content)
    elif kind < 0.7:
        rows = content.split(b"\n")
        at = draw.choice([number for number, row in enumerate(rows) if row and not row.startswith(b"-DOC")])
        cells = rows[at].split(separator)
        place = draw.randrange(4)
        changes = [cells[:place] + cells[place + 1 :], [*cells, b"x"], [*cells[:3], b"I-"], [*cells[:3], b"PER"],
                   [*cells[:3], b"B-LOC"], [*cells[:3], b"I-MISC"], [*cells[:3], b"E-PER"], [*cells[:3], b"S-PER"],
                   [*cells[:3], b"o"], [*cells[:3], b""], [b"", *cells[1:]], [b"\xc2\xa0", *cells[1:]],
                   [*cells[:3], b"B-\xc2\xa0"], [cells[3], *cells[1:3], cells[0]], [b"-DOCSTART-"]]  # fmt: skip
        rows[at] = separator.join(draw.choice(changes))
        content = b"\n".join(rows)
    else:
        letters = draw.choice([(b" I-", b" B-"), (b" B-", b" I-"), (b"I-PER", b"E-PER"), (b"O", b"0"), (b"-", b"_")])
        content = content.replace(*letters, draw.choice((1, 2, 3)))
    path, mixed = tmp_path / "train.txt", draw.random() < 0.2
    path.write_bytes(content)
    outcome = judged(lambda: conll_read(path, mixed), lambda: conll_oracle(content, mixed), path.name, WHOLE)
    record_property("outcome", outcome)

"""bert_training/inputs/flags/scripts.py: one table says what the scripts that train are."""

import ast

from bert_training.inputs.flags.scripts import SCRIPTS, opened_by
from tests.helpers.repository import sources


def test_what_opens_a_network_that_several_scripts_make():
    """The script that needs no flag is named first."""
    assert opened_by()["BertForTokenClassification"] == "run_ner.py, or run_glue.py with --label_token last"
    assert opened_by()["BertForMultipleChoice"] == "run_swag.py"


def test_nothing_compares_the_name_of_a_script_or_tables_it():
    """What differs between scripts is in their rows."""
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            keys = node.keys if isinstance(node, ast.Dict) else []
            words = {ast.unparse(part).strip("'") for part in (*compared, *keys) if part}
            found |= {(path.name, word) for word in words & {*SCRIPTS, *(name.removesuffix(".py") for name in SCRIPTS)}}
    assert found == {("scripts.py", name) for name in SCRIPTS}

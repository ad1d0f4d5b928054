"""The tests notice mistakes: each row of the tables is planted in a copy, and some test of the copy must turn red.

tests/helpers/network_faults.py has the table of the network, tests/helpers/training_faults.py the one of the training,
tests/helpers/teacher_faults.py the one of learning from a teacher.
A row that stays green means that a test is missing or has become too weak.
"""

import pytest

from tests.helpers import network_faults, teacher_faults, training_faults
from tests.helpers.planting import faulty_source, run_on_a_copy

TABLES = {"network": network_faults.FAULTS, "training": training_faults.FAULTS, "teachers": teacher_faults.FAULTS}
FAULTS = {f"{table}: {name}": fault for table, faults in TABLES.items() for name, fault in faults.items()}


@pytest.mark.parametrize("name", FAULTS)
def test_the_table_fits_the_code(name):
    compile(faulty_source(FAULTS[name]), FAULTS[name].file, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_copy_without_a_fault_is_green(table, tmp_path):
    """Otherwise every fault would seem to be noticed."""
    tests = sorted({test for fault in TABLES[table].values() for test in fault.tests})
    status, printed = run_on_a_copy(tmp_path, tests)
    assert status == 0, printed[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_noticed(name, tmp_path):
    status, printed = run_on_a_copy(tmp_path, FAULTS[name].tests, FAULTS[name])
    assert status == 1, f"no test noticed the fault {name!r}\n{printed[-2000:]}"
    assert "FAILED" in printed, printed[-2000:]

import re
import time
from collections import Counter

import pytest

from tests.helpers.file_writers import NAMES, check_finished


@pytest.mark.parametrize("name", NAMES)
def test_ref(name, unbroken, capsys):
    t = time.time()
    u = unbroken(name)
    t = time.time() - t
    with capsys.disabled():
        print("\n==", name, round(t, 2), len(u.moments))
        c = Counter((m, re.sub(r"[0-9a-f]{32}|\d+", "#", p)) for m, p, s in u.moments)
        for k, v in c.items():
            print("   ", v, *k)
    check_finished(u.folders[1], u.folders)

"""The demo, from learning a vocabulary to the report, needs no network and does not ask for one."""

import re
import subprocess
import sys

import pytest

from lab.tests.helpers.fault_campaign import faults
from tests.helpers.no_network import alone, guarded
from tests.helpers.repository import ROOT


# It takes as long as make demo does. tests/examples/test_demo.py, which CI runs, is guarded in the same way.
@faults("no network", 1, in_ci=False)
def test_the_demo_needs_no_network(seed, tmp_path, record_property):
    environment = guarded(tmp_path) | {"DEMO_DIR": str(tmp_path / "demo")}
    command = [*alone(), "bash", str(ROOT / "examples/demo.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert not (tmp_path / "asked").exists(), (tmp_path / "asked").read_text()
    assert re.search(r"^\| pair task \| accuracy, [\d,]+ rows \|", done.stdout, re.MULTILINE)
    assert (tmp_path / "demo/report/report.md").is_file()
    record_property("outcome", "green, and nothing asked for the network")


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "import socket; socket.getaddrinfo('huggingface.co', 443)",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:1')",
        "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'', ('127.0.0.1', 9))",
    ],
)
def test_the_guard_notices_the_network(tmp_path, code):
    """Without it, the test above would show nothing."""
    done = subprocess.run([sys.executable, "-c", code], env=guarded(tmp_path), capture_output=True, text=True)
    assert done.returncode == 1 and "the network is refused here" in done.stderr
    assert (tmp_path / "asked").read_text().startswith("socket.")


def test_the_guard_lets_sockets_of_this_machine_pass(tmp_path):
    code = "import socket; a, b = socket.socketpair(); a.send(b'x'); s = socket.socket(socket.AF_UNIX); s.bind('s')"
    done = subprocess.run([sys.executable, "-c", code], env=guarded(tmp_path), cwd=tmp_path)
    assert done.returncode == 0 and not (tmp_path / "asked").exists()

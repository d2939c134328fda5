"""The client's public door, where the core install alone must do."""

import subprocess
import sys

from tests.kit.processes.broker import REPOSITORY


def test_importing_loads_neither_numpy_nor_broker() -> None:
    script = (
        "import sys, kafkalite.client, kafkalite.client.client\n"
        "rooms = {'broker', 'log', 'net', 'handlers', 'config', 'dispatch'}\n"
        "print([name for name in sys.modules if name == 'numpy' or set(name.split('.')[1:2]) & rooms "
        "and name.startswith('kafkalite.')])"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

"""The client's public door: every name leads somewhere, and importing it costs nothing."""

import subprocess
import sys

import pytest

import kafkalite.client as package
from tests.support.process import REPOSITORY


def test_every_public_name_is_there() -> None:
    assert sorted(package.__all__) == sorted(package._WHERE)
    for name in package.__all__:
        assert getattr(package, name).__name__ == name


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = package.nothing


def test_importing_loads_neither_numpy_nor_broker() -> None:
    script = (
        "import sys, kafkalite.client, kafkalite.client.client\n"
        "rooms = {'broker', 'log', 'net', 'handlers', 'config', 'dispatch'}\n"
        "print([name for name in sys.modules if name == 'numpy' or set(name.split('.')[1:2]) & rooms "
        "and name.startswith('kafkalite.')])"
    )
    result = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

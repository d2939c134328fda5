"""The generated modules are what the generator writes today, and the tables agree with the classes beside them."""

import dataclasses
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.api import APIS

ROOT = Path(__file__).resolve().parents[4]


def test_generated_modules_are_fresh():
    pytest.importorskip("kio")
    done = subprocess.run(
        [sys.executable, "tools/generate_messages.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("row", APIS.values(), ids=lambda row: row.name)
def test_table_rows_are_the_fields(row):
    module = import_module(f"kafkalite.wire.protocol.messages.{row.module}")
    classes = [item for item in vars(module).values() if dataclasses.is_dataclass(item)]
    assert {f"{row.name}Request", f"{row.name}Response"} <= {item.__name__ for item in classes}
    for item in classes:
        assert [line[0] for line in item.FIELDS] == [field.name for field in dataclasses.fields(item)]
        assert "__dict__" not in dir(item())


def test_api_constants_are_the_table():
    constants = {name: value for name, value in vars(api).items() if name.isupper() and isinstance(value, int)}
    assert {APIS[key].module.upper(): key for key in APIS} == constants
    assert list(APIS) == sorted(APIS)


def test_importing_the_protocol_loads_no_message_and_no_schema_library():
    """Start-up time: messages load when first used."""
    code = (
        "import sys, kafkalite.wire.protocol;"
        "print([n for n in sys.modules if n.startswith(('kafkalite.wire.protocol.messages.', 'kio', 'dataclasses'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

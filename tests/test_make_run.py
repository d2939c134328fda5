"""`make run` prints the console's address, and starts the console unless CONSOLE is empty."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WAIT_S = 60


@pytest.mark.parametrize(
    ("address", "printed"), [("127.0.0.1:8090", ["console: http://127.0.0.1:8090"]), ("", [])], ids=["console", "none"]
)
def test_make_run_prints_the_address_of_the_console(tmp_path: Path, address: str, printed: list[str]) -> None:
    command = tmp_path / "bin" / "kafkalite"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    built = tmp_path / ".built"
    built.touch()
    arguments = ["make", "--no-print-directory", "-o", str(built), "run", f"VENV={tmp_path}", f"CONSOLE={address}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=True)
    *first, started = done.stdout.splitlines()
    assert first == printed
    assert ("--console" in started) is bool(address)

"""`make run` prints the console's address, or the command that installs the console."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WAIT_S = 60


@pytest.mark.parametrize(
    ("installed", "address", "said"),
    [
        (True, "127.0.0.1:8090", "console: http://127.0.0.1:8090"),
        (False, "127.0.0.1:8090", "no console: {venv}/bin/pip install -e '.[console]' adds it"),
        (True, "", None),
    ],
)
def test_make_run_says_where_the_console_is(tmp_path: Path, installed: bool, address: str, said: str | None) -> None:
    command = tmp_path / "bin" / "kafkalite"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    if installed:
        for name in ("jinja2", "waitress"):
            (tmp_path / "lib/python3.12/site-packages" / name).mkdir(parents=True)
    built = tmp_path / ".built"
    built.touch()
    arguments = ["make", "--no-print-directory", "-o", str(built), "run", f"VENV={tmp_path}", f"CONSOLE={address}"]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=True)
    *first, started = done.stdout.splitlines()
    assert first == ([] if said is None else [said.format(venv=tmp_path)])
    assert ("--console" in started) is (installed and bool(address))

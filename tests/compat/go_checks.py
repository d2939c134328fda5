"""What the tests of both Go clients are: a program that makes one check, and the checks by the matrix's columns."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat.records import CODECS
from tests.compat.toolchains import NotAvailable, build_go

TIMEOUT_S = 90
CODECS_AND_ACKS = [(codec, acks) for codec in CODECS for acks in ("0", "1", "all")]
CHECKS = {
    "edges": "produce, consume",
    "idempotent": "idempotent",
    "times": "seek by time",
    "group": "groups",
    "admin": "admin",
}
PARAMETERS = [pytest.param(name, marks=pytest.mark.capability(column)) for name, column in CHECKS.items()]


def program(folder: str, client: str, bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Callable[..., None]:
    """`check(name, topic, argument)` runs one check of the client's program, which is built first."""
    try:
        path = build_go(folder)
    except NotAvailable as missing:
        not_run(client, str(missing))

    def check(name: str, topic: str, argument: str = "") -> None:
        command = [str(path), bootstrap, name, topic, argument]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    return check

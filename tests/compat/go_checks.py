"""Shared tests of both Go clients: a program that makes one check, and the checks by the matrix's columns."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import NoReturn

import pytest

from tests.compat.records import CODECS, stored_codecs
from tests.compat.toolchains import NotAvailable, build_go
from tests.compat.transactions import check_committed

TIMEOUT_S = 90
Check = Callable[..., None]
CODECS_AND_ACKS = [(codec, acks) for codec in CODECS for acks in ("0", "1", "all")]
CHECKS = {
    "edges": "produce, consume",
    "idempotent": "idempotent",
    "times": "seek by time",
    "group": "groups",
    "admin": "admin",
}
PARAMETERS = [pytest.param(name, marks=pytest.mark.capability(column)) for name, column in CHECKS.items()]


def program(folder: str, client: str, bootstrap: str, not_run: Callable[[str, str], NoReturn]) -> Check:
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


class GoChecks:
    """A client's tests; its module has the fixture `check`."""

    @pytest.mark.capability("produce, consume")
    @pytest.mark.parametrize(("codec", "acks"), CODECS_AND_ACKS)
    def test_produce_reads_back_with_its_codec(
        self, check: Check, bootstrap: str, topic: str, codec: str, acks: str
    ) -> None:
        check("codec", topic, f"{codec}/{acks}")
        assert stored_codecs(bootstrap, topic) == {CODECS[codec]}

    @pytest.mark.parametrize("name", PARAMETERS)
    def test_check_of_the_program(self, check: Check, topic: str, name: str) -> None:
        check(name, topic)

    @pytest.mark.capability("transactions")
    def test_committed_transactions_are_read_and_aborted_ones_are_not(
        self, check: Check, bootstrap: str, topic: str
    ) -> None:
        check("transaction", topic)
        check_committed(bootstrap, topic)

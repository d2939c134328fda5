"""Shared tests of both Node clients: a program that makes one check, and the tests by the matrix's columns.

`installed` is the driver of every client that npm installs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest

from tests.compat import toolchains
from tests.compat.records import Row, read_back
from tests.compat.transactions import check_committed
from tests.kit.harness.alone import alone

TIMEOUT_S = 90
Check = Callable[..., None]


@alone()
def installed(folder: str, package: str) -> Path:
    """client.js of tests/compat/FOLDER, beside the package in the version that package.json there wants."""
    source, build = toolchains.REPOSITORY / "tests" / "compat" / folder, toolchains.BUILD / folder
    build.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "client.js"):
        # Another process may be running the program, so files that are right are not written again.
        if not (build / name).exists() or (build / name).read_bytes() != (source / name).read_bytes():
            shutil.copy(source / name, build / name)
    wanted = json.loads((source / "package.json").read_text(encoding="utf-8"))["dependencies"][package]
    found = build / "node_modules" / package / "package.json"
    if not found.exists() or json.loads(found.read_text(encoding="utf-8"))["version"] != wanted:
        # The engine check asks the machine's Node, not the one that runs it.
        toolchains.run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=build)
    return build / "client.js"


def program(
    folder: str, package: str, node: Callable[[], str], bootstrap: str, not_run: Callable[[str, str], NoReturn]
) -> Check:
    """`check(name, topic, argument)` runs one check of the client's program, after fetching what it needs."""
    try:
        command = [node(), str(installed(folder, package)), bootstrap]
    except toolchains.NotAvailable as missing:
        not_run(package, str(missing))

    def check(name: str, topic: str, argument: str = "") -> None:
        done = subprocess.run([*command, name, topic, argument], capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    return check


def numbered(count: int) -> list[Row]:
    """Return the records that the programs' own `numbered` sends."""
    return [Row(f"key-{number}".encode(), f"{number};".encode() * 20) for number in range(count)]


class NodeChecks:
    """A client's tests: its module has the fixture `check`, its class the odd records that the client can send."""

    EDGES: ClassVar[tuple[Row, ...]]

    @pytest.mark.capability("produce, consume")
    def test_edge_records_arrive_unharmed(self, check: Check, bootstrap: str, topic: str) -> None:
        check("edges", topic)
        assert read_back(bootstrap, topic, len(self.EDGES)) == [*self.EDGES]

    @pytest.mark.capability("idempotent")
    def test_idempotent_producer_writes_each_record_once(self, check: Check, bootstrap: str, topic: str) -> None:
        check("idempotent", topic)
        assert read_back(bootstrap, topic, 500) == numbered(500)

    @pytest.mark.capability("transactions")
    def test_committed_transactions_are_read_and_aborted_ones_are_not(
        self, check: Check, bootstrap: str, topic: str
    ) -> None:
        check("transaction", topic)
        check_committed(bootstrap, topic)

    @pytest.mark.capability("groups")
    def test_group_shares_partitions_hands_over_and_keeps_offsets(self, check: Check, topic: str) -> None:
        check("group", topic)

    @pytest.mark.capability("seek by time")
    def test_offsets_are_found_by_time(self, check: Check, topic: str) -> None:
        check("times", topic)

    @pytest.mark.capability("admin")
    def test_admin_makes_changes_and_deletes_what_it_sees(self, check: Check, topic: str) -> None:
        check("admin", topic)

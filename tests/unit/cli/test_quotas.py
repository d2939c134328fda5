"""`kafkalite quotas`: of a broker that runs, and of a data directory that waits for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.log.offline_journal import open_journal
from kafkalite.cli import main

pytestmark = pytest.mark.integration

Quotas = Callable[..., Any]
RATE = "producer_byte_rate"


@pytest.fixture(params=["running", "waiting"])
def quotas(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Quotas]:
    """Runs a command: what `list` tells, or the sentence that ends one that cannot begin."""
    broker = None
    if request.param == "running":
        broker = Broker(log_dirs=str(tmp_path / "data")).start()
        where = ["-b", broker.bootstrap_servers]
    else:
        where = ["--data-dir", str(tmp_path / "data")]
        with open_journal(where[1], make=True):
            pass

    def call(action: str, *arguments: str, status: int = 0) -> Any:
        assert main(["quotas", action, *where, *(["--json"] if action == "list" else []), *arguments]) == status
        out, err = capsys.readouterr()
        if status:
            return err
        return [(row["entity"], row["values"]) for row in json.loads(out)] if action == "list" else out

    yield call
    if broker is not None:
        broker.stop()


def test_quotas_are_set_listed_changed_and_deleted(quotas: Quotas) -> None:
    quotas("set", "--user", "alice", "--producer-byte-rate", "1e7", "--request-percentage", "12.5")
    quotas("set", "--user-default", "--client-id", "x", "--producer-byte-rate", "5")
    quotas("set", "--ip-default", "--connection-creation-rate", "20")
    alice, default = {"user": "alice"}, {"client-id": "x", "user": None}
    addresses = ({"ip": None}, {"connection_creation_rate": 20.0})
    assert quotas("list") == [(default, {RATE: 5.0}), addresses, (alice, {RATE: 1e7, "request_percentage": 12.5})]
    quotas("set", "--user", "alice", "--producer-byte-rate", "2e7")
    quotas("delete", "--user", "alice", "--request-percentage")
    quotas("delete", "--client-id", "x", "--user-default")
    assert quotas("list") == [addresses, (alice, {RATE: 2e7})]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["set", "--producer-byte-rate", "1"], "the entity is empty"),
        (["set", "--user", "", "--producer-byte-rate", "1"], "is empty"),
        (["set", "--user", "a", "--ip", "::1", "--producer-byte-rate", "1"], "cannot be combined"),
        (["set", "--user", "a"], "nothing to set"),
        (["set", "--user", "a", "--producer-byte-rate", "0"], "above 0"),
        (["set", "--user", "a", "--producer-byte-rate", "1.5"], "whole number"),
        (["set", "--user", "a", "--connection-creation-rate", "1"], "unknown quota"),
        (["set", "--user", "a", "--producer-byte-rate", "much"], "invalid float"),
        (["set", "--user", "a", "--user-default", "--producer-byte-rate", "1"], "not allowed with"),
        (["delete", "--user", "nobody"], "has no quota"),
        (["delete", "--user", "nobody", "--producer-byte-rate"], "has no producer_byte_rate"),
    ],
)
def test_what_cannot_be_ends_with_one_sentence_and_changes_nothing(
    quotas: Quotas, arguments: list[str], text: str
) -> None:
    error = quotas(*arguments, status=2)
    assert text in error
    assert error.count("\n") == 1
    assert quotas("list") == []


def test_a_table_names_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data-dir", str(tmp_path / "data")]
    assert main(["quotas", "set", *where, "--user-default", "--consumer-byte-rate", "9e18"]) == 0
    assert main(["quotas", "list", *where]) == 0
    assert capsys.readouterr().out.split("\n")[1].split() == ["<default>", "consumer_byte_rate", "9e+18"]

"""What Apache Kafka 4.1 answers about quotas, kafkalite answers: every version, the same requests in the same order.

Slow: Kafka takes seconds to start, and a change seconds to be seen where it is described.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.kit.checkers.side_by_side import Side, comparable, two_brokers, versions
from tests.kit.processes.apache_kafka import run_tool

pytestmark = [pytest.mark.integration, pytest.mark.slow]

P, C, R, M, I = (  # noqa: E741
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
    "connection_creation_rate",
)
Names = list[tuple[str, str | None]]
ALTERATIONS: dict[str, list[tuple[Names, list[tuple[str, float | None]]]]] = {
    "a user": [([("user", "a")], [(P, 1e6), (C, 2e6), (R, 12.5), (M, 0.5)])],
    "the default": [([("user", None)], [(P, 1e6)])],
    "both": [([("user", "a"), ("client-id", "x")], [(P, 3e6)])],
    "both the other way round": [([("client-id", "x"), ("user", "a")], [(C, 3e6)])],
    "a user and any client": [([("user", "a"), ("client-id", None)], [(P, 3e6)])],
    "a client": [([("client-id", "x y/ü")], [(P, 3e6)])],
    "an address": [([("ip", "127.0.0.1")], [(I, 1000.0)])],
    "an address by name": [([("ip", "localhost")], [(I, 1000.0)])],
    "an address of six": [([("ip", "::1")], [(I, 1000.0)])],
    "any address": [([("ip", None)], [(I, 2000.0)])],
    "no address": [([("ip", "300.300.300.300")], [(I, 1.0)])],
    "nobody": [([], [(P, 1.0)])],
    "no name": [([("user", "")], [(P, 1.0)])],
    "no such type": [([("group", "a")], [(P, 1.0)])],
    "mixed": [([("ip", "127.0.0.1"), ("user", "a")], [(I, 1.0)])],
    "mixed defaults": [([("ip", None), ("client-id", None)], [(I, 1.0)])],
    "a type twice": [([("user", "p"), ("user", "q")], [(P, 1e6)])],
    "an entity twice": [([("user", "twice")], [(P, 1e6)]), ([("user", "twice")], [(P, 2e6)])],
    "a key twice": [([("user", "b")], [(P, 1e6), (P, 2e6)])],
    "a key twice, then again": [([("user", "c")], [(P, 1e6), (P, 2e6)]), ([("user", "c")], [(P, 3e6)])],
    "an unknown key": [([("user", "b")], [("x", 1.0)])],
    "another's key": [([("user", "b")], [(I, 1.0)]), ([("ip", "127.0.0.2")], [(P, 1.0)])],
    "a SCRAM key": [([("user", "b")], [("SCRAM-SHA-256", 1.0)])],
    "zero": [([("user", "b")], [(P, 0.0)])],
    "below zero": [([("user", "b")], [(R, -1.0)])],
    "a fraction": [([("user", "b")], [(P, 1.5)])],
    "nearly a whole number": [([("user", "d")], [(P, 1.0000001)])],
    "too much": [([("user", "b")], [(P, 1e30)]), ([("ip", "127.0.0.2")], [(I, 3e9)])],
    "a large share": [([("user", "d")], [(R, 1e300)])],
    "one good, one bad": [([("user", "e")], [(P, 1e6)]), ([("user", "f")], [(P, 1e6), (R, 0.0)])],
    "to remove what is not there": [([("user", "nobody")], [(P, None)])],
    "to remove an unknown key": [([("user", "nobody")], [("x", None)])],
    "nothing to do": [([("user", "a")], [])],
    "no entries": [],
    "to change": [([("user", "a")], [(P, 5e6), (C, None)])],
    "to remove": [([("user", None)], [(P, None)])],
}
FILTERS: dict[str, list[tuple[str, int, str | None]]] = {
    "everything": [],
    "a user": [("user", 0, "a")],
    "the default user": [("user", 1, None)],
    "users": [("user", 2, None)],
    "users with clients": [("user", 2, None), ("client-id", 2, None)],
    "a client": [("client-id", 0, "x")],
    "addresses": [("ip", 2, None)],
    "an address": [("ip", 0, "127.0.0.1")],
    "nobody's": [("user", 0, "nobody")],
    "an empty name": [("user", 0, "")],
    "no type": [("", 2, None)],
    "an unknown type": [("group", 2, None)],
    "a type twice": [("user", 2, None), ("user", 0, "a")],
    "mixed": [("ip", 2, None), ("user", 2, None)],
    "an exact null": [("user", 0, None)],
    "a default with a name": [("user", 1, "a")],
    "any with a name": [("user", 2, "a")],
    "an unknown match": [("user", 7, None)],
}


def alteration(label: str, *, validate_only: bool) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type=k, entity_name=n) for k, n in names],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
            )
            for names, ops in ALTERATIONS[label]
        ],
        validate_only=validate_only,
    )


def description(label: str, *, strict: bool) -> DescribeClientQuotasRequest:
    components = [ComponentData(entity_type=k, match_type=m, match=n) for k, m, n in FILTERS[label]]
    return DescribeClientQuotasRequest(components=components, strict=strict)


def answer(side: Side, key: int, version: int, request: object) -> Any:
    return in_order(comparable(side.ask(key, version, request), side.ids))


def in_order(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: in_order(value) for name, value in found.items()}
    return sorted((in_order(item) for item in found), key=repr) if isinstance(found, list) else found


def settled(side: Side) -> Any:
    """All quotas, once two looks at them are the same: Kafka's broker follows its controller."""
    ask = (api.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest())
    found, equal_count = answer(side, *ask), 0
    while equal_count < 5:
        time.sleep(0.1)
        again = answer(side, *ask)
        found, equal_count = again, equal_count + 1 if again == found else 0
    return found


def steps() -> Iterator[tuple[str, int, int, object]]:
    for only in (True, False):
        for label in ALTERATIONS:
            for version in versions(api.ALTER_CLIENT_QUOTAS):
                yield f"set {label} {only}", api.ALTER_CLIENT_QUOTAS, version, alteration(label, validate_only=only)
    for label in FILTERS:
        for strict in (False, True):
            for version in versions(api.DESCRIBE_CLIENT_QUOTAS):
                request = description(label, strict=strict)
                yield f"find {label} {strict}", api.DESCRIBE_CLIENT_QUOTAS, version, request


def test_quotas_are_set_found_and_refused_as_by_kafka(tmp_path: Path) -> None:
    found = []
    with two_brokers(tmp_path) as sides:
        seen = False
        for label, key, version, request in steps():
            if key == api.DESCRIBE_CLIENT_QUOTAS and not seen:
                seen = True
                kafka, ours = map(settled, sides)
                assert kafka == ours
                assert len(ours["entries"]) > 10
            kafka, ours = (answer(side, key, version, request) for side in sides)
            if kafka != ours:
                found.append(f"{label} v{version}\n  Kafka {kafka}\n  ours  {ours}")
    assert not found, "\n".join(found)


ADD, DELETE = "--add-config", "--delete-config"
USER_A = ("--entity-type", "users", "-", "a")
COMMANDS = [
    ["--alter", ADD, "producer_byte_rate=1000000,consumer_byte_rate=2000000", *("--entity-type", "users"), "-", "a"],
    ["--alter", ADD, "request_percentage=12.5", *USER_A, "--entity-type", "clients", "-", "x"],
    ["--alter", ADD, "controller_mutation_rate=5", *("--entity-type", "users", "--entity-default")],
    ["--alter", ADD, "producer_byte_rate=3000000", *("--entity-type", "clients", "--entity-default")],
    ["--alter", ADD, "connection_creation_rate=1000", *("--entity-type", "ips"), "-", "127.0.0.1"],
    ["--alter", ADD, "connection_creation_rate=2000", *("--entity-type", "ips", "--entity-default")],
    ["--alter", DELETE, "consumer_byte_rate", *("--entity-type", "users"), "-", "a"],
    ["--alter", ADD, "producer_byte_rate=0", *("--entity-type", "users"), "-", "b"],
    ["--alter", ADD, "connection_creation_rate=5", *("--entity-type", "ips"), "-", "300.1.1.1"],
    ["--alter", DELETE, "producer_byte_rate", *("--entity-type", "users"), "-", "nobody"],
    ["--describe", "--entity-type", "users"],
    ["--describe", "--entity-type", "clients"],
    ["--describe", "--entity-type", "ips"],
    ["--describe", "--entity-type", "users", "--entity-type", "clients"],
    ["--describe", "--entity-type", "users", "-", "a"],
]
"""Arguments of kafka-configs; `-` means --entity-name."""


def ended(port: int, arguments: list[str]) -> tuple[list[str], bool]:
    """Return the command's output lines, sorted, and whether it succeeded."""
    named = ["--entity-name" if argument == "-" else argument for argument in arguments]
    try:
        lines = run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", f"127.0.0.1:{port}", *named).split("\n")
    except RuntimeError:
        return [], False
    return sorted(lines), True


def test_kafka_configs_ends_alike(tmp_path: Path) -> None:
    with two_brokers(tmp_path) as (kafka, ours):
        for arguments in COMMANDS:
            if arguments[0] == "--describe":
                settled(kafka)
            assert ended(ours.port, arguments) == ended(kafka.port, arguments), arguments

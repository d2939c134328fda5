"""Java's kafka-acls against Apache Kafka and against kafkalite: the same commands, the same rules afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.processes.apache_kafka import ApacheKafka, run_tool
from tests.kit.processes.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOOL = "org.apache.kafka.tools.AclCommand"
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
COMMANDS = [
    ("--add", "--allow-principal", "User:alice", "--topic", "orders", "--producer", "--transactional-id", "x",
     "--idempotent"),
    ("--add", "--allow-principal", "User:bob", "--topic", "orders", "--group", "billing", "--consumer"),
    ("--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--topic", "team-", "--operation", "READ",
     "--resource-pattern-type", "prefixed"),
    ("--add", "--allow-principal", "User:CN=c,O=d", "--cluster", "--operation", "Alter"),
    ("--add", "--allow-principal", "User:eve", "--topic", "*", "--operation", "DescribeConfigs"),
    ("--add", "--allow-principal", "User:eve", "--topic", "*", "--operation", "DescribeConfigs"),
    ("--remove", "--force", "--allow-principal", "User:alice", "--topic", "orders", "--producer"),
    ("--remove", "--force", "--topic", "team-1", "--resource-pattern-type", "match"),
]  # fmt: skip


@pytest.fixture(scope="module")
def servers(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    assert kafka_jars
    with (
        ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS) as kafka,
        Broker({**SETTINGS, "listeners": "PLAINTEXT://127.0.0.1:0"}) as ours,
    ):
        yield kafka.bootstrap, ours.bootstrap_servers


def rules(server: str, *arguments: str) -> set[str]:
    """As the tool lists them: each with the resource above it."""
    found = set()
    resource = ""
    for line in run_tool(TOOL, "--bootstrap-server", server, "--list", *arguments).splitlines():
        heading = re.search(r"ResourcePattern\(.*\)", line)
        if heading:
            resource = heading[0]
        elif line.strip():
            found.add(f"{resource} {line.strip()}")
    return found


def test_the_tool_leaves_the_same_rules(servers: tuple[str, str]) -> None:
    kafka, ours = servers
    for command in COMMANDS:
        for server in servers:
            run_tool(TOOL, "--bootstrap-server", server, *command)
    expected = rules(ours)
    assert len(expected) == 7
    wait_until(lambda: rules(kafka) == expected, 120, f"the same rules: {expected}")
    matching = ("--topic", "orders", "--resource-pattern-type", "match")
    assert rules(ours, *matching) == rules(kafka, *matching)

"""`kafkalite mirror` and `kafkalite audit` through TLS, signed in, between brokers that ask who may."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.audit import AuditedProducer
from kafkalite.wire.record.columns import Record
from tests.kit.harness.guarded_side import ROOT, Side, kafkalite

pytestmark = pytest.mark.integration

COPIER = "bob"
AUDITOR = "alice"
MIRROR_PAGE = Path(__file__).resolve().parents[2] / "docs" / "mirror.md"
STAMP = 1_700_000_040_000
COUNT = 50


class Sides:
    def __init__(self, directory: Path) -> None:
        self.source, self.target = Side(directory / "source"), Side(directory / "target")

    def mirror(self, status: int = 0) -> str:
        return kafkalite(
            "mirror", "--from", self.source.address, "--from-config", self.source.configs[COPIER],
            "--to", self.target.address, "--to-config", self.target.configs[COPIER],
            "--name", "offline", "--topics", "logs[.].*", "-e", "-q", "--timeout", "10", status=status,
        )  # fmt: skip

    def audit(self, status: int = 0) -> str:
        return kafkalite(
            "audit", "--live", self.source.address, "--live-config", self.source.configs[AUDITOR],
            "--offline", self.target.address, "--offline-config", self.target.configs[AUDITOR],
            "--mirror", "offline", "--grace", "0", "-q", "--json", "--timeout", "10", status=status,
        )  # fmt: skip


def rules_of_the_page() -> Iterator[tuple[str, list[str]]]:
    """(source or target, flags) of each command of docs/mirror.md that adds rules for the mirror."""
    for line in MIRROR_PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("kafkalite acls add --allow-principal User:copier "):
            words = line.split()
            yield words[-1], words[5:-2]


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    found = Sides(tmp_path)
    with found.source.sasl, found.target.sasl:
        with found.source.client(ROOT) as client, AuditedProducer(client, server="web1") as producer:
            client.admin.create_topic("logs.web", 2, configs={"retention.ms": "-1"})
            client.admin.create_topic("secret", 1)
            for partition in (0, 1):
                rows = [Record(-1, STAMP + i, None, b"%d" % i) for i in range(COUNT)]
                producer.send("logs.web", partition, rows)
        yield found


def copied(sides: Sides) -> int:
    """Records of logs.web in the target, 0 where there is no such topic."""
    with sides.target.client(ROOT) as client:
        if "logs.web" not in client.topics():
            return 0
        return sum(len(chunk.columns.offsets) for part in (0, 1) for chunk in client.read("logs.web", part))


@pytest.mark.slow
def test_rules_of_the_page_are_enough_for_a_mirror_and_each_of_them_is_needed(sides: Sides) -> None:
    reads, writes, progress, transactions = rules_of_the_page()
    steps = [
        (progress, 1, "kafkalite.mirror.offline: "),
        (transactions, 1, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (reads, 2, "no topic matches"),  # what it may not describe is not there
        (writes, 1, "logs.web: "),
    ]
    for (where, flags), status, reason in steps:
        assert reason in sides.mirror(status)
        assert copied(sides) == 0
        (sides.source if where == "source" else sides.target).allow(COPIER, *flags)
    sides.mirror()
    assert copied(sides) == 2 * COUNT
    with sides.target.client(ROOT) as client:
        assert "secret" not in client.topics()
        settings = {row.name: row.value for row in client.admin.describe_topic_configs("logs.web")}
        assert settings["retention.ms"] == "-1"
    with sides.source.client(ROOT) as client:
        client.admin.add_partitions("logs.web", 3)
    sides.mirror()
    with sides.target.client(ROOT) as client:
        assert len(client.partitions("logs.web")) == 3


@pytest.mark.slow
def test_audit_reads_what_it_may_and_says_what_it_may_not(sides: Sides) -> None:
    for where, flags in rules_of_the_page():
        (sides.source if where == "source" else sides.target).allow(COPIER, *flags)
    sides.mirror()
    steps = [
        (sides.source, "kafkalite.audit"),
        (sides.target, "kafkalite.mirror.offline"),
        (sides.source, "logs.web"),
        (sides.target, "logs.web"),
    ]
    for side, topic in steps:
        said = sides.audit(status=2)
        assert topic in said, said
        side.allow(AUDITOR, "--topic", topic, "--operation", "read")
    found = json.loads(sides.audit())
    assert (found["complete"], found["expected"]) == (True, 2 * COUNT)
    assert {name: row["records"] for name, row in found["stages"].items()} == dict.fromkeys(
        ["live", "mirror", "offline"], 2 * COUNT
    )

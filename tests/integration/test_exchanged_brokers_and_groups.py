"""Three brokers of a cluster are exchanged in place, Java for kafkalite and back, while KIP-848 groups read.

The coordinator of the groups moves between the kinds with each exchange, to both sides. A control run restarts Java
brokers in the same order. As in the control run, no group is assigned again until its topic grows, no member is given
or loses a partition, and every record is read once. Slow: a dozen starts of Java.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Assigned

from kafkalite.broker.coordinator import consumer_records as stored
from kafkalite.client import Client
from kafkalite.errors import GroupIdNotFound
from kafkalite.model import TopicPartition
from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import NotAvailable, jars
from tests.kit.processes.broker import wait_until
from tests.kit.processes.mixed_cluster import ALL_JAVA, JAVA, OURS, MixedCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NEWEST = "4.4.0"
RELEASES = ("4.1.0", NEWEST)
WITHOUT_SHARES = ("--feature", "share.version=0", "--feature", "streams.version=0")
TOPIC, OFFSETS = "orders", "__consumer_offsets"
PARTITIONS, MORE = 6, 8
WAIT_S = 180
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
GROUPS = {"by-name": [TOPIC], "by-expression": ["^ord.*"], "static": [TOPIC]}
"""Group → what its members subscribe to. Those of `static` have an instance id."""
MEMBERS = 2
ROUND = (1, 2, 3)
DOCUMENTED = (
    "other users of this machine can access the data directory",
    "Could not find offset index file corresponding to log file",
)
"""Warnings of an exchange that docs/cluster.md names."""
BY_CHANCE = ("Non-monotonic update of high watermark",)
"""Warnings that control runs show, too, but not each of them: of a follower that was ahead of its new leader."""
WARNING = re.compile(r"(?:\] (?:WARN|ERROR) | (?:WARNING|ERROR|CRITICAL) )(.*)")
OF_A_RUN = re.compile(
    "|".join(
        (
            r"\(.*\)",
            rf"(?:{TOPIC}|{OFFSETS})-\d+",
            r"[0-9a-f]{8}-[0-9a-f-]{27}",
            r"[\w-]{22}(?![\w-])",
            r"/[\w./-]+",
            r"\d+",
        )
    )
)
"""What warnings of one kind differ in: details in parentheses, partitions, ids, paths, numbers."""


class Reader(threading.Thread):
    """A member of a group, which reads and commits until it is closed."""

    def __init__(self, bootstrap: str, group: str, number: int) -> None:
        super().__init__(daemon=True)
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 300,
            "metadata.max.age.ms": 1000,
        }
        instance = {"group.instance.id": f"i{number}"} if group == "static" else {}
        self.consumer = Consumer({**config, **instance}, logger=quiet)
        self.consumer.subscribe(
            GROUPS[group], on_assign=self._changes("+"), on_revoke=self._changes("-"), on_lost=self._changes("lost")
        )
        self.changes: list[tuple[str, list[int]]] = []
        self.offsets: list[tuple[int, int]] = []
        self._ending = threading.Event()
        self.start()

    def _changes(self, what: str) -> Any:
        def note(_consumer: Consumer, partitions: list[Assigned]) -> None:
            self.changes.append((what, sorted(each.partition for each in partitions)))

        return note

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self.consumer.consume(100, 0.1):
                if message.error() is None:
                    self.offsets.append((message.partition(), message.offset()))

    def close(self) -> None:
        self._ending.set()
        self.join(WAIT_S)
        self.consumer.close()


class Load(threading.Thread):
    """Writes to every partition until it is closed; the offsets that were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 300_000}
        self.producer = Producer(config, logger=quiet)
        self.written: set[tuple[int, int]] = set()
        self.failed: list[KafkaError] = []
        self._ending = threading.Event()
        self.start()

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.written.add((message.partition(), message.offset()))
        else:
            self.failed.append(error)

    def run(self) -> None:
        while not self._ending.wait(0.1):
            for number in range(PARTITIONS):
                self.producer.produce(TOPIC, b"x", partition=number, on_delivery=self._done)
            self.producer.poll(0)

    def close(self) -> None:
        self._ending.set()
        self.join(WAIT_S)
        assert self.producer.flush(WAIT_S) == 0
        assert not self.failed


@contextmanager
def readers(bootstrap: str) -> Iterator[dict[str, list[Reader]]]:
    found = {group: [Reader(bootstrap, group, number) for number in range(MEMBERS)] for group in GROUPS}
    try:
        yield found
    finally:
        for members in found.values():
            for member in members:
                member.close()


def epochs(client: Client) -> dict[str, list[int]]:
    """The epochs of each group, as its coordinators have written them down."""
    found: dict[str, list[int]] = {group: [] for group in GROUPS}
    for chunk in client.read(OFFSETS, 0):
        for key, value in zip(chunk.columns.keys, chunk.columns.values, strict=True):
            if key is not None and stored.kind_of(key) == stored.GROUP and value is not None:
                read = stored.read_value(stored.GROUP, value)
                assert isinstance(read, stored.GroupValue)
                found[stored.read_key(key)[0]].append(read.epoch)
    return found


def settled(client: Client, group: str, partitions: int) -> bool:
    """Return whether the members of a group own all partitions, and no revocation is pending."""
    try:
        found = client.groups.describe(group)
    except GroupIdNotFound:  # no member has joined yet
        return False
    owned = sorted(key.partition for member in found.members for key in member.partitions)
    return found.state == "Stable" and len(found.members) == MEMBERS and owned == list(range(partitions))


def lead(client: Client, cluster: MixedCluster, number: int) -> None:
    """Returns when the groups' coordinator is the broker with this number."""
    key = TopicPartition(OFFSETS, 0)
    client.reassignments.alter({key: (number, *(each for each in ROUND if each != number))})
    cluster.wait_in_sync(OFFSETS)

    def leads() -> bool:
        client.reassignments.elect_preferred([key])
        return cluster.isr(OFFSETS)[0][0] == number

    wait_until(leads, WAIT_S, f"broker {number} leads the offsets", 0.2)


def kinds_of_warnings(cluster: MixedCluster) -> set[str]:
    """Return the kinds of the brokers' warnings, without those that only one run has."""
    found = set()
    for number in cluster.brokers:
        for path in (cluster.directory / f"broker-{number}").glob("*.log"):
            for line in path.read_text(errors="replace").splitlines():
                match = WARNING.search(line)
                if match is not None:
                    found.add(OF_A_RUN.sub("#", match[1]))
    return found


def _has_read(members: list[Reader], wanted: set[tuple[int, int]]) -> bool:
    return wanted <= {offset for member in members for offset in list(member.offsets)}


class Run:
    """One cluster of three Java brokers with groups, and what becomes of them."""

    def __init__(self, directory: Path, release: str, kinds: Sequence[str]) -> None:
        """`kinds`: what all brokers become, one after the other, in each round."""
        self.assigned_again: dict[str, list[int]] = {}
        """Group → its epochs since it was settled."""
        self.changes: dict[str, list[list[tuple[str, list[int]]]]] = {}
        """Group → of each member what it was given and lost since."""
        features = WITHOUT_SHARES if release == NEWEST else ()
        racks = {number: {"broker.rack": f"rack-{number}"} for number in ROUND}
        cluster = MixedCluster(
            directory, ALL_JAVA, SETTINGS, format_options=features, version=release, own_settings=racks, warns=True
        )
        with cluster, Client(cluster.bootstrap) as client:
            client.admin.create_topic(TOPIC, PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"})
            load = Load(cluster.bootstrap)
            with readers(cluster.bootstrap) as groups:
                self._wait_settled(client, PARTITIONS)
                self._wait_read(load, groups)
                before = epochs(client)
                known = {group: [len(each.changes) for each in members] for group, members in groups.items()}
                for kind in kinds:
                    for number in ROUND:
                        lead(client, cluster, number)
                        self._wait_read(load, groups)
                        cluster.restart_as(number, kind)
                        cluster.wait_in_sync(TOPIC)
                        self._wait_settled(client, PARTITIONS)  # the new leader has loaded the groups
                        lead(client, cluster, number)
                        self._wait_settled(client, PARTITIONS)
                        self._wait_read(load, groups)
                for group, members in groups.items():
                    since = zip(members, known[group], strict=True)
                    self.changes[group] = [member.changes[count:] for member, count in since]
                    self.assigned_again[group] = epochs(client)[group][len(before[group]) :]
                load.close()
                client.admin.add_partitions(TOPIC, MORE)
                self._wait_settled(client, MORE)
                grown = epochs(client)
                self.epochs_of_growth = {
                    group: [epoch - found[-1] for epoch in grown[group][len(found) :]]
                    for group, found in before.items()
                }
                self._wait_read(load, groups)
        self.read = {
            group: sorted(o for member in members for o in member.offsets) for group, members in groups.items()
        }
        self.written = sorted(load.written)
        self.warnings = kinds_of_warnings(cluster)

    @staticmethod
    def _wait_settled(client: Client, partitions: int) -> None:
        for group in GROUPS:
            wait_until(partial(settled, client, group, partitions), WAIT_S, f"{group} settled", 0.2)

    @staticmethod
    def _wait_read(load: Load, groups: dict[str, list[Reader]]) -> None:
        """Every group reads all that is written by now, and something of each partition that is written after that."""
        written = len(load.written)
        if load.is_alive():
            wait_until(lambda: len(load.written) > written, WAIT_S, "something is written", 0.1)
        wanted = set(load.written)
        for group, members in groups.items():
            wait_until(partial(_has_read, members, wanted), WAIT_S, f"{group} reads what was written", 0.2)


@pytest.mark.parametrize("release", RELEASES)
def test_groups_are_assigned_again_only_where_java_brokers_alone_do_it(release: str, tmp_path: Path) -> None:
    try:
        jars(release)
    except NotAvailable as missing:
        pytest.skip(f"NOT HELD AGAINST APACHE KAFKA {release}: {missing}")
    control = Run(tmp_path / "control", release, (JAVA, JAVA))
    exchanged = Run(tmp_path / "exchanged", release, (OURS, JAVA))
    for run in (control, exchanged):
        assert run.assigned_again == {group: [] for group in GROUPS}
        assert run.changes == {group: [[]] * MEMBERS for group in GROUPS}
        assert run.epochs_of_growth == {group: [1] for group in GROUPS}
        for group in GROUPS:
            assert run.read[group] == run.written, group
    new = {
        line
        for line in exchanged.warnings - control.warnings
        if not any(map(line.__contains__, DOCUMENTED + BY_CHANCE))
    }
    assert not new, "\n".join(sorted(new))

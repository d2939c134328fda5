"""A broker that holds many topics, partitions, groups, ids, quotas, configs and ACLs, and how it is watched.

World(folder, populace)           fills a broker once, stops it, and keeps its directory
    .broker(name)                 a broker on a copy of it, started
Watch(pid)                        peak of RssAnon while something runs, CPU seconds, and when its work has ended
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.kit.harness.typed import TypedConnection
from tests.kit.hostile.requests import WIDE, Populace, group_name, topic_name, transaction_name, user_name
from tests.kit.processes.broker import BrokerProcess

AUTHORISER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Settings under which the ACLs count and hinder no client."""
DENYING: Final = {"authorizer.class.name": AUTHORISER["authorizer.class.name"]}
"""Settings under which an address other than the honest client's may do nothing."""
HONEST_HOST: Final = "127.0.0.1"
AT_ONCE: Final = 200
MakeBroker = Callable[[Path, Mapping[str, str]], BrokerProcess]


def make_own_broker(folder: Path, settings: Mapping[str, str]) -> BrokerProcess:
    """A broker of this tree."""
    return BrokerProcess(folder, settings)


class World:
    """A data directory with a populace, made once and copied for each broker."""

    def __init__(self, folder: Path, populace: Populace, make: MakeBroker = make_own_broker) -> None:
        self.folder, self.make = folder, make
        self._template = folder / "template"
        broker = make(self._template, AUTHORISER)
        with broker:
            self.populace = populate(broker.port, populace)
            broker.stop(300)
        self._count = 0

    def broker(self, settings: Mapping[str, str] | None = None) -> BrokerProcess:
        """A started broker with the populace; the caller ends it, and calls `forget` with it."""
        self._count += 1
        folder = self.folder / f"broker-{self._count}"
        folder.mkdir()
        shutil.copytree(self._template / "data", folder / "data", symlinks=True)
        return self.make(folder, settings or {}).start(timeout_s=300)

    @staticmethod
    def forget(broker: BrokerProcess) -> None:
        """Ends a broker and removes what it has written."""
        broker.close()
        shutil.rmtree(broker.directory, ignore_errors=True)


def populate(port: int, populace: Populace) -> Populace:
    """Fills a broker with the populace; returns it with the ids that the topics have got."""
    with TypedConnection(port, timeout_s=300) as connection:
        for portion in _portions(range(populace.topics), 500):
            topics = [_topic(topic_name(number), 1) for number in portion]
            _all_good(
                connection.ask(api.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=60_000)).topics
            )
        wide = CreateTopicsRequest(topics=[_topic(WIDE, populace.partitions)], timeout_ms=60_000)
        _all_good(connection.ask(api.CREATE_TOPICS, 7, wide).topics)
        _pipelined(connection, api.OFFSET_COMMIT, 9, map(_commit, range(populace.groups)))
        _pipelined(connection, api.INIT_PRODUCER_ID, 4, map(_init, range(populace.transactions)))
        quotas = AlterClientQuotasRequest(entries=[_quota(user_name(number)) for number in range(populace.users)])
        _all_good(connection.ask(api.ALTER_CLIENT_QUOTAS, 1, quotas).entries)
        for portion in _portions(range(populace.acls), 1000):
            creations = [_acl(topic_name(number), f"User:{user_name(number)}", "*") for number in portion]
            _all_good(connection.ask(api.CREATE_ACLS, 3, CreateAclsRequest(creations=creations)).results)
        honest = [_acl("*", "User:ANONYMOUS", HONEST_HOST, resource_type=kind) for kind in (2, 3, 5)]
        honest += [_acl("kafka-cluster", "User:ANONYMOUS", HONEST_HOST, resource_type=4)]
        _all_good(connection.ask(api.CREATE_ACLS, 3, CreateAclsRequest(creations=honest)).results)
        found = connection.ask(api.METADATA, 12, MetadataRequest(topics=None)).topics
    ids = {topic.name: bytes(topic.topic_id) for topic in found}
    names = [topic_name(number) for number in range(populace.topics)]
    return replace(populace, topic_ids=tuple(ids[name] for name in names), wide_id=ids[WIDE])


def _portions(numbers: range, size: int) -> Iterator[range]:
    return (numbers[at : at + size] for at in range(0, len(numbers), size))


def _pipelined(connection: TypedConnection, key: int, version: int, messages: Iterable[Any]) -> None:
    sent = []
    for message in messages:
        sent.append(connection.send_message(key, version, message))
        if len(sent) == AT_ONCE:
            for one in sent:
                connection.receive_message(*one)
            sent = []
    for one in sent:
        connection.receive_message(*one)


def _all_good(results: Iterable[Any]) -> None:
    bad = [result for result in results if result.error_code]
    assert not bad, bad[:3]


def _topic(name: str, partitions: int) -> CreatableTopic:
    configs = [CreatableTopicConfig(name="retention.ms", value="86400000")]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)


def _commit(number: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name=topic_name(0), partitions=[partition])
    return OffsetCommitRequest(group_id=group_name(number), generation_id_or_member_epoch=-1, topics=[topic])


def _init(number: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transaction_name(number), transaction_timeout_ms=60_000)


def _quota(user: str) -> AlterClientQuotasRequestEntryData:
    entity = AlterClientQuotasRequestEntityData(entity_type="user", entity_name=user)
    return AlterClientQuotasRequestEntryData(entity=[entity], ops=[OpData(key="producer_byte_rate", value=1e9)])


def _acl(resource: str, principal: str, host: str, *, resource_type: int = 2) -> AclCreation:
    operation = 2 if host == HONEST_HOST else 3  # ALL, READ
    return AclCreation(
        resource_type=resource_type,
        resource_name=resource,
        resource_pattern_type=3,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=3,
    )


SAMPLE_S: Final = 0.02
QUIET_S: Final = 0.2
QUIET_SHARE: Final = 0.1
"""A broker whose CPU time grows by less than this share of QUIET_S has ended its work."""


def cpu_seconds(pid: int) -> float:
    """CPU time of another process, from its CPU clock (clock id as in clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def rss_anon(pid: int) -> int:
    """Bytes of the process's private anonymous memory that are resident."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


class Watch:
    """Samples a broker's memory from its own thread, for the length of a with block.

    A broker that holds more than `guard` bytes is killed, before it takes down what else runs on the machine.
    """

    def __init__(self, pid: int, guard: int = 1 << 62) -> None:
        self.pid, self.guard, self.peak, self.began_cpu_s, self.killed = pid, guard, 0, 0.0, False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self.began_cpu_s = cpu_seconds(self.pid)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the broker since the block began; 0 when it has ended."""
        try:
            return cpu_seconds(self.pid) - self.began_cpu_s
        except OSError:
            return 0.0

    def _sample(self) -> None:
        while not self._done.wait(SAMPLE_S):
            try:
                self.peak = max(self.peak, rss_anon(self.pid))
            except OSError:
                return
            if self.peak > self.guard:
                self.killed = True
                os.kill(self.pid, signal.SIGKILL)
                return


def work_ends_after(pid: int, timeout_s: float) -> float | None:
    """Seconds until a process that no client asks anything begins to be idle; None when that takes longer."""
    began = time.monotonic()
    while True:
        at, before = time.monotonic(), cpu_seconds(pid)
        time.sleep(QUIET_S)
        if cpu_seconds(pid) - before < QUIET_S * QUIET_SHARE:
            return at - began
        if at - began > timeout_s:
            return None


TURN: Final = re.compile(r'^kafkalite_worker_turn_cpu_seconds_bucket\{[^}]*\ble="([^"]+)"[^}]*\} (\S+)', re.MULTILINE)


def turns(metrics_port: int) -> dict[float, float]:
    """Turns of network threads by the CPU seconds that they took at most; empty where none are counted."""
    found: dict[float, float] = {}
    with contextlib.suppress(OSError):
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        for bound, count in TURN.findall(text):
            found[float(bound)] = found.get(float(bound), 0.0) + float(count)
    return found


def longest_turn_s(before: Mapping[float, float], after: Mapping[float, float]) -> float | None:
    """The bound of the longest turn between two looks; None where there was none, or none is counted."""
    grown = {bound: count - before.get(bound, 0.0) for bound, count in sorted(after.items())}
    turns_count = max(grown.values(), default=0.0)
    return next((bound for bound, count in grown.items() if count >= turns_count > 0), None)

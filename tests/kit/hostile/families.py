"""Attacks that are no list of names: joins, parked fetches, unfinished frames, unread answers, subscriptions, ids.

Each is what one `Flood` does; `size` scales it, 1 being what the benchmark and the slow tests do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from tests.kit.harness.typed import TypedConnection
from tests.kit.hostile.flood import Flood
from tests.kit.hostile.requests import NAMESPACE, WIDE, Populace, request_frame, topic_name

JOIN_AT_ONCE: Final = 3
"""The newest JoinGroup that admits a member without sending it away for its id first."""
FETCH_BY_NAME: Final = 12
SESSION_MS: Final = 1_800_000
REGEXES: Final = ("(a+)+$", "((topic|t.*)-?[0-9]*)*x", "[^z]{1,200}" * 4, ".*" * 200)


def join(group: str, size: int) -> bytes:
    """Return a member's first request, with `size` bytes of metadata."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(size))]
    message = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=protocols,
    )
    return request_frame(api.JOIN_GROUP, message, JOIN_AT_ONCE)


def parked_fetch(partitions: int, populace: Populace) -> bytes:
    """A fetch that waits as long as it may for a gigabyte."""

    def some(count: int) -> list[FetchPartition]:
        parts = range(min(count, populace.partitions))
        return [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in parts]

    narrow = min(populace.topics, max(0, partitions - populace.partitions))
    topics = [FetchTopic(topic=topic_name(number), partitions=some(1)) for number in range(narrow)]
    message = FetchRequest(
        max_wait_ms=SESSION_MS,
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=WIDE, partitions=some(partitions)), *topics],
    )
    return request_frame(api.FETCH, message, FETCH_BY_NAME)


def fetch_session(number: int) -> bytes:
    """A fetch that opens a session."""
    topic = FetchTopic(topic=topic_name(number), partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    return request_frame(api.FETCH, FetchRequest(max_wait_ms=0, session_epoch=0, topics=[topic]), FETCH_BY_NAME)


def transactional_id(number: int) -> bytes:
    """The first request of a transactional producer."""
    message = InitProducerIdRequest(transactional_id=f"hostile-{number}", transaction_timeout_ms=60_000)
    return request_frame(api.INIT_PRODUCER_ID, message, 4)


def regex_member(number: int) -> bytes:
    """Return the heartbeat of a member in a separate KIP-848 group, which subscribes by a regular expression."""
    message = ConsumerGroupHeartbeatRequest(
        group_id=f"hostile-{number}",
        member_id=str(uuid.uuid5(NAMESPACE, f"member-{number}")),
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_regex=REGEXES[number % len(REGEXES)],
        topic_partitions=[],
    )
    return request_frame(api.CONSUMER_GROUP_HEARTBEAT, message)


def all_metadata() -> bytes:
    """A small request with a large answer."""
    return request_frame(api.METADATA, MetadataRequest(topics=None))


@dataclass(frozen=True)
class Family:
    """An attack: `frames(size, populace)` are what each connection sends, `requests` how often (0: again and again)."""

    name: str
    frames: Callable[[float, Populace], Sequence[bytes]]
    connections: int = 4
    addresses: int = 4
    in_flight: int = 1
    requests: int = 0
    reads: bool = True
    withheld: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)

    def flood(self, port: int, size: float, populace: Populace) -> Flood:
        """The attacker, started and not yet attacking."""
        return Flood(
            port,
            self.frames(size, populace),
            connections=max(1, int(self.connections * min(size * 4, 1))),
            in_flight=max(1, int(self.in_flight * min(size * 4, 1))),
            addresses=self.addresses,
            reads=self.reads,
            withheld=self.withheld,
        )


MIB: Final = 1 << 20
FEW_ENTRIES: Final = {"max.groups": "4000", "transaction.max.ids": "4000"}
"""Limits that an attack reaches within seconds, above what the populace holds."""


def _many(make: Callable[[int], bytes], count: int) -> Callable[[float, Populace], Sequence[bytes]]:
    return lambda size, populace: [make(number) for number in range(max(1, int(count * size)))]


FAMILIES: Final = (
    Family("joins", lambda size, _: [join("hostile", int(90 * MIB * size))], connections=40, requests=1),
    Family(
        "parked fetches", lambda size, all_: [parked_fetch(int(3000 * size), all_)], connections=1000, addresses=200
    ),
    Family("unfinished frames", lambda size, _: [join("hostile", int(90 * MIB * size))], connections=40, withheld=1000),
    Family("unread answers", lambda _, all_: [all_metadata()], connections=200, in_flight=1000, reads=False),
    Family("regexes", _many(regex_member, 1000), in_flight=1000),
    Family("groups", _many(lambda number: join(f"hostile-{number}", 10), 5000), 1, 1, 1000, settings=FEW_ENTRIES),
    Family("transactional ids", _many(transactional_id, 5000), 1, 1, 1000, settings=FEW_ENTRIES),
    Family("fetch sessions", _many(fetch_session, 2000), 1, 1, 1000),
    Family("connections", lambda _, all_: [parked_fetch(1, all_)], connections=25_000, addresses=1),
)


def refused_newcomer(port: int) -> list[str]:
    """List what the broker refuses to a new client at the honest client's address: a group, a transactional id."""
    init = InitProducerIdRequest(transactional_id="newcomer", transaction_timeout_ms=60_000)
    with TypedConnection(port, timeout_s=60) as connection:
        connection.send_bytes(join("newcomer", 10))
        joined = connection.receive_message(api.JOIN_GROUP, JOIN_AT_ONCE)
        begun = connection.ask(api.INIT_PRODUCER_ID, 4, init)
    answers = (("group", joined), ("transactional id", begun))
    return [f"{name}: {answer.error_code}" for name, answer in answers if answer.error_code]

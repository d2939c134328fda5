"""Carry out a placement plan: reassign partitions, a limited number at a time, until all have moved.

No state is stored outside the cluster. If a run is interrupted, the moves in progress continue without it, and a new
plan covers the rest.

Moves can be throttled as in Kafka (KIP-73), by these settings:

    on brokers   leader.replication.throttled.rate, follower.replication.throttled.rate
    on topics    leader.replication.throttled.replicas, follower.replication.throttled.replicas

Thread rule: one thread at a time, the thread of the Client.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.client.admin.admin import SOURCES
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.placement.overview import describe_topics
from kafkalite.placement.planner import copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalite.client import Client
    from kafkalite.client.admin.reassignments import Reassignment
    from kafkalite.model import TopicPartition
    from kafkalite.placement.planner import Replicas

AT_ONCE: Final = 20
"""Maximum number of partitions that move at the same time."""
LOOK_S: Final = 0.5
CHANGED: Final = SOURCES[2]
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Progress(NamedTuple):
    """The progress of a run, as numbers of partitions."""

    done: int
    under_way: int
    total: int
    """Number of partitions."""


class Mover:
    """Carries out one plan. `told` is called when the progress changes."""

    def __init__(
        self,
        client: Client,
        present: Mapping[TopicPartition, Replicas],
        wanted: Mapping[TopicPartition, Replicas],
        *,
        under_way: Mapping[TopicPartition, Reassignment] | None = None,
        at_once: int = AT_ONCE,
        throttle: int | None = None,
        told: Callable[[Progress], object] = lambda _progress: None,
    ) -> None:
        """Create a mover for the plan `wanted`: partition → new replicas.

        `present`     the current replicas of all partitions; for a move in progress, the replicas after it
        `under_way`   moves already in progress, for which the run also waits
        `at_once`     the maximum number of partitions that move at the same time
        `throttle`    the maximum rate in bytes per second, for each broker and direction
        """
        self._moving = under_way or {}
        self._client = client
        self._present = present
        self._wanted = dict(sorted(wanted.items()))
        self._at_once = at_once
        self._throttle = throttle
        self._told = told

    def run(self) -> dict[TopicPartition, str]:
        """Move all partitions, then elect the preferred leaders. KafkaError or ClientError if a request is refused.

        The throttle is removed at the end. After an error, it remains while moves are in progress. The run that later
        finishes or cancels these moves removes it.

        Return the partitions whose election failed, with the reasons.
        """
        try:
            self._move()
        except (KafkaError, ClientError):
            with contextlib.suppress(KafkaError, ClientError):
                if self._is_throttled():
                    _unthrottle_unless_moving(self._client, {key.topic for key in self._present})
            raise
        if self._is_throttled():
            unthrottle(self._client, {key.topic for key in self._present})
        moved = sorted(self._wanted.keys() | self._moving.keys())
        return self._client.reassignments.elect_preferred(moved) if moved else {}

    def _is_throttled(self) -> bool:
        """Return whether there is a throttle to remove, from this run or an interrupted run."""
        return self._throttle is not None or is_throttled(self._client)

    def _move(self) -> None:
        if self._throttle is not None:
            throttle(self._client, self._throttle, self._present, self._wanted, self._moving)
        waiting = list(self._wanted)
        under_way = set(self._moving).difference(waiting)
        all_of_them = sorted(under_way.union(waiting))
        while waiting or under_way:
            begun = waiting[: max(0, self._at_once - len(under_way))]
            if begun:
                self._client.reassignments.alter({key: self._wanted[key] for key in begun})
                del waiting[: len(begun)]
                under_way.update(begun)
            under_way &= self._client.reassignments.list_all().keys()
            done = len(all_of_them) - len(waiting) - len(under_way)
            self._told(Progress(done, len(under_way), len(all_of_them)))
            if len(under_way) >= self._at_once or (under_way and not waiting):
                time.sleep(LOOK_S)


def is_throttled(client: Client) -> bool:
    """Return whether any broker has a replication throttle. An interrupted run may have left it."""
    return any(
        entry.source == CHANGED
        for broker in client.brokers()
        for entry in client.admin.describe_broker_configs(broker.node_id, RATES)
    )


def cancel(client: Client, topics: Iterable[str] | None = None) -> list[TopicPartition]:
    """Cancel the moves of these topics, or of all topics. Return the partitions whose moves were cancelled.

    Also removes throttles, even of moves that have ended.
    """
    chosen = None if topics is None else set(topics)
    found = [key for key in client.reassignments.list_all() if chosen is None or key.topic in chosen]
    if found:
        try:
            late = set(client.reassignments.alter(dict.fromkeys(found)))
        except (KafkaError, ClientError):
            _unthrottle_unless_moving(client, chosen)
            raise
        found = [key for key in found if key not in late]
    unthrottle(client, throttled_topics(client) if chosen is None else chosen)
    return sorted(found)


def _unthrottle_unless_moving(client: Client, topics: set[str] | None) -> None:
    """Remove the throttles of these topics, or of all topics, unless partitions are moving. Ignores errors."""
    with contextlib.suppress(KafkaError, ClientError):
        if not client.reassignments.list_all():
            unthrottle(client, throttled_topics(client) if topics is None else topics)


def throttled_topics(client: Client) -> set[str]:
    """Return the topics with throttled replicas. KafkaError or ClientError."""
    return {
        row.resource_name
        for row in describe_topics(client, sorted(client.topics()), THROTTLED)
        if any(entry.value for entry in row.configs)
    }


def throttle(
    client: Client,
    rate: int,
    present: Mapping[TopicPartition, Replicas],
    wanted: Mapping[TopicPartition, Replicas],
    under_way: Mapping[TopicPartition, Reassignment],
) -> None:
    """Throttle the moves of a plan and the moves in progress. KafkaError.

    `rate` is in bytes per second, for each broker and direction. The other parameters are as in Mover.
    """
    sending: dict[str, list[str]] = {}
    receiving: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for key in sorted(wanted.keys() | under_way.keys()):
        has, to = present[key], wanted.get(key, present[key])
        if key in under_way:
            has = tuple(broker for broker in under_way[key].replicas if broker not in under_way[key].adding)
        new = copies(has, to)
        if new:
            brokers.update(has, new)
            sending.setdefault(key.topic, []).extend(f"{key.partition}:{broker}" for broker in has)
            receiving.setdefault(key.topic, []).extend(f"{key.partition}:{broker}" for broker in new)
    in_service = {broker.node_id for broker in client.brokers()}
    for broker in sorted(brokers & in_service):
        client.admin.alter_broker_configs(broker, dict.fromkeys(RATES, str(rate)))
    for topic, senders in sending.items():
        lists = (",".join(senders), ",".join(receiving[topic]))
        client.admin.alter_topic_configs(topic, dict(zip(THROTTLED, lists, strict=True)))


def unthrottle(client: Client, topics: Iterable[str]) -> None:
    """Remove the throttles of these topics and of all brokers in service. Missing topics and brokers are ignored.

    If some throttles cannot be removed, the first error (KafkaError or ClientError) is raised after trying all others.
    """
    failed: list[Exception] = []
    there = client.topics().keys()
    for topic in sorted(set(topics) & there):
        try:
            client.admin.alter_topic_configs(topic, dict.fromkeys(THROTTLED))
        except (KafkaError, ClientError) as error:
            if topic in client.topics():
                failed.append(error)
    for broker in client.brokers():
        try:
            client.admin.alter_broker_configs(broker.node_id, dict.fromkeys(RATES))
        except (KafkaError, ClientError) as error:
            if broker.node_id in {each.node_id for each in client.brokers()}:
                failed.append(error)
    if failed:
        raise failed[0]

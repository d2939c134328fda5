"""Report metrics of consumer groups: committed offsets, lag, members, states.

The names are kafka_exporter's and Kafka's own. A partition's lag is the high watermark minus the committed offset, as
kafka-consumer-groups shows it. Offsets and lag are reported only for partitions that this broker leads, and for the
1000 groups with the most lag.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.metric_families import OTHERS, Family, labels
from kafkalite.metrics.text import breathe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.metrics.parts import Parts

STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling")
CLASSIC_STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
GROUPS_MAX: Final = 1000
"""Maximum number of groups that are reported one by one, those with the most lag; clients choose group names."""


class Position(NamedTuple):
    """A group's committed offset and lag in a partition."""

    topic: str
    partition: int
    offset: int
    lag: int


class Standing(NamedTuple):
    """The values to report for a group."""

    name: str
    members: int
    positions: list[Position]

    @property
    def lag(self) -> int:
        """The sum of the lag over all partitions."""
        return sum(position.lag for position in self.positions)


class Groups:
    """The source of consumer group metrics."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __call__(self) -> Iterator[Family]:
        coordinator, logs = self._parts.groups, self._parts.logs
        if coordinator is None or logs is None:
            return
        groups = coordinator.groups()
        yield from _states(groups)
        topics = logs.topics
        standings = []
        for group in groups:
            standings.append(_standing(group, topics))
            breathe()
        if len(standings) > GROUPS_MAX:
            standings.sort(key=lambda standing: standing.lag, reverse=True)
        listed, others = standings[:GROUPS_MAX], standings[GROUPS_MAX:]
        yield from _positions(listed)
        members = [(labels(consumergroup=one.name), one.members) for one in listed]
        if others:
            members.append((labels(consumergroup=OTHERS), sum(one.members for one in others)))
        yield Family("kafka_consumergroup_members", "gauge", "Members of a group.", members)


def _standing(group: GroupBase, topics: Mapping[str, Topic]) -> Standing:
    """Return a group's members, and its positions in the partitions that this broker leads.

    An offset is left out if its topic was deleted, even if a new topic has its name.
    """
    with group.changing():
        committed, members = list(group.offsets), group.member_count
    positions = []
    for (name, partition), found in committed:
        topic = topics.get(name)
        if topic is not None and partition < len(topic.partitions) and found.belongs_to(topic.id):
            if not topic.partitions[partition].led:
                continue  # the partition's leader reports it
            end = topic.partitions[partition].high_watermark
            positions.append(Position(name, partition, found.offset, end - found.offset))
    return Standing(group.group_id, members, positions)


def _states(groups: list[GroupBase]) -> Iterator[Family]:
    kinds = Counter(group.kind for group in groups)
    classic = Counter(group.state_name for group in groups if group.kind == "classic")
    consumer = Counter(group.state_name for group in groups if group.kind == "consumer")
    manager = "kafka_coordinator_group_groupmetadatamanager"
    yield Family(f"{manager}_numgroups", "gauge", "Groups.", [("", len(groups))])
    for state in CLASSIC_STATES:
        yield Family(
            f"{manager}_numgroups{state.lower()}",
            "gauge",
            f"Classic groups in state {state}.",
            [("", classic[state])],
        )
    yield Family(f"{manager}_numoffsets", "gauge", "Committed offsets.", [("", sum(len(g.offsets) for g in groups))])
    yield Family(
        "kafka_server_group_coordinator_metrics_group_count",
        "gauge",
        "Groups by protocol.",
        [(labels(protocol=kind), kinds[kind]) for kind in ("classic", "consumer")],
    )
    yield Family(
        "kafka_server_group_coordinator_metrics_consumer_group_count",
        "gauge",
        "Consumer groups (KIP-848) by state.",
        [(labels(state=state), consumer[state]) for state in STATES if state not in CLASSIC_STATES[1:3]],
    )


def _positions(standings: list[Standing]) -> Iterator[Family]:
    rows = [
        (labels(consumergroup=one.name, topic=position.topic, partition=position.partition), position)
        for one in standings
        for position in one.positions
    ]
    prefix = "kafka_consumergroup"
    yield Family(
        f"{prefix}_current_offset",
        "gauge",
        "Committed offset of a group in a partition.",
        [(a, b.offset) for a, b in rows],
    )
    yield Family(
        f"{prefix}_lag",
        "gauge",
        "Records between a group's committed offset and the end of the partition.",
        [(a, b.lag) for a, b in rows],
    )
    sums: dict[tuple[str, str], list[int]] = {}
    for one in standings:
        for position in one.positions:
            found = sums.setdefault((one.name, position.topic), [0, 0])
            found[0] += position.offset
            found[1] += position.lag
    for at, (name, text) in enumerate((("current_offset_sum", "Committed offsets"), ("lag_sum", "Lag"))):
        yield Family(
            f"{prefix}_{name}",
            "gauge",
            f"{text} of a group in a topic, summed over its partitions.",
            [(labels(consumergroup=group, topic=topic), found[at]) for (group, topic), found in sums.items()],
        )

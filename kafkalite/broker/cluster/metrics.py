"""Report a cluster's metrics: brokers, controller, partitions, elections, and this broker's state.

Numbers of brokers and partitions come from the broker's current image, so brokers with the same image report the same
values. Elections are counted from the broker's start. Alert rules use the maximum over the brokers.

The broker's state and last applied offset have the names of KafkaServer and BrokerServerMetrics in Prometheus's JMX
exporter, and kafka_brokers that of kafka_exporter. The other names begin with kafkalite_cluster_.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.metric_families import Family
from kafkalite.broker.cluster.image import EMPTY, RECOVERED
from kafkalite.broker.cluster.lifecycle import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.broker.cluster.image import Image, PartitionState
    from kafkalite.broker.cluster.member import Member

NOBODY: Final = -1
_STATES: Final = {
    Phase.REGISTERING: 1,
    Phase.STARTING: 1,
    Phase.IN_SERVICE: 3,
    Phase.STOPPING: 6,
    Phase.STOPPED: 7,
    Phase.FAILED: 7,
}
"""BrokerState of Kafka: 1 starting, 3 running, 6 pending controlled shutdown, 7 shutting down."""


class Partitions(NamedTuple):
    """Counts of partitions in the whole cluster."""

    total: int
    offline: int
    """Partitions without a leader."""
    under_replicated: int
    """Partitions with a replica out of sync."""


def partitions_of(image: Image) -> Partitions:
    """Count the partitions of an image."""
    count = offline = under_replicated = 0
    for topic in image.topics.values():
        for each in topic.partitions.values():
            count += 1
            offline += each.leader == NOBODY
            under_replicated += len(each.isr) < len(each.replicas)
    return Partitions(count, offline, under_replicated)


class ClusterMetrics:
    """The cluster's metrics. `use` is a listener of the member, `families` a source of metrics."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._elections = 0
        self._unclean = 0

    def use(self, before: Image, now: Image) -> None:
        """Count the partitions that have a leader in the new image, and had another one or none before."""
        if before is EMPTY or now.topics is before.topics:
            return
        for topic_id, topic in now.topics.items():
            known = before.topics.get(topic_id)
            if known is topic or known is None:
                continue
            for number, each in topic.partitions.items():
                then = known.partitions.get(number)
                if then is not None and then is not each and each.leader not in (NOBODY, then.leader):
                    self._elections += 1
                    self._unclean += _unclean(then, each)

    def families(self) -> Iterator[Family]:
        """Yield the metrics. Any thread."""
        member, image = self._member, self._member.image
        partitions = partitions_of(image)
        fenced = sum(each.fenced for each in image.brokers.values())
        leader = member.controller_id
        for name, value, text in (
            (
                "kafka_server_kafkaserver_brokerstate",
                _STATES[member.phase],
                "State of the broker: 1 starting, 3 running, 6 in controlled shutdown.",
            ),
            (
                "kafka_server_broker_metadata_metrics_last_applied_record_offset",
                image.offset,
                "Last offset of the metadata log that the broker has applied.",
            ),
            (
                "kafkalite_cluster_fenced",
                int(member.fenced),
                "1 while the controllers have this broker fenced, else 0.",
            ),
            (
                "kafkalite_cluster_controller_id",
                leader,
                "Id of the quorum leader that this broker knows, -1 if it knows none.",
            ),
            (
                "kafkalite_cluster_controller_seen",
                int(member.controller_seen),
                "1 while this broker knows a quorum leader, else 0.",
            ),
            (
                "kafkalite_cluster_heard_seconds_ago",
                member.heard_seconds_ago(),
                "Seconds since a controller answered a heartbeat.",
            ),
            (
                "kafkalite_cluster_metadata_lag_records",
                max(0, member.metadata_end - 1 - image.offset),
                "Committed records of the metadata log that this broker has not applied yet.",
            ),
            ("kafka_brokers", len(image.brokers), "Registered brokers."),
            ("kafkalite_cluster_fenced_brokers", fenced, "Registered brokers that are fenced."),
            ("kafkalite_cluster_partitions", partitions.total, "Partitions in the cluster."),
            (
                "kafkalite_cluster_offline_partitions",
                partitions.offline,
                "Partitions in the cluster without a leader.",
            ),
            (
                "kafkalite_cluster_under_replicated_partitions",
                partitions.under_replicated,
                "Partitions in the cluster with a replica out of sync.",
            ),
        ):
            yield Family(name, "gauge", text, [("", value)])
        for name, value, text in (
            ("kafkalite_cluster_elections", self._elections, "Leader changes of partitions since this broker started."),
            (
                "kafkalite_cluster_unclean_elections",
                self._unclean,
                "Leader changes since this broker started whose new leader was out of sync.",
            ),
        ):
            yield Family(name, "counter", text, [("", value)])


def _unclean(then: PartitionState, now: PartitionState) -> bool:
    return now.recovery != RECOVERED and then.recovery == RECOVERED

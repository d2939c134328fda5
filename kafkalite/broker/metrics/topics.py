"""Report metrics of topics and partitions: traffic, offsets, sizes and replicas.

A partition of a standalone broker has one replica.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from kafkalite._native.log.log_traffic import sum_traffic
from kafkalite.base.metric_families import Family, labels
from kafkalite.metrics.text import breathe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite._native.log.log_traffic import TrafficCounts
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.broker.log.replica_log import ReplicaLog
    from kafkalite.broker.metrics.parts import Parts

TRAFFIC: Final = (
    ("totalproducerequests", 0, "Batches that producers sent."),
    ("failedproducerequests", 1, "Batches that were refused."),
    ("invalidmessagecrcrecords", 2, "Batches that were refused because of a wrong checksum."),
    ("invalidmagicnumberrecords", 10, "Batches that were refused because their format is not magic 2."),
    (
        "invalidoffsetorsequencerecords",
        11,
        (
            "Batches that were refused because of invalid offsets, counts or sequence numbers, or because only brokers "
            "may write them."
        ),
    ),
    ("nokeycompactedtopicrecords", 12, "Records that compacted topics refused because they have no key."),
    ("messagesin", 3, "Records appended."),
    ("bytesin", 4, "Bytes appended."),
    ("bytesrejected", 5, "Bytes of batches that were refused."),
    ("totalfetchrequests", 6, "Partitions in fetch responses."),
    ("failedfetchrequests", 7, "Partitions in fetch responses that carried an error."),
    ("fetchmessageconversions", 8, "Fetched partitions whose records were converted from another format."),
    ("bytesout", 9, "Bytes of records sent."),
)
"""Name after `kafka_server_brokertopicmetrics_`, index in sum_traffic's result, help text."""
LOOKED_AT_ONCE: Final = 500
"""Number of partitions read between two releases of the GIL."""


class Topics:
    """The source of topic metrics."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._labels: dict[tuple[str, int], list[str]] = {}

    def __call__(self) -> Iterator[Family]:
        logs = self._parts.logs
        if logs is None:
            return
        topics, gone = logs.traffic()
        yield from self._traffic(topics, gone)
        yield from self._counts(logs, topics)
        yield Family(
            "kafka_topic_partitions",
            "gauge",
            "Partitions of a topic.",
            [(labels(topic=topic.name), len(topic.partitions)) for topic in topics],
        )
        if sum(len(topic.partitions) for topic in topics) <= self._parts.config.metrics_partitions_max:
            yield from self._partitions(topics)

    def _traffic(self, topics: Sequence[Topic], gone: TrafficCounts) -> Iterator[Family]:
        counts = [sum_traffic([log.core for log in topic.partitions]) for topic in topics]
        totals = [sum(column) for column in zip(gone, *counts, strict=True)]
        names = [labels(topic=topic.name) for topic in topics]
        for name, at, text in TRAFFIC:
            rows = [("", totals[at]), *((rest, one[at]) for rest, one in zip(names, counts, strict=True))]
            yield Family(f"kafka_server_brokertopicmetrics_{name}", "counter", text, rows)

    def _counts(self, logs: LogManager, topics: Sequence[Topic]) -> Iterator[Family]:
        here = [log for topic in topics for log in topic.partitions if log.segments]
        led = [log for log in here if log.led]
        online = [log for log in led if not log.offline]
        offline = sum(not log.deleted for log in logs.offline_logs)
        followed = [log.core.followers for log in led if log.core.followers is not None]
        for name, value, text in (
            (
                "server_replicamanager_leadercount",
                len(online),
                "Partitions that this broker leads and that are online.",
            ),
            ("server_replicamanager_partitioncount", len(here), "Partitions."),
            (
                "server_replicamanager_offlinereplicacount",
                offline,
                "Partitions that are offline because their storage failed.",
            ),
            (
                "server_replicamanager_underreplicatedpartitions",
                sum(each.under_replicated for each in followed),
                "Partitions that this broker leads with a replica out of sync.",
            ),
            (
                "server_replicamanager_underminisrpartitioncount",
                sum(each.under_min for each in followed),
                "Partitions that this broker leads with fewer in-sync replicas than min.insync.replicas.",
            ),
            (
                "server_replicamanager_atminisrpartitioncount",
                sum(each.at_min for each in followed) + sum(log.core.followers is None for log in online),
                "Partitions that this broker leads with exactly min.insync.replicas in sync, or with a single replica.",
            ),
        ):
            yield Family(f"kafka_{name}", "gauge", text, [("", value)])
        text = "Always 0: batches of older formats are refused."
        yield Family("kafka_server_brokertopicmetrics_producemessageconversions", "counter", text, [("", 0)])
        if not self._parts.config.in_cluster:  # in a cluster the controllers report these
            yield from self._as_controller(len(topics), len(here), offline)

    @staticmethod
    def _as_controller(topics: int, partitions: int, offline: int) -> Iterator[Family]:
        for name, value, text in (
            (
                "controller_kafkacontroller_activecontrollercount",
                1,
                "Always 1: the only broker is also the controller.",
            ),
            ("controller_kafkacontroller_activebrokercount", 1, "Always 1: the cluster has one broker."),
            (
                "controller_kafkacontroller_offlinepartitionscount",
                offline,
                "Partitions that are offline because their storage failed.",
            ),
            ("controller_kafkacontroller_globaltopiccount", topics, "Topics."),
            ("controller_kafkacontroller_globalpartitioncount", partitions, "Partitions."),
            ("brokers", 1, "Brokers in the cluster."),
        ):
            yield Family(f"kafka_{name}", "gauge", text, [("", value)])
        text = "Always 0: no other replica could be elected."
        yield Family("kafka_controller_controllerstats_uncleanleaderelections", "counter", text, [("", 0)])

    def _partitions(self, topics: Sequence[Topic]) -> Iterator[Family]:
        names = [rest for topic in topics for rest in self._labels_of(topic)]
        found: list[PartitionLog] = [log for topic in topics for log in topic.partitions]
        node_id, preferred = self._parts.config.node_id, [1] * len(names)
        if self._parts.config.in_cluster:  # each broker reports the partitions that it leads
            led = [(rest, log) for rest, log in zip(names, found, strict=True) if log.led]
            names, found = [rest for rest, _ in led], [log for _, log in led]
            preferred = [int(log.assignment.replicas[0] == node_id) for log in cast("list[ReplicaLog]", found)]
        looks = []
        rest = iter(found)
        while some := list(islice(rest, LOOKED_AT_ONCE)):
            looks += [log.core.gauges() for log in some]
            breathe()
        online = [int(not log.offline) for log in found]
        followed = [log.core.followers for log in found]
        replicas = [1 if each is None else each.count + 1 for each in followed]
        in_sync = [one if each is None else each.in_sync_count for one, each in zip(online, followed, strict=True)]
        under_replicated = [int(some < all_) for some, all_ in zip(in_sync, replicas, strict=True)]
        at_min = [1 if each is None else int(each.at_min) for each in followed]
        under_min = [
            1 - one if each is None else int(each.under_min) for one, each in zip(online, followed, strict=True)
        ]
        columns: Mapping[str, Sequence[int]] = (
            dict(zip(GAUGES, zip(*looks, strict=True), strict=True)) if looks else dict.fromkeys(GAUGES, ())
        )
        for name, column, text in (
            ("log_log_size", columns["size"], "Size of the log, in bytes."),
            ("log_log_numlogsegments", columns["segments"], "Segments of the log."),
            ("log_log_logstartoffset", columns["start"], "First offset of the log."),
            ("log_log_logendoffset", columns["end"], "Offset of the next record."),
            ("topic_partition_oldest_offset", columns["start"], "First offset of the log."),
            ("topic_partition_current_offset", columns["end"], "Offset of the next record."),
            ("topic_partition_leader", [node_id] * len(names), "Id of the leader."),
            ("topic_partition_leader_is_preferred", preferred, "1 if the leader is the preferred replica, else 0."),
            ("topic_partition_replicas", replicas, "Replicas."),
            ("topic_partition_in_sync_replica", in_sync, "In-sync replicas."),
            (
                "topic_partition_under_replicated_partition",
                under_replicated,
                "1 if a replica is out of sync or offline, else 0.",
            ),
            ("cluster_partition_replicascount", replicas, "Replicas."),
            ("cluster_partition_insyncreplicascount", in_sync, "In-sync replicas."),
            (
                "cluster_partition_underreplicated",
                under_replicated,
                "1 if a replica is out of sync or offline, else 0.",
            ),
            ("cluster_partition_atminisr", at_min, "1 if exactly min.insync.replicas are in sync, else 0."),
            (
                "cluster_partition_underminisr",
                under_min,
                "1 if fewer than min.insync.replicas are in sync or the only replica is offline, else 0.",
            ),
        ):
            yield Family(f"kafka_{name}", "gauge", text, zip(names, column, strict=True))
        yield Family(
            "kafkalite_log_unflushed_bytes",
            "gauge",
            "Bytes appended and not yet flushed to the disk.",
            [("", sum(columns["unflushed"]))],
        )

    def _labels_of(self, topic: Topic) -> list[str]:
        """Return the labels of a topic's partitions.

        They are cached, since they never change and make up most of the metrics' text.
        """
        key = (topic.name, len(topic.partitions))
        found = self._labels.get(key)
        if found is None:
            if len(self._labels) > 2 * len(self._parts.logs.topics if self._parts.logs else ()):
                self._labels.clear()  # drop the labels of deleted topics
            found = [labels(topic=topic.name, partition=at) for at in range(len(topic.partitions))]
            self._labels[key] = found
            breathe()
        return found


GAUGES: Final = ("size", "segments", "start", "end", "unflushed")
"""The values that LogCore.gauges returns."""

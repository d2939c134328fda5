"""Topics and partitions: traffic, offsets, sizes, and what a dashboard asks of replicas; alone each has one."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from kafkalite._native.log.log_core import sum_traffic
from kafkalite.families import Family, labels
from kafkalite.metrics.text import breathe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite._native.log.log_core import TrafficCounts
    from kafkalite._native.serve.topic_table import Topic
    from kafkalite.log.manager import LogManager
    from kafkalite.log.partition_log import PartitionLog
    from kafkalite.metrics.parts import Parts

TRAFFIC: Final = (
    ("totalproducerequests", 0, "Batches that were given to logs."),
    ("failedproducerequests", 1, "Batches that logs refused."),
    ("invalidmessagecrcrecords", 2, "Batches that were refused since their checksum is wrong."),
    ("invalidmagicnumberrecords", 10, "Batches that were refused since they are of another format than magic 2."),
    (
        "invalidoffsetorsequencerecords",
        11,
        "Batches that were refused for offsets, count or sequence that cannot be, or since brokers alone write them.",
    ),
    ("nokeycompactedtopicrecords", 12, "Records that a compacted topic refused, since they have no key."),
    ("messagesin", 3, "Records appended."),
    ("bytesin", 4, "Bytes appended."),
    ("bytesrejected", 5, "Bytes of batches that were refused."),
    ("totalfetchrequests", 6, "Partitions that were answered to fetches."),
    ("failedfetchrequests", 7, "Partitions that were answered to fetches with an error."),
    ("fetchmessageconversions", 8, "Fetched partitions whose records were made from another format."),
    ("bytesout", 9, "Bytes of records sent."),
)
"""Name behind `kafka_server_brokertopicmetrics_`, place in what sum_traffic gives, help."""
LOOKED_AT_ONCE: Final = 500
"""Partitions between two breaths."""


class Topics:
    """A source."""

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
        partitions, led = len(here), sum(log.led for log in here)
        alone = int(not self._parts.config.in_cluster)
        offline = sum(not log.deleted for log in logs.offline_logs)
        followed = [log.core.followers for log in here if log.led and log.core.followers is not None]
        alone_led = led - offline - len(followed)
        for name, value, text in (
            (
                "server_replicamanager_leadercount",
                led - offline,
                "Partitions that are led here and online.",
            ),
            ("server_replicamanager_partitioncount", partitions, "Partitions."),
            ("server_replicamanager_offlinereplicacount", offline, "Partitions whose storage failed."),
            (
                "server_replicamanager_underreplicatedpartitions",
                sum(each.under_replicated for each in followed),
                "Partitions that are led here and have a replica out of sync.",
            ),
            (
                "server_replicamanager_underminisrpartitioncount",
                sum(each.under_min for each in followed),
                "Partitions that are led here, with fewer replicas in sync than min.insync.replicas.",
            ),
            (
                "server_replicamanager_atminisrpartitioncount",
                sum(each.at_min for each in followed) + max(0, alone_led),
                "Those with just as many; one replica is always just enough.",
            ),
            ("controller_kafkacontroller_activecontrollercount", alone, "1: the only node, which is the controller."),
            ("controller_kafkacontroller_activebrokercount", alone, "The same."),
            ("controller_kafkacontroller_offlinepartitionscount", offline, "Partitions whose storage failed."),
            ("controller_kafkacontroller_globaltopiccount", len(topics), "Topics."),
            ("controller_kafkacontroller_globalpartitioncount", partitions, "Partitions."),
            ("brokers", 1, "Brokers in the cluster."),
        ):
            yield Family(f"kafka_{name}", "gauge", text, [("", value)])
        for name, text in (
            ("controller_controllerstats_uncleanleaderelections", "0: there is no other replica to elect."),
            ("server_brokertopicmetrics_producemessageconversions", "0: batches of older formats are refused."),
        ):
            yield Family(f"kafka_{name}", "counter", text, [("", 0)])

    def _partitions(self, topics: Sequence[Topic]) -> Iterator[Family]:
        names = [rest for topic in topics for rest in self._labels_of(topic)]
        found: list[PartitionLog] = [log for topic in topics for log in topic.partitions]
        if self._parts.config.in_cluster:  # others' partitions are others' to tell of
            names = [rest for rest, log in zip(names, found, strict=True) if log.led]
            found = [log for log in found if log.led]
        looks = []
        rest = iter(found)
        while some := list(islice(rest, LOOKED_AT_ONCE)):
            looks += [log.core.gauges() for log in some]
            breathe()
        online = [int(not log.offline) for log in found]
        followed = [log.core.followers for log in found]
        replicas = [1 if each is None else each.count + 1 for each in followed]
        in_sync = [one if each is None else each.in_sync_count for one, each in zip(online, followed, strict=True)]
        behind = [int(some < all_) for some, all_ in zip(in_sync, replicas, strict=True)]
        at_min = [1 if each is None else int(each.at_min) for each in followed]
        under_min = [
            1 - one if each is None else int(each.under_min) for one, each in zip(online, followed, strict=True)
        ]
        columns: Mapping[str, Sequence[int]] = (
            dict(zip(GAUGES, zip(*looks, strict=True), strict=True)) if looks else dict.fromkeys(GAUGES, ())
        )
        for name, column, text in (
            ("log_log_size", columns["size"], "Bytes on the disk."),
            ("log_log_numlogsegments", columns["segments"], "Files of records."),
            ("log_log_logstartoffset", columns["start"], "First offset."),
            ("log_log_logendoffset", columns["end"], "Offset of the next record."),
            ("topic_partition_oldest_offset", columns["start"], "First offset."),
            ("topic_partition_current_offset", columns["end"], "Offset of the next record."),
            ("topic_partition_leader", [self._parts.config.node_id] * len(names), "Id of the leader."),
            ("topic_partition_leader_is_preferred", [1] * len(names), "1: there is no other."),
            ("topic_partition_replicas", replicas, "Replicas."),
            ("topic_partition_in_sync_replica", in_sync, "Replicas in sync."),
            ("topic_partition_under_replicated_partition", behind, "Whether a replica is out of sync or offline."),
            ("cluster_partition_replicascount", replicas, "Replicas."),
            ("cluster_partition_insyncreplicascount", in_sync, "Replicas in sync."),
            ("cluster_partition_underreplicated", behind, "Whether a replica is out of sync or offline."),
            ("cluster_partition_atminisr", at_min, "Whether just as many are in sync as min.insync.replicas asks for."),
            ("cluster_partition_underminisr", under_min, "Whether fewer are, or the only one is offline."),
        ):
            yield Family(f"kafka_{name}", "gauge", text, zip(names, column, strict=True))
        yield Family(
            "kafkalite_log_unflushed_bytes",
            "gauge",
            "Bytes appended and not synced yet.",
            [("", sum(columns["unflushed"]))],
        )

    def _labels_of(self, topic: Topic) -> list[str]:
        """Of its partitions; kept, since they are most of the text and never change."""
        key = (topic.name, len(topic.partitions))
        found = self._labels.get(key)
        if found is None:
            if len(self._labels) > 2 * len(self._parts.logs.topics if self._parts.logs else ()):
                self._labels.clear()  # what is left of topics that are gone
            found = [labels(topic=topic.name, partition=at) for at in range(len(topic.partitions))]
            self._labels[key] = found
            breathe()
        return found


GAUGES: Final = ("size", "segments", "start", "end", "unflushed")
"""What LogCore.gauges gives."""

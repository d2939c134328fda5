"""Show brokers: their partitions, their disks and when these will be full, and their settings with documentation.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.console.chart_sets import SIZES_REACH, WINDOWS, ChartSet
from kafkalite.console.charts import BYTES, Chart
from kafkalite.console.requests import NotFoundError, whole
from kafkalite.console.rings import DAY
from kafkalite.console.settings_rows import settings_rows
from kafkalite.errors import KafkaError
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalite.client import Client
    from kafkalite.client.admin.admin import LogDirectory
    from kafkalite.console.requests import Request
    from kafkalite.console.sampler import Sampler

TREND_MS_MIN: Final = 3_600_000
"""Minimum history of a disk before its fill time is estimated."""
TOPICS_SHOWN: Final = 20


class Brokers:
    """The pages about brokers."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def list_page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the data of the page with all brokers."""
        window = request.choice("window", WINDOWS)
        brokers = client.with_retries(client.brokers)
        topics = request.topics(client)
        parts = [row for topic in topics.values() for row in topic.partitions]
        leads = Counter(row.leader for row in parts)
        keeps = Counter(number for row in parts for number in row.replicas)
        behind = Counter(number for row in parts for number in row.replicas if number not in row.in_sync)
        rows = []
        for broker in brokers:
            disks = directories_of(client, broker.node_id)
            rows.append(
                {
                    "id": broker.node_id,
                    "host": broker.host,
                    "port": broker.port,
                    "rack": broker.rack,
                    "controller": broker.node_id == client.controller_id,
                    "leads": leads[broker.node_id],
                    "keeps": keeps[broker.node_id],
                    "behind": behind[broker.node_id],
                    "bytes": None if disks is None else sum(sum(disk.sizes.values()) for disk in disks),
                    "failed": 0 if disks is None else sum(bool(disk.error_code) for disk in disks),
                }
            )
        latencies = self._sampler.latencies
        return {
            "quorum": api.DESCRIBE_QUORUM not in self._sampler.lacks,
            "brokers": rows,
            "cluster_id": client.cluster_id,
            "offline": leads[-1],
            "window": window,
            "charts": [] if latencies is None else ChartSet.of(self._sampler, window).latencies(),
            "metrics": latencies is not None,
            "metrics_failures": {} if latencies is None else dict(latencies.failures),
        }

    def page(self, client: Client, request: Request) -> dict[str, Any]:
        """Return the data of the page about one broker."""
        number = whole(request.values[0], "broker")
        window = request.choice("window", WINDOWS)
        found = next((row for row in client.with_retries(client.brokers) if row.node_id == number), None)
        if found is None:
            raise NotFoundError(f"there is no broker {number} now")
        disks = directories_of(client, number)
        try:
            settings = settings_rows(client.admin.describe_broker_configs(number))
        except (KafkaError, ClientError):
            settings = None
        gallery = ChartSet.of(self._sampler, window)
        lines = [gallery.line(disk.path, "free", str(number), disk.path) for disk in disks or ()]
        known = [line for line in lines if line is not None]
        return {
            "id": number,
            "host": found.host,
            "port": found.port,
            "rack": found.rack,
            "controller": number == client.controller_id,
            "window": window,
            "disks": None if disks is None else [self._disk(number, disk) for disk in disks],
            "charts": [gallery.draw(Chart("free", "Free on disk", BYTES, known, reach=SIZES_REACH))] if known else [],
            "settings": settings,
        }

    def _disk(self, number: int, disk: LogDirectory) -> dict[str, Any]:
        """Return a log directory as plain data, with its largest topics and the seconds until it is full."""
        topics: Counter[str] = Counter()
        for key, size in disk.sizes.items():
            topics[key.topic] += size
        series = self._sampler.rings.get("free", str(number), disk.path)
        now_ms = int(time.time() * 1000)
        return {
            "path": disk.path,
            "failed": bool(disk.error_code),
            "total": disk.total,
            "usable": disk.usable,
            "bytes": sum(disk.sizes.values()),
            "replicas": len(disk.sizes),
            "full_s": None if series is None else full_after_s(series.window(DAY, now_ms), DAY.step_ms),
            "topics": [{"name": name, "bytes": size} for name, size in topics.most_common(TOPICS_SHOWN)],
        }


def full_after_s(free: Sequence[float], step_ms: int) -> float | None:
    """Return the estimated seconds until the disk is full. None without growth or without enough history."""
    known = [(slot, value) for slot, value in enumerate(free) if value == value]
    if len(known) < 2 or (known[-1][0] - known[0][0]) * step_ms < TREND_MS_MIN:
        return None
    lost = known[0][1] - known[-1][1]
    if lost <= 0:
        return None
    return known[-1][1] / lost * (known[-1][0] - known[0][0]) * step_ms / 1000


def directories_of(client: Client, number: int) -> list[LogDirectory] | None:
    """Return the log directories of a broker. None if the client is not authorized or the broker does not respond."""
    try:
        return client.admin.log_directories(number)
    except (KafkaError, ClientError):
        return None

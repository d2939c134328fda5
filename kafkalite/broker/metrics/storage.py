"""Report metrics of the data directory: space, group commit, appends, journal, segments, producers, trusted time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalite._native.serve.produce import deferred_bytes_now
from kafkalite.base.metric_families import Family
from kafkalite.broker.metrics.requests import histogram_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.metrics.parts import Parts


class Storage:
    """The source of storage metrics."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __call__(self) -> Iterator[Family]:
        logs = self._parts.logs
        if logs is None:
            return
        yield Family(
            "kafkalite_flush_seconds",
            "histogram",
            "Duration of a group commit, in seconds: one or more fdatasync calls.",
            histogram_rows(logs.flusher.durations.numbers()),
        )
        yield Family(
            "kafkalite_flush_waiting", "gauge", "Responses that wait for a group commit.", [("", logs.flusher.waiting)]
        )
        yield Family(
            "kafkalite_append_deferred_bytes",
            "gauge",
            "Bytes of batches that wait to be appended by the I/O pool.",
            [("", deferred_bytes_now())],
        )
        yield Family("kafkalite_journal_bytes", "gauge", "Size of the metadata journal.", [("", logs.metadata.size())])
        yield Family("kafkalite_segments_open", "gauge", "Open segments.", [("", logs.services.cache.open_count)])
        yield Family(
            "kafka_server_replicamanager_produceridcount",
            "gauge",
            "Producers whose state the logs keep.",
            [("", sum(len(log.producers) for log in logs.logs() if log.producers is not None))],
        )
        offline = int(not os.path.isdir(logs.directory))
        yield Family(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "1 while the data directory is unreachable, else 0.",
            [("", offline)],
        )
        yield from _clock(logs)
        yield from _space(logs.directory)


def _clock(logs: LogManager) -> Iterator[Family]:
    """Yield metrics of the trusted time, which decides when records, offsets, producer ids and transactional ids
    expire."""
    time_s = logs.expiry_time.time_ms() / 1000
    ahead = logs.expiry_time.ahead()
    ahead_s, left_s = (0.0, 0.0) if ahead is None else (ahead.ahead_ms / 1000, ahead.left_ms / 1000)
    yield Family(
        "kafkalite_expiry_time_seconds",
        "gauge",
        "Trusted time that expiry uses, in seconds since 1970.",
        [("", time_s)],
    )
    yield Family(
        "kafkalite_clock_ahead_seconds",
        "gauge",
        "Seconds that the wall clock is ahead of the trusted time; 0 while the trusted time follows it.",
        [("", ahead_s)],
    )
    yield Family(
        "kafkalite_clock_hold_left_seconds",
        "gauge",
        "Running time until the trusted time follows a wall clock that is ahead, in seconds.",
        [("", left_s)],
    )


def _space(directory: str) -> Iterator[Family]:
    try:
        found = os.statvfs(directory)
    except OSError:
        return
    for name, blocks, text in (
        ("total", found.f_blocks, "Size of the file system of the data directory, in bytes."),
        ("free", found.f_bavail, "Space left for the broker on the file system of the data directory, in bytes."),
    ):
        yield Family(f"kafkalite_disk_{name}_bytes", "gauge", text, [("", blocks * found.f_frsize)])

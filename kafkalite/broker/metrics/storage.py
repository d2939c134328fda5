"""The data directory: free space, group commit, the journal, producers, the time by which things expire."""

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
    """A source."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __call__(self) -> Iterator[Family]:
        logs = self._parts.logs
        if logs is None:
            return
        yield Family(
            "kafkalite_flush_seconds",
            "histogram",
            "Seconds that a group commit took, one fdatasync or more.",
            histogram_rows(logs.flusher.durations.numbers()),
        )
        yield Family(
            "kafkalite_flush_waiting", "gauge", "Answers that wait for a group commit.", [("", logs.flusher.waiting)]
        )
        yield Family(
            "kafkalite_append_deferred_bytes",
            "gauge",
            "Bytes of batches that wait for the I/O pool.",
            [("", deferred_bytes_now())],
        )
        yield Family("kafkalite_journal_bytes", "gauge", "Size of the metadata journal.", [("", logs.metadata.size())])
        yield Family(
            "kafkalite_segments_open", "gauge", "Segments that are open.", [("", logs.services.cache.open_count)]
        )
        yield Family(
            "kafka_server_replicamanager_produceridcount",
            "gauge",
            "Producers that logs remember.",
            [("", sum(len(log.producers) for log in logs.logs() if log.producers is not None))],
        )
        offline = int(not os.path.isdir(logs.directory))
        yield Family(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "1 while the data directory cannot be reached.",
            [("", offline)],
        )
        yield from _clock(logs)
        yield from _space(logs.directory)


def _clock(logs: LogManager) -> Iterator[Family]:
    """The time by which records, offsets, producer ids and transactional ids expire."""
    time_s = logs.expiry_time.time_ms() / 1000
    ahead = logs.expiry_time.ahead()
    ahead_s, left_s = (0.0, 0.0) if ahead is None else (ahead.ahead_ms / 1000, ahead.left_ms / 1000)
    yield Family(
        "kafkalite_expiry_time_seconds", "gauge", "The trusted time, since 1970: things expire by it.", [("", time_s)]
    )
    yield Family(
        "kafkalite_clock_ahead_seconds",
        "gauge",
        "By how much the wall clock is ahead of the trusted time; 0 while it is followed.",
        [("", ahead_s)],
    )
    yield Family(
        "kafkalite_clock_hold_left_seconds",
        "gauge",
        "Running time after which trusted time follows a wall clock that is ahead.",
        [("", left_s)],
    )


def _space(directory: str) -> Iterator[Family]:
    try:
        found = os.statvfs(directory)
    except OSError:
        return
    for name, blocks, text in (
        ("total", found.f_blocks, "Size of the file system of the data directory."),
        ("free", found.f_bavail, "Bytes that the broker may still take there."),
    ):
        yield Family(f"kafkalite_disk_{name}_bytes", "gauge", text, [("", blocks * found.f_frsize)])

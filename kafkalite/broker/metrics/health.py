"""Report why a broker is not alive or not ready.

A report is a list of sentences, which is empty if the broker is alive or ready. A broker is alive if every network
worker's loop has run within the last LIVE_S seconds. A broker is ready if it can serve clients normally. For example,
it is not ready while it starts or stops, or while its disk is full.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import native_time as time
from kafkalite.broker.limits.memory import describe

if TYPE_CHECKING:
    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.metrics.parts import Parts

LIVE_S: Final = 5.0
"""Time in seconds within which a live worker's loop has turned; an idle loop turns once a second."""
DISK_FREE_MIN: Final = 1024 * 1024
"""Free bytes below which writes fail or are about to."""


def not_alive(parts: Parts) -> list[str]:
    """Return the reasons why the broker is not alive; empty if it is alive.

    A broker that is starting or stopping counts as alive.
    """
    if parts.stopping or not parts.accepting:
        return []
    now = time.monotonic()  # the clock that workers use, not the broker's
    return [
        f"network worker {worker.number} has been busy or stuck for {now - worker.io.now:.0f} s"
        for worker in parts.workers
        if now - worker.io.now > LIVE_S
    ]


def not_ready(parts: Parts) -> list[str]:
    """Return the reasons why the broker is not ready; empty if it is ready."""
    if parts.stopping:
        return ["the broker is stopping"]
    if parts.logs is None or not parts.accepting:
        return ["the broker is starting: it is opening its logs"]
    reasons = not_alive(parts)
    if parts.groups is not None and not parts.groups.shards.wait_loaded(0):
        reasons.append("consumer groups are still loading")
    if parts.transactions is not None and not parts.transactions.shards.wait_loaded(0):
        reasons.append("transactions are still loading")
    return reasons + _storage(parts.logs)


def notes(parts: Parts) -> list[str]:
    """Return remarks about problems that do not keep the broker from serving clients, such as an unreachable mirror
    source.
    """
    if parts.stopping:
        return []
    return [*_clock(parts.logs), *_memory(parts.memory), *(text for part in parts.notes for text in part())]


def _clock(logs: LogManager | None) -> list[str]:
    ahead = None if logs is None else logs.expiry_time.ahead()
    if ahead is None:
        return []
    ahead_s, left_s = ahead.ahead_ms // 1000, ahead.left_ms // 1000
    return [
        f"the wall clock is {ahead_s} s ahead (a clock jump, or downtime); expiry ignores that for another {left_s} s"
    ]


def _memory(memory: MemoryCeiling | None) -> list[str]:
    if memory is None or not memory.near:
        return []
    return [f"{describe(memory)}; the broker has paused reading from the clients that hold the most"]


def _storage(logs: LogManager) -> list[str]:
    if logs.metadata.failure is not None:
        return [
            (
                f"the metadata journal failed ({logs.metadata.failure}); topics and settings cannot change until the "
                "broker restarts"
            )
        ]
    try:
        found = os.statvfs(logs.directory)
    except OSError as error:
        return [f"the data directory is unreachable: {error.strerror}"]
    if found.f_bavail * found.f_frsize < DISK_FREE_MIN or any(log.core.storage_full for log in logs.logs()):
        return ["the disk of the data directory is full"]
    return []

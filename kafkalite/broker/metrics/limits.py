"""Report metrics of limits on clients: quotas, connection limits, memory, denied operations.

A quota applies to all clients of its *owner*: a user, a client id, or a user with a client id. A scrape computes an
owner's rate from the owner's total now and at an earlier scrape.
"""

from __future__ import annotations

import threading
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.metric_families import LABELLED_MAX, OTHERS, Family, labels
from kafkalite.base.quota_entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from kafkalite.broker.net.acceptor import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite._native.serve.quota import Owner, QuotaControl
    from kafkalite.broker.metrics.parts import Parts
    from kafkalite.broker.net.acceptor import Acceptor

RATES: Final = {
    PRODUCER_BYTE_RATE: ("Produce", "byte_rate"),
    CONSUMER_BYTE_RATE: ("Fetch", "byte_rate"),
    REQUEST_PERCENTAGE: ("Request", "request_time"),
    CONTROLLER_MUTATION_RATE: ("ControllerMutation", "mutation_rate"),
}
"""Quota key → Kafka's name of the resource, and of the metric of its use per second."""
HELP: Final = {
    "byte_rate": "Bytes per second of clients with a quota.",
    "request_time": "Percentage of one thread's time that the requests of clients with a quota take.",
    "mutation_rate": "Partitions per second that clients with a quota create and delete.",
}


class Seen(NamedTuple):
    """The totals of a meter (a client quota's counter) since it was created."""

    done: float = 0.0
    throttled_ms: float = 0.0
    throttled_count: int = 0

    def since(self, before: Seen) -> Seen:
        """Return the increase since an earlier reading. If a total is lower now, the owner has a new meter, so return
        its totals.
        """
        if self.done < before.done or self.throttled_count < before.throttled_count:
            return self
        return Seen(
            self.done - before.done,
            self.throttled_ms - before.throttled_ms,
            self.throttled_count - before.throttled_count,
        )

    def plus(self, other: Seen) -> Seen:
        """Return the sum of these totals and those of `other`."""
        return Seen(
            self.done + other.done,
            self.throttled_ms + other.throttled_ms,
            self.throttled_count + other.throttled_count,
        )


Look = tuple[float, dict["Owner", Seen]]
"""(Monotonic seconds, owner → the meter's totals at that time)."""


class Recent:
    """The recent use of quotas by owner: the use since an earlier scrape, or at first since the start.

    The earlier scrape is the latest stored one that is at least `window_s` seconds old.
    """

    def __init__(self, now: float, window_s: float) -> None:
        self._window_s = window_s
        self._lock = threading.Lock()
        self._looks: list[Look] = [(now, {})]  # at most two, a window apart

    def look(self, now: float, control: QuotaControl) -> tuple[float, dict[Owner, Seen]]:
        """Read all totals; return (elapsed seconds, owner → the owner's use in this time). Any thread."""
        seen = {
            owner: Seen(meter.done, meter.throttled_ms, meter.throttled_count)
            for owner, meter in list(control.meters.items())
        }
        with self._lock:
            if len(self._looks) > 1 and self._looks[-1][0] <= now - self._window_s:
                del self._looks[0]
            since, before = self._looks[0]
            if self._looks[-1][0] <= now - self._window_s:
                self._looks.append((now, seen))
        found = {owner: one.since(before.get(owner, Seen())) for owner, one in seen.items()}
        return max(now - since, 1e-3), found


class Limits:
    """The source of metrics about limits."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        config = parts.config
        window_s = max(1, config.quota_window_num - 1) * config.quota_window_size_seconds
        self._recent = Recent(parts.clock.monotonic(), window_s)

    def __call__(self) -> Iterator[Family]:
        if self._parts.quotas is not None:
            yield from self._quotas(self._parts.quotas.control)
        if self._parts.acceptor is not None:
            yield from _connections(self._parts.acceptor, [bound.name for bound in self._parts.listeners])
        if self._parts.memory is not None:
            yield from _memory(self._parts.memory)
        denied = {} if self._parts.authorizer is None else self._parts.authorizer.denied()
        yield Family(
            "kafkalite_authorisations_denied",
            "counter",
            "Denied operations by operation and resource type; a topic is counted at most once per second.",
            [
                (labels(operation=operation.name, resource=kind.name), count)
                for (operation, kind), count in sorted(denied.items())
            ],
        )

    def _quotas(self, control: QuotaControl) -> Iterator[Family]:
        elapsed_s, recent = self._recent.look(self._parts.clock.monotonic(), control)
        by_key = {key: _told(key, recent) for key in RATES}
        for metric, text in HELP.items():
            rows = [
                (place, one.done / elapsed_s)
                for key, (_, name) in RATES.items()
                if name == metric
                for place, one in by_key[key]
            ]
            yield Family(f"kafka_server_quota_{metric}", "gauge", text, rows)
        yield Family(
            "kafka_server_quota_throttle_time",
            "gauge",
            "Average throttle time of clients over a quota, in milliseconds; 0 if none was throttled.",
            [
                (place, one.throttled_ms / max(1, one.throttled_count))
                for rows in by_key.values()
                for place, one in rows
            ],
        )
        totals = control.totals()
        yield Family(
            "kafkalite_quota_throttled",
            "counter",
            "Responses that carried a throttle time.",
            [(labels(resource=RATES[key][0]), totals[key][2] if key in totals else 0) for key in RATES],
        )
        yield Family(
            "kafkalite_quota_throttled_seconds",
            "counter",
            "Total throttle time of clients over a quota, in seconds.",
            [(labels(resource=RATES[key][0]), totals[key][1] / 1000 if key in totals else 0.0) for key in RATES],
        )


def _memory(memory: MemoryCeiling) -> Iterator[Family]:
    yield Family(
        "kafkalite_memory_max_bytes",
        "gauge",
        "Limit of the memory that the broker holds for clients, in bytes (broker.memory.max).",
        [("", memory.size_max or 0)],
    )
    yield Family(
        "kafkalite_memory_bytes",
        "gauge",
        "Memory that the broker holds for clients, in bytes by kind.",
        [(labels(kind=kind), size) for kind, size in memory.by_kind().items()],
    )
    yield Family(
        "kafkalite_memory_pauses",
        "counter",
        "Times that reading from a connection paused because its principal and address held too much memory, or "
        "the queue was full.",
        [("", memory.pause_count)],
    )


def _told(key: str, recent: dict[Owner, Seen]) -> list[tuple[str, Seen]]:
    """Return (labels, use) for the owners of a quota key, and for the sum of the owners that are not listed.

    The listed owners are those that were throttled for longest or used the most.
    """
    rows = [(owner, one) for owner, one in recent.items() if owner[0] == key]
    kept = nlargest(LABELLED_MAX, rows, key=lambda row: (row[1].throttled_ms, row[1].done))
    found = [(_labels(key, owner[1] or "", owner[2] or ""), one) for owner, one in kept]
    if len(rows) > len(kept):
        names = {owner for owner, _ in kept}
        rest = Seen()
        for owner, one in rows:
            if owner not in names:
                rest = rest.plus(one)
        found.append((_labels(key, OTHERS, OTHERS), rest))
    return found


def _labels(key: str, user: str, client_id: str) -> str:
    return labels(user=user, clientid=client_id, resource=RATES[key][0])


def _connections(acceptor: Acceptor, listeners: Iterable[str]) -> Iterator[Family]:
    yield Family(
        "kafkalite_connections_refused",
        "counter",
        "Connections that the broker refused, at once or after a delay, by the limit that was reached.",
        [(labels(limit=limit), acceptor.refused[limit]) for limit in LIMITS],
    )
    yield Family(
        "kafkalite_connections_held",
        "gauge",
        "Connections that wait, unread, to be closed because their address exceeded connection_creation_rate.",
        [("", acceptor.held_count)],
    )
    delayed = sorted({**dict.fromkeys(listeners, (0, 0.0)), **acceptor.delayed}.items())
    yield Family(
        "kafkalite_listener_delays",
        "counter",
        "Times that accepting on a listener paused because connections exceeded max.connection.creation.rate.",
        [(labels(listener=name), count) for name, (count, _) in delayed],
    )
    yield Family(
        "kafkalite_listener_delay_seconds",
        "counter",
        "Total time that accepting on a listener was paused, in seconds.",
        [(labels(listener=name), seconds) for name, (_, seconds) in delayed],
    )

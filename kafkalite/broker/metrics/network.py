"""Report metrics of connections, authentication, threads, fetch sessions and parked requests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import native_time as time
from kafkalite.base.metric_families import Family, labels, most
from kafkalite.broker.handlers.sign_in import Outcome
from kafkalite.broker.metrics.requests import histogram_rows
from kafkalite.broker.metrics.slow import name_of
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite._native.serve.connection import Connection
    from kafkalite.broker.metrics.parts import Parts

UNKNOWN: Final = "unknown"
"""Kafka's word for clients that have not named their software."""


class Network:
    """The source of network metrics."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __call__(self) -> Iterator[Family]:
        parts = self._parts
        by_worker = [(worker.number, worker.connections()) for worker in parts.workers]
        prefix = "kafka_server_socket_server_metrics"
        counts = Counter(
            (connection.listener.name, number) for number, connections in by_worker for connection in connections
        )
        places = [(bound.name, worker.number) for bound in parts.listeners for worker in parts.workers]
        yield Family(
            f"{prefix}_connection_count",
            "gauge",
            "Open connections.",
            [(labels(listener=name, networkprocessor=number), counts[name, number]) for name, number in places],
        )
        yield Family(
            f"{prefix}_connection_creation",
            "counter",
            "Connections accepted.",
            [(labels(networkprocessor=worker.number), worker.adopted_count) for worker in parts.workers],
        )
        yield Family(
            f"{prefix}_connections_software",
            "gauge",
            "Open connections by client software.",
            [(text, count) for text, count in _software(by_worker)],
        )
        suites = Counter(
            (connection.listener.name, number, *connection.tls_suite)
            for number, connections in by_worker
            for connection in connections
            if connection.tls_suite is not None
        )
        yield Family(
            f"{prefix}_connections_tls_info",
            "gauge",
            "Open connections with TLS, by protocol and cipher suite.",
            [
                (labels(listener=name, networkprocessor=number, protocol=protocol, cipher=cipher), count)
                for (name, number, protocol, cipher), count in sorted(suites.items())
            ],
        )
        yield from self._sign_ins(prefix)
        yield from self._turns()
        yield from self._threads()
        yield from _parked(connection for _, connections in by_worker for connection in connections)

    def _sign_ins(self, prefix: str) -> Iterator[Family]:
        counters = self._parts.counters
        ended = {name: one.counts() for name, one in self._parts.sign_ins.items()}
        numbers = Counter[tuple[bool, bool]]()
        for counts in ended.values():
            for (_, outcome, again), count in counts.items():
                numbers[again, outcome == Outcome.SUCCESS] += count
        for name, what, good, bad in (
            ("authentication", "SASL authentications", numbers[False, True], numbers[False, False]),
            ("reauthentication", "SASL re-authentications", numbers[True, True], numbers[True, False]),
            (
                "tls_handshakes",
                "TLS handshakes",
                sum(one.handshakes for one in counters),
                sum(one.handshakes_failed for one in counters),
            ),
        ):
            yield Family(f"{prefix}_successful_{name}", "counter", f"{what} that succeeded.", [("", good)])
            yield Family(f"{prefix}_failed_{name}", "counter", f"{what} that failed.", [("", bad)])
        yield Family(
            f"{prefix}_expired_connections_killed_count",
            "gauge",
            "Connections closed because their SASL session expired and the client did not re-authenticate.",
            [("", sum(one.expired_count for one in self._parts.sign_ins.values()))],
        )
        yield Family(
            "kafkalite_sign_ins",
            "counter",
            "SASL exchanges by listener, mechanism and outcome: success, or the reason for the failure.",
            [
                (labels(listener=name, mechanism=mechanism, outcome=outcome, again=str(again).lower()), count)
                for name, counts in sorted(ended.items())
                for (mechanism, outcome, again), count in sorted(counts.items())
            ],
        )
        yield Family(
            "kafkalite_certificate_not_after_seconds",
            "gauge",
            "Expiry time of a listener's certificate, in seconds since 1970.",
            [(labels(listener=one.name), one.tls.expires) for one in self._parts.listeners if one.tls is not None],
        )
        yield Family(
            "kafkalite_insecure_listeners",
            "gauge",
            "Listeners without TLS that are reachable from other machines.",
            [("", sum(bound.is_open for bound in self._parts.listeners))],
        )

    def _turns(self) -> Iterator[Family]:
        parts = self._parts
        now = time.monotonic()
        turns = {
            worker.number: worker.mailbox.turns.numbers()
            for worker in parts.workers
            if worker.mailbox.turns is not None
        }
        idle = [share for share, _ in turns.values()]
        yield Family(
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "gauge",
            "Average share of time that network workers have been idle since the broker started, 0 to 1.",
            [("", sum(idle) / len(idle) if idle else 1.0)],
        )
        yield Family(
            "kafkalite_worker_turn_seconds_ago",
            "gauge",
            "Seconds since the last turn of a network worker's event loop.",
            [(labels(networkprocessor=worker.number), max(0.0, now - worker.io.now)) for worker in parts.workers],
        )
        yield Family(
            "kafkalite_worker_longest_turn_seconds",
            "gauge",
            "Longest turn of a network worker's event loop, in seconds.",
            [(labels(networkprocessor=number), longest_s) for number, (_, longest_s) in turns.items()],
        )
        cpu = {
            worker.number: worker.mailbox.turns.cpu() for worker in parts.workers if worker.mailbox.turns is not None
        }
        yield Family(
            "kafkalite_worker_longest_turn_cpu_seconds",
            "gauge",
            "CPU time of the longest turn of a network worker's event loop, in seconds.",
            [(labels(networkprocessor=number), longest_s) for number, (longest_s, _) in cpu.items()],
        )
        yield Family(
            "kafkalite_worker_turn_cpu_seconds",
            "histogram",
            "CPU time per turn of a network worker's event loop, in seconds.",
            [row for number, (_, numbers) in cpu.items() for row in histogram_rows(numbers, networkprocessor=number)],
        )

    def _threads(self) -> Iterator[Family]:
        parts = self._parts
        yield Family(
            "kafkalite_worker_requests",
            "counter",
            "Requests received by a network worker.",
            [(labels(networkprocessor=worker.number), worker.io.requests) for worker in parts.workers],
        )
        if parts.pool is not None:
            busy, size = parts.pool.busy, parts.pool.size
            yield Family(
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
                "gauge",
                "Share of the I/O pool's threads that are idle, 0 to 1.",
                [("", 1.0 - busy / size)],
            )
            yield Family(
                "kafkalite_pool_queued_jobs", "gauge", "Jobs queued for the I/O pool.", [("", parts.pool.queued)]
            )
        if parts.long_requests is not None:
            yield Family(
                "kafkalite_long_requests_waiting",
                "gauge",
                "Requests that wait for the thread for long requests or run on it.",
                [("", parts.long_requests.waiting_count)],
            )
            yield Family(
                "kafkalite_long_requests",
                "counter",
                "Requests that the thread for long requests has completed.",
                [("", parts.long_requests.served_count)],
            )
        if parts.sessions is not None:
            cache = "kafka_server_fetchsessioncache"
            yield Family(
                f"{cache}_numincrementalfetchsessions", "gauge", "Fetch sessions.", [("", len(parts.sessions))]
            )
            yield Family(
                f"{cache}_numincrementalfetchpartitionscached",
                "gauge",
                "Partitions in fetch sessions.",
                [("", parts.sessions.partition_count)],
            )
            yield Family(
                f"{cache}_incrementalfetchsessionevictions",
                "counter",
                "Fetch sessions evicted.",
                [("", parts.sessions.evicted_count)],
            )


def _parked(connections: Iterable[Connection]) -> Iterator[Family]:
    """Yield the numbers of requests in Kafka's purgatory: those that wait for the disk, for data or for other
    clients.
    """
    counts = Counter[int]()
    for connection in connections:
        if connection.answers.in_flight:
            counts.update(connection.answers.parked())
    both = [(labels(delayedOperation=name_of(key)), counts[key]) for key in (api.PRODUCE, api.FETCH)]
    prefix = "kafka_server_delayedoperationpurgatory"
    yield Family(f"{prefix}_purgatorysize", "gauge", "Requests that wait for the disk or for data.", both)
    yield Family(f"{prefix}_numdelayedoperations", "gauge", "Same as purgatorysize.", both)
    yield Family(
        "kafkalite_parked_requests",
        "gauge",
        "Requests that wait for the disk, for data or for other clients.",
        [(labels(request=name_of(key)), count) for key, count in sorted(counts.items())],
    )


def _software(by_worker: list[tuple[int, list[Connection]]]) -> Iterator[tuple[str, float]]:
    """Yield the number of connections by client software and version.

    Clients choose these names, so only the most frequent ones are reported.
    """
    counts: Counter[tuple[str, str]] = Counter(
        (connection.software_name or UNKNOWN, connection.software_version or UNKNOWN)
        for _, connections in by_worker
        for connection in connections
    )
    rows = {labels(clientSoftwareName=name, clientSoftwareVersion=version): (name, version) for name, version in counts}
    for text, count in most((text, counts[key]) for text, key in rows.items()):
        yield (text if text in rows else labels(clientSoftwareName=text, clientSoftwareVersion=text)), count

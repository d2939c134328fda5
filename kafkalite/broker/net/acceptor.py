"""Accept connections on all listeners with one thread, and assign each to the worker with the fewest connections.

    limit                                            when it is reached
    connections in total, by listener, by address    a new connection is closed at once
    free descriptors of the process                  the acceptor pauses
    connections per second of one or all listeners   the listener is paused for a while
    connections per second of an address             the connection is held unread for a while, then closed

The module `rates` computes the last two limits.

Thread rule: the composition root calls `start` and `stop`; any worker calls `released`.
"""

from __future__ import annotations

import errno
import heapq
import logging
import selectors
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import native_time as time
from kafkalite._native.base.accepting import accept
from kafkalite.base.logging import RepeatLogger
from kafkalite.base.shortage import run_to_end
from kafkalite.base.wakeup import Wakeup
from kafkalite.broker.limits.holder import network_of
from kafkalite.broker.limits.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite._native.base.accepting import AcceptedSocket
    from kafkalite._native.serve.connection import Connection
    from kafkalite.broker.net.listener import BoundListener
    from kafkalite.broker.net.rates import ConnectionRates
    from kafkalite.broker.net.worker import Worker

logger = RepeatLogger(logging.getLogger("kafkalite.broker.net"))

PAUSE_S: Final = 0.1
IN_A_ROW_MAX: Final = 32
"""Maximum number of connections taken from one listener before the others are looked at."""
HELD_MAX: Final = 512
"""Maximum number of sockets that are held unread; further sockets are closed at once."""
MAX_CONNECTIONS: Final = "max.connections"
MAX_CONNECTIONS_OF_LISTENER: Final = "listener.name.max.connections"
MAX_CONNECTIONS_PER_IP: Final = "max.connections.per.ip"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
LIMITS: Final = (MAX_CONNECTIONS, MAX_CONNECTIONS_OF_LISTENER, MAX_CONNECTIONS_PER_IP, CONNECTION_CREATION_RATE)
"""Reasons for refusals in `Acceptor.refused`."""
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """The thread that accepts connections on `listeners` and assigns them to `workers`.

    It accepts at most IN_A_ROW_MAX connections of a listener before it serves the others.
    """

    def __init__(
        self,
        listeners: Sequence[BoundListener],
        workers: Sequence[Worker],
        *,
        connections_max: int,
        connections_room: int,
        connections_per_address_max: int,
        per_address_overrides: Mapping[str, int],
        per_listener_max: Mapping[str, int],
        rates: ConnectionRates,
    ) -> None:
        self._listeners = listeners
        self._workers = workers
        self._connections_max = connections_max
        self._connections_room = connections_room
        self._room_is_short = False
        self._per_address_max = connections_per_address_max
        self._per_address_overrides = per_address_overrides
        self._per_listener_max = per_listener_max
        self.rates = rates
        self._waiting: list[tuple[float, int, BoundListener]] = []  # heap: when each listener is resumed
        self._held: list[tuple[float, int, AcceptedSocket]] = []  # heap: when each socket is closed
        self._number = 0
        self._choice = threading.Lock()  # held while a socket is given to a worker; taken before its mailbox's lock
        self._lock = threading.Lock()
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._shares = Shares()  # all connections, by network
        self._listener_shares = Shares()  # connections by (listener, network)
        self._total = 0
        self.refused: Counter[str] = Counter()
        """Limit → connections refused by it. Only the acceptor's thread writes it."""
        self.delayed: dict[str, tuple[int, float]] = {}
        """Listener name → (number of pauses, total seconds). Only the acceptor's thread writes it."""
        self._next = 0
        self._stop = threading.Event()
        self._bell = Wakeup()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="kafkalite-acceptor", daemon=True)

    def start(self) -> None:
        """Start the thread, which then accepts connections."""
        for listener in self._listeners:
            self._selector.register(listener.socket, selectors.EVENT_READ, listener)
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._thread.start()

    def stop(self) -> None:
        """Stop accepting, and close the listening sockets."""
        self._stop.set()
        if self._thread.is_alive():
            self._bell.ring()
            self._thread.join()
        for listener in self._listeners:
            listener.socket.close()
        for _, _, held in self._held:
            held.close()
        self._held.clear()
        self._selector.close()
        self._bell.close()

    def descriptors(self) -> list[int]:
        """Return the acceptor's own descriptors, without the listeners' sockets and without the descriptor that wakes
        the thread."""
        return [self._selector.fileno()]

    def released(self, connection: Connection) -> None:
        """Stop counting a connection that a worker has closed."""
        with self._lock:
            self._total -= 1
            self._by_listener[connection.listener.name] -= 1
            self._by_address[connection.client_host] -= 1
            if self._by_address[connection.client_host] <= 0:
                del self._by_address[connection.client_host]
            network = network_of(connection.client_host)
            self._shares.remove(network)
            self._listener_shares.remove((connection.listener.name, network))

    @property
    def held_count(self) -> int:
        """The number of connections that are held unread, because their addresses are above their quotas."""
        return len(self._held)

    @property
    def connection_count(self) -> int:
        """The number of connections that were accepted and are not closed yet."""
        return self._total

    def _run(self) -> None:
        run_to_end(self._turns)

    def _turns(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(self._go_on()):
                if key.data is not None:
                    for _ in range(IN_A_ROW_MAX):
                        if not self._accept(key.data):
                            break

    def _go_on(self) -> float | None:
        """Resume the listeners and close the held sockets whose time is over.

        Return the seconds until the next one is due; None if none waits.
        """
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            listener = heapq.heappop(self._waiting)[2]
            self._selector.register(listener.socket, selectors.EVENT_READ, listener)
        while self._held and self._held[0][0] <= now:
            heapq.heappop(self._held)[2].close()
        nearest = [heap[0][0] for heap in (self._waiting, self._held) if heap]
        return max(0.0, min(nearest) - now) if nearest else None

    def _accept(self, listener: BoundListener) -> bool:
        """Accept one connection. Return False if the acceptor should not accept another one of this listener now."""
        if self._is_out_of_room():
            self._pause()
            return False
        try:
            found = accept(listener.socket.fileno())
        except OSError as error:
            if not self._stop.is_set():
                logger.warning("accepting connections on %s is paused: %s", listener.endpoint, error.strerror)
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause()
            return False
        if found is None:
            return False
        accepted, host, port = found
        now = time.monotonic()
        self._number += 1
        held_s = self.rates.from_address(host, now)
        if held_s > 0.0:
            self._hold(accepted, host, now + held_s)
            return True
        waits_s = self.rates.accepted(listener.name, now)
        if waits_s > 0.0:
            self._selector.unregister(listener.socket)
            heapq.heappush(self._waiting, (now + waits_s, self._number, listener))
            count, seconds = self.delayed.get(listener.name, (0, 0.0))
            self.delayed[listener.name] = (count + 1, seconds + waits_s)
        refusal = self._refusal(host, listener)
        if refusal is not None:
            key, reason = refusal
            self.refused[key] += 1
            held = self._shares.of(network_of(host))
            logger.warning(
                "refused a connection from %s, which has %d open: %s is reached", host, held, reason, kind=key
            )
            accepted.close()
        else:
            with self._choice:
                self._pick_worker().adopt(accepted, (host, port), listener)
        return waits_s == 0.0

    def _pause(self) -> None:
        """Wait until descriptors or memory may be free. Without the wait the loop would spin on the readable socket."""
        self._stop.wait(PAUSE_S)

    def _hold(self, accepted: AcceptedSocket, host: str, until: float) -> None:
        """Hold a socket unread until a time, since its address is above its quota; at HELD_MAX sockets, close it at
        once."""
        self.refused[CONNECTION_CREATION_RATE] += 1
        logger.warning("refused a connection from %s: its connection_creation_rate quota is used up", host)
        if len(self._held) >= HELD_MAX:
            accepted.close()
        else:
            heapq.heappush(self._held, (until, self._number, accepted))

    def _is_out_of_room(self) -> bool:
        """Return whether the next connection would take a descriptor that the logs need. Connections then wait in the
        backlog."""
        short = self._total >= self._connections_room
        if short != self._room_is_short:
            self._room_is_short = short
            state = "is paused" if short else "continues"
            logger.warning(
                "accepting connections %s: %d are open, and the open file limit allows %d",
                state,
                self._total,
                self._connections_room,
            )
        return short

    def set_limits(
        self,
        *,
        connections_max: int,
        connections_per_address_max: int,
        per_address_overrides: Mapping[str, int],
        per_listener_max: Mapping[str, int],
    ) -> None:
        """Apply new limits to later connections; open connections stay. Any thread."""
        with self._lock:
            self._connections_max = connections_max
            self._per_address_max = connections_per_address_max
            self._per_address_overrides = per_address_overrides
            self._per_listener_max = per_listener_max

    def set_workers(self, workers: Sequence[Worker]) -> None:
        """Set the workers that get new connections. After the return no other worker gets one. Any thread."""
        with self._choice:
            self._workers = workers

    def _refusal(self, host: str, listener: BoundListener) -> tuple[str, str] | None:
        """Count a connection and return None. If a limit refuses the connection, return (key, text) of the limit
        instead.

        The last tenth of the total and of a listener's limit is reserved for networks with few connections.
        Networks are counted, because clients are not authenticated yet.
        """
        network = network_of(host)
        of_both = listener.name, network
        with self._lock:
            if not self._shares.admits(network, self._total, self._connections_max):
                return MAX_CONNECTIONS, f"max.connections ({self._connections_max})"
            if not self._shares.admits(network, self._total, self._connections_room):
                return (
                    MAX_CONNECTIONS,
                    f"the limit of {self._connections_room} connections that the open file limit allows (ulimit -n)",
                )
            of_listener = self._per_listener_max.get(listener.name)
            if of_listener is not None and not self._listener_shares.admits(
                of_both, self._by_listener[listener.name], of_listener
            ):
                return MAX_CONNECTIONS_OF_LISTENER, f"max.connections ({of_listener}) of listener {listener.name}"
            limit = self._per_address_overrides.get(host, self._per_address_max)
            if self._by_address[host] >= limit:
                return MAX_CONNECTIONS_PER_IP, f"max.connections.per.ip ({limit})"
            self._total += 1
            self._by_listener[listener.name] += 1
            self._by_address[host] += 1
            self._shares.add(network)
            self._listener_shares.add(of_both)
        return None

    def _pick_worker(self) -> Worker:
        """Return the worker with the fewest connections. Among equal workers, alternate."""
        workers = self._workers
        at = self._next % len(workers)
        self._next = at + 1
        found, fewest = workers[at], workers[at].connection_count
        for number in range(at + 1, at + len(workers)):
            worker = workers[number % len(workers)]
            count = worker.connection_count
            if count < fewest:
                found, fewest = worker, count
        return found

"""Run a network worker: one thread that serves its own connections in an event loop.

    1  wait for events, at most until the nearest deadline or the next housekeeping
    2  call Connection.on_event for each connection that is ready
    3  take from the mailbox: responses that other threads have completed, and new connections

The connections are Cython objects, which do everything else.

Thread rule: other threads pass work to a worker only through `mailbox.put`.
"""

from __future__ import annotations

import functools
import logging
import select
import selectors
import threading
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import native_time as time
from kafkalite._native.serve.connection import has_left
from kafkalite.base.logging import RepeatLogger
from kafkalite.base.shortage import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.base.accepting import AcceptedSocket
    from kafkalite._native.serve.connection import Connection, WorkerResources
    from kafkalite._native.serve.transfer import Mailbox
    from kafkalite.broker.net.listener import BoundListener

logger = RepeatLogger(logging.getLogger("kafkalite.broker.net"))

HOUSEKEEPING_INTERVAL_S: Final = 1.0
RECEIVE_BUFFER_IDLE_S: Final = 2.0
FRAME_S_MAX: Final = 10.0
"""Maximum time in seconds for a request to arrive, while other clients need the memory that it holds."""
WITHHELD: Final = (
    "its request is still incomplete after %g s, and other clients need the memory that it holds (broker.memory.max)"
)
EVENTS_MAX: Final = 8
"""Maximum number of ready connections served in a loop turn; each has up to a millisecond. The other ready connections
come first in the next turn, since the kernel moves reported connections to the end of its list."""


@functools.cache
def connection_class(*, classic: bool, faulty: bool, sasl: bool = False) -> type[Connection]:
    """Return the connection class for Kafka's protocol, or for Kafka 0.7's if `classic`.

    A `faulty` class injects faults. A `sasl` class authenticates clients first.
    """
    if sasl:
        from kafkalite._native.serve.sasl_connection import SaslConnection

        if not faulty:
            return SaslConnection
        from kafkalite._native.serve.faulty_connection import FaultySaslConnection

        return FaultySaslConnection
    if classic:
        from kafkalite._native.classic.classic_connection import ClassicConnection

        return ClassicConnection
    if faulty:
        from kafkalite._native.serve.faulty_connection import FaultyConnection

        return FaultyConnection
    from kafkalite._native.serve.connection import Connection

    return Connection


class BareSelector(getattr(selectors, "EpollSelector", object)):  # type: ignore[misc]  # gevent removes it; no start then
    """A selector by epoll, with plain descriptors and epoll's own events.

    Python's `selectors` creates objects per descriptor and event, which cost more time than the rest of a worker's
    loop.
    """

    _selector: select.epoll

    def watch(self, fd: int, events: int) -> None:
        """Start watching a descriptor: `ready` then reports these events of the descriptor."""
        self._selector.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        """Replace the events of a watched descriptor."""
        self._selector.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Stop watching a descriptor."""
        self._selector.unregister(fd)

    def ready(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return (descriptor, epoll events) of at most EVENTS_MAX ready descriptors. Wait at most `timeout_s` for the
        first one."""
        return self._selector.poll(timeout_s, EVENTS_MAX)


class Worker:
    """A network worker. It owns a connection from `adopt` until the connection is closed."""

    def __init__(
        self,
        number: int,
        mailbox: Mailbox,
        make_io: Callable[[Callable[[Connection, int], None], Callable[[Connection], None]], WorkerResources],
        *,
        idle_s_max: float,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.number = number
        self.mailbox = mailbox
        self.io = make_io(self._change_interest, self._forget)
        self._selector = BareSelector()
        self._selector.watch(mailbox.wake_fd, select.EPOLLIN)
        self.io.selector_fd = self._selector.fileno()
        self._left_out: set[int] = set()  # descriptors of connections that wait for no event
        self._connections: dict[int, Connection] = {}
        self._idle_s_max = idle_s_max
        self._on_closed = on_closed
        self._stopping = False
        self._drain_until = 0.0
        self._next_housekeeping = 0.0
        self.adopted_count = 0
        """Number of connections received since the start."""
        self._dealt_count = 0  # including those that wait in its mailbox; written by the acceptor
        self._thread = threading.Thread(target=self._run, name=f"kafkalite-net-{number}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, drain_s: float) -> None:
        """Complete the parked responses, give clients `drain_s` seconds to receive them, then close all connections."""

        def begin() -> None:
            self._drain_until = time.monotonic() + drain_s
            self._stopping = True
            self.io.expire_timers(everything=True)

        if self._thread.is_alive():
            self.mailbox.put(begin)
            self._thread.join(drain_s + 5.0)

    def descriptors(self) -> list[int]:
        """Return the worker's descriptors, except the descriptors of its connections."""
        return [self._selector.fileno(), self.mailbox.wake_fd]

    def adopt(self, sock: AcceptedSocket, address: tuple[str, int], listener: BoundListener) -> None:
        """Take over an accepted socket. One thread at a time."""

        def register() -> None:
            self.adopted_count += 1
            sasl = listener.sasl is not None
            kind = connection_class(classic=listener.classic, faulty=self.io.faults is not None, sasl=sasl)
            connection = kind(self.io, sock, address[0], address[1], listener)
            self._connections[connection.fd] = connection
            self._left_out.add(connection.fd)
            try:
                self._selector.watch(connection.fd, select.EPOLLIN)
                self._left_out.remove(connection.fd)
                if listener.tls is not None:
                    connection.secure(listener.tls.context)
                elif sasl:
                    connection.await_sign_in()  # type: ignore[attr-defined]  # SaslConnection has it
            except Exception:
                connection.close()  # a connection is never served without its listener's TLS or SASL
                raise

        self._dealt_count += 1
        self.mailbox.put(register)

    def connections(self) -> list[Connection]:
        """Return the open connections. Any thread."""
        return list(self._connections.values())

    @property
    def connection_count(self) -> int:
        """The number of connections, with those still in the mailbox: so the acceptor spreads a burst over all
        workers."""
        return len(self._connections) + self._dealt_count - self.adopted_count

    def _run(self) -> None:
        run_to_end(self._turns)
        run_to_end(self._close_all)

    def _turns(self) -> None:
        io, mailbox, ready, connections = self.io, self.mailbox, self._selector.ready, self._connections
        wake_fd = mailbox.wake_fd
        connection: Connection | None = None
        brisk: Connection | None = None
        while True:
            timeout = 0.0 if brisk is not None else self._timeout()
            if timeout > 0.0 and not mailbox.begin_sleep():
                timeout = 0.0
            events = ready(timeout)
            mailbox.end_sleep()
            io.now = time.monotonic()
            for fd, mask in events:
                connection = connections.get(fd)  # None if an earlier event of this turn has closed it
                if connection is None:
                    if fd == wake_fd:
                        mailbox.clear_wake()
                    continue
                try:
                    connection.on_event(mask)
                except Exception:
                    logger.exception("serving %r failed; closed the connection", connection)
                    connection.close()
            if events:
                brisk = connection if len(events) == 1 else None
            if brisk is not None and not self._linger(brisk):
                brisk = None
            if mailbox:
                self._handle_posted()
            io.expire_timers()
            if io.now >= self._next_housekeeping:
                self._housekeeping(io.now)
            if self._stopping and self._drained(io.now):
                break

    def _linger(self, connection: Connection) -> bool:
        """Poll a client that sends its next request right after a response. Return True while the worker should not
        sleep."""
        try:
            return connection.linger()
        except Exception:
            logger.exception("serving %r failed; closed the connection", connection)
            connection.close()
            return False

    def _timeout(self) -> float:
        deadline = self.io.next_deadline()
        if self._stopping:
            return 0.02
        until = self._next_housekeeping if deadline is None else min(deadline, self._next_housekeeping)
        return max(0.0, until - time.monotonic())

    def _handle_posted(self) -> None:
        try:
            self.io.handle_posted()
        except Exception:
            logger.exception("completing deferred work failed")

    def _housekeeping(self, now: float) -> None:
        """Close idle, stuck and lost connections, and give back unused receive buffers."""
        self._next_housekeeping = now + HOUSEKEEPING_INTERVAL_S
        self.io.give_back()
        memory_is_needed = self.io.memory_is_needed()
        for connection in list(self._connections.values()):
            if connection.answer_lost:
                connection.close("no memory for a response")
            elif has_left(connection):
                connection.close()
            elif connection.idle(now - self._idle_s_max):
                logger.info("closed idle connection %r", connection)
                connection.close()
            elif memory_is_needed and connection.withholds(now - FRAME_S_MAX):
                connection.close(WITHHELD, FRAME_S_MAX)
            else:
                connection.trim(now - RECEIVE_BUFFER_IDLE_S)

    def _drained(self, now: float) -> bool:
        return now >= self._drain_until or not any(c.answers.in_flight for c in self._connections.values())

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()
        self._handle_posted()
        for connection in list(self._connections.values()):
            connection.close()
        self.io.end_turns()
        self._selector.close()

    def _change_interest(self, connection: Connection, events: int) -> None:
        fd = connection.fd
        if events == 0:
            self._selector.forget(fd)  # else a disconnect would be reported in every turn
            self._left_out.add(fd)
        elif fd in self._left_out:
            self._left_out.remove(fd)
            self._selector.watch(fd, events)
        else:
            self._selector.change(fd, events)

    def _forget(self, connection: Connection) -> None:
        fd = connection.fd
        if fd in self._left_out:
            self._left_out.remove(fd)
        else:
            self._selector.forget(fd)
        del self._connections[fd]
        self._on_closed(connection)

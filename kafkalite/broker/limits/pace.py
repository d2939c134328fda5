"""Divide a long request's work into portions with rests between them.

Loops over a client's items do this by iterating over `checkpointed`:

    for topic in checkpointed(request.topics):
        ...

Outside a long request, `checkpointed` returns its argument. In a long request, the thread sleeps between two items when
a portion is over. `Stopped` is raised there if the client has disconnected or the broker stops.

Thread rule: a thread uses only the Pace with which `run_with` was called on this thread.
"""

from __future__ import annotations

import threading
from select import POLLRDHUP, poll
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kafkalite._native.base import native_time as time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")

PORTION_NS: Final = 200_000
"""Maximum time between two rests, unless one item takes longer."""
REST_MAX_NS: Final = 100_000_000
LOOK_INTERVAL_NS: Final = 100_000_000
"""Interval of checks whether the client has disconnected: a connection that is not read does not notice that."""


class Peer(Protocol):
    """The parts of a connection that a Pace needs."""

    @property
    def closed(self) -> bool: ...

    @property
    def fd(self) -> int: ...


class Stopped(BaseException):  # like SystemExit, so that `except Exception` does not catch it
    """The response is no longer needed: the client has disconnected, or the broker stops."""


_free_ns = 0
"""The earliest time of the next portion of any thread. Otherwise two threads that rest in turn would leave other
threads no pause."""


class Pace:
    """The portions and rests of one thread that runs long requests, one after another."""

    __slots__ = (
        "_began_ns",
        "_charge",
        "_charged",
        "_looks_at_ns",
        "_peer",
        "_rested_ns",
        "_started_ns",
        "_stops",
        "_until_ns",
    )

    def __init__(self, stops: Callable[[], bool]) -> None:
        """Begin a portion. `stops` returns whether the broker stops."""
        self._stops = stops
        self._peer: Peer | None = None
        self._charge: Callable[[int], object] | None = None
        self._charged = 0
        self._rested_ns = 0
        self._started_ns = 0
        self._looks_at_ns = 0
        self.resume()

    def resume(self) -> None:
        """Begin a new portion, because the thread was idle."""
        self._began_ns = time.perf_counter_ns()
        self._until_ns = self._began_ns + PORTION_NS

    def begin(self, peer: Peer) -> None:
        """Begin to measure a request of this client. The portion continues, without a rest."""
        self._peer, self._charge, self._charged = peer, None, 0
        self._started_ns = time.perf_counter_ns()
        self._looks_at_ns = self._started_ns + LOOK_INTERVAL_NS
        self._rested_ns = 0

    def end(self) -> None:
        """End the request, and drop all references to its client."""
        self._peer = self._charge = None

    def charge_to(self, charge: Callable[[int], object]) -> None:
        """From now on, call `charge` when the request's response grows, with the growth in bytes.

        An exception from `charge` ends the request.
        """
        self._charge = charge

    @property
    def spent_s(self) -> float:
        """The time in seconds for which the request has worked, without rests."""
        return (time.perf_counter_ns() - self._started_ns - self._rested_ns) / 1e9

    def check(self) -> None:
        """Rest if the portion is over; raise Stopped if the response is no longer needed."""
        if time.perf_counter_ns() >= self._until_ns:
            self._rest()

    def check_size(self, size: int) -> None:
        """Charge for the response, whose size in bytes is `size` now; then call check()."""
        if self._charge is not None and size > self._charged:
            self._charge(size - self._charged)
            self._charged = size
        if time.perf_counter_ns() >= self._until_ns:
            self._rest()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, calling check() before each."""
        now = time.perf_counter_ns
        for item in items:
            if now() >= self._until_ns:
                self._rest()
            yield item

    def rest(self) -> None:
        """Rest if the portion is over. Called after the last item of a request."""
        began = time.perf_counter_ns()
        if began >= self._until_ns:
            self._sleep(began)

    def _rest(self) -> None:
        began = time.perf_counter_ns()
        self._look(began)
        self._sleep(began)

    def _sleep(self, began: int) -> None:
        """Sleep at least as long as the portion took, up to 100 ms.

        Without the sleep, a thread that releases the GIL would take it back before any waiting thread gets it.
        """
        global _free_ns
        ends = max(began + max(PORTION_NS, began - self._began_ns), _free_ns)
        ends = min(ends, began + REST_MAX_NS)
        _free_ns = ends + 2 * PORTION_NS
        time.sleep((ends - began) / 1e9)
        self._began_ns = now = time.perf_counter_ns()
        self._until_ns = now + PORTION_NS
        self._rested_ns += now - began

    def _look(self, now_ns: int) -> None:
        peer = self._peer
        if self._stops() or (peer is not None and peer.closed):
            raise Stopped
        if now_ns >= self._looks_at_ns and peer is not None:
            self._looks_at_ns = now_ns + LOOK_INTERVAL_NS
            if has_gone(peer):
                raise Stopped


def has_gone(peer: Peer) -> bool:
    """Return whether the client has closed its connection."""
    fd = peer.fd
    if peer.closed:
        return True
    look = poll()
    look.register(fd, POLLRDHUP)
    return bool(look.poll(0))


_paces: dict[int, Pace] = {}
"""Thread id → the Pace of its request. Mostly empty; a network thread only checks whether the dict is empty."""


def run_with(pace: Pace, work: Callable[[Pace], T]) -> T:
    """Return the result of `work`, whose checkpoints use `pace`."""
    ident = threading.get_ident()
    _paces[ident] = pace
    try:
        return work(pace)
    finally:
        del _paces[ident]


def checkpoint() -> None:
    """Mark a point between two items. In a long request, rest if the portion is over; raise Stopped if no response is
    needed.

    Do not call this while you hold a lock that a network thread may need.
    """
    pace = _paces.get(threading.get_ident()) if _paces else None
    if pace is not None:
        pace.check()


def checkpointed(items: Iterable[T]) -> Iterable[T]:
    """Return the items themselves. In a long request, return an iterator over them, with a checkpoint before each
    item.

    Copy a collection first if other threads change it. For locks, see `checkpoint`.
    """
    if not _paces:
        return items
    pace = _paces.get(threading.get_ident())
    return items if pace is None else pace.each(items)

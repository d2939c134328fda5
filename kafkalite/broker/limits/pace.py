"""Portions of work: what a long request does between two rests, and the one function that its loops call.

    for topic in checkpointed(request.topics):      # on a network thread: the list itself, at no cost per item
        ...                                         # in a long request: ends the portion, or the work, between items

A thread that releases the GIL and takes it back at once does not let a waiting thread in. So a long request sleeps
after each portion for at least as long as the portion took. It stops, by `Stopped`, when its client has gone or the
broker stops: between two items, so that what an item changed is whole.

Never iterate with `checkpointed`, nor call `checkpoint`, while holding a lock that a network thread may want, and never
over a collection that other threads change: take a copy.

Thread rule: a Pace is used by one thread at a time, which alone finds it (`run_with`).
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
"""The longest time between two rests, but for an item that takes longer."""
REST_MAX_NS: Final = 100_000_000
LOOK_INTERVAL_NS: Final = 100_000_000
"""How often a client's socket is looked at: a connection that is not read does not show its end."""


class Peer(Protocol):
    """What a long request needs of a connection."""

    @property
    def closed(self) -> bool: ...

    @property
    def fd(self) -> int: ...


class Stopped(BaseException):  # no error: it passes by all handlers of errors, as SystemExit does
    """The answer to this request has become useless: its client has gone, or the broker stops."""


_free_ns = 0
"""When the next portion may begin, of whichever thread: two that rest in turn would leave others no pause."""


class Pace:
    """The portions of the long requests that one thread runs, one request after another."""

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
        """`stops` says whether the broker stops."""
        self._stops = stops
        self._peer: Peer | None = None
        self._charge: Callable[[int], object] | None = None
        self._charged = 0
        self._rested_ns = 0
        self._started_ns = 0
        self._looks_at_ns = 0
        self.resume()

    def resume(self) -> None:
        """Begins a portion: the thread has slept for as long as there was nothing to do."""
        self._began_ns = time.perf_counter_ns()
        self._until_ns = self._began_ns + PORTION_NS

    def begin(self, peer: Peer) -> None:
        """The next request is this client's."""
        self._peer, self._charge, self._charged = peer, None, 0
        self._started_ns = time.perf_counter_ns()
        self._looks_at_ns = self._started_ns + LOOK_INTERVAL_NS
        self._rested_ns = 0

    def end(self) -> None:
        """The request has ended: nothing of its client is kept."""
        self._peer = self._charge = None

    def charge_to(self, charge: Callable[[int], object]) -> None:
        """Has `charge` called with the growth of the request's answer, in bytes; what it raises ends the request."""
        self._charge = charge

    @property
    def spent_s(self) -> float:
        """Seconds of the request's work, without its rests."""
        return (time.perf_counter_ns() - self._started_ns - self._rested_ns) / 1e9

    def check(self) -> None:
        """Rests when the portion is over; raises Stopped when the request is useless."""
        if time.perf_counter_ns() >= self._until_ns:
            self._rest()

    def check_size(self, size: int) -> None:
        """`check`, after the answer has grown to so many bytes."""
        if self._charge is not None and size > self._charged:
            self._charge(size - self._charged)
            self._charged = size
        if time.perf_counter_ns() >= self._until_ns:
            self._rest()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The items, with a check before each."""
        now = time.perf_counter_ns
        for item in items:
            if now() >= self._until_ns:
                self._rest()
            yield item

    def rest(self) -> None:
        """Rests if the portion is over, after the last item of a request."""
        began = time.perf_counter_ns()
        if began >= self._until_ns:
            self._sleep(began)

    def _rest(self) -> None:
        began = time.perf_counter_ns()
        self._look(began)
        self._sleep(began)

    def _sleep(self, began: int) -> None:
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
    """Whether the other end of a connection's socket is closed."""
    fd = peer.fd
    if peer.closed:
        return True
    look = poll()
    look.register(fd, POLLRDHUP)
    return bool(look.poll(0))


_paces: dict[int, Pace] = {}
"""Thread → the Pace of the request that it runs. Empty at most times, which is all that a network thread looks at."""


def run_with(pace: Pace, work: Callable[[Pace], T]) -> T:
    """The result of `work`, whose checkpoints are those of `pace`."""
    ident = threading.get_ident()
    _paces[ident] = pace
    try:
        return work(pace)
    finally:
        del _paces[ident]


def checkpoint() -> None:
    """Between two items of a request: ends the portion of a long one, and raises Stopped if it is useless."""
    pace = _paces.get(threading.get_ident()) if _paces else None
    if pace is not None:
        pace.check()


def checkpointed(items: Iterable[T]) -> Iterable[T]:
    """The items themselves; in a long request, with a checkpoint before each."""
    if not _paces:
        return items
    pace = _paces.get(threading.get_ident())
    return items if pace is None else pace.each(items)

"""Define Deferred: a response to a request that is completed later, without blocking a thread.

    handler     returns a Deferred instead of waiting for the response
    dispatch    parks the request, and calls `then` with a function that delivers the response
    any thread  calls `complete` with the response, before or after the call of `then`

An incomplete Deferred also blocks the later responses of its connection. So its creator must always complete it, even
when the broker stops.

Thread rule: any thread may call `complete` and `then`. The function passed to `then` is called without a lock, on the
thread that completes the Deferred or calls `then`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
U = TypeVar("U")

_lock = threading.Lock()
"""Guards the hand-over in every Deferred: for a few instructions, never during a call."""


class Deferred(Generic[T]):
    """A response that is completed later."""

    __slots__ = ("_deliver", "_done", "_response", "abandoned")

    def __init__(self, abandoned: Callable[[], object] | None = None) -> None:
        """Create a Deferred. `abandoned` is called if the client disconnects before the response is complete.

        A Deferred without a time limit needs this callback.
        """
        self.abandoned = abandoned
        self._done = False
        self._response: T | None = None
        self._deliver: Callable[[T], object] | None = None

    @property
    def done(self) -> bool:
        """Whether the response is complete."""
        return self._done

    @property
    def response(self) -> T:
        """The response. RuntimeError if it is not complete."""
        if not self._done:
            raise RuntimeError("the deferred answer is not complete yet")
        return self._response  # type: ignore[return-value]  # done, so it is a T

    def map(self, function: Callable[[T], U]) -> Deferred[U]:
        """Return a Deferred whose response is `function(response)`. The function is called on delivery.

        After this call, use the returned Deferred. Do not call `then` on this one.
        """
        return _Mapped(self, function)

    def complete(self, response: T) -> bool:
        """Set the response and deliver it. If there is already a response, return False and change nothing."""
        with _lock:
            if self._done:
                return False
            self._done = True
            self._response = response
            self.abandoned = None
            deliver = self._deliver
        if deliver is not None:
            deliver(response)
        return True

    def then(self, deliver: Callable[[T], object]) -> None:
        """Call `deliver(response)` when the response is complete. Call this method only once."""
        with _lock:
            if not self._done:
                self._deliver = deliver
                return
        deliver(self._response)  # type: ignore[arg-type]  # done, so it is a T

    def then_make(self, deliver: Callable[[Callable[[], T]], object]) -> None:
        """Call `deliver(get)` when the response is complete, where `get()` returns the response.

        Unlike with `then`, `deliver` decides when the functions of `map` run: they run inside `get()`.
        """
        self.then(lambda response: deliver(lambda: response))


class _Mapped(Deferred[U], Generic[T, U]):
    """The Deferred that `map` returns. It calls the function when its response is first needed, and caches it."""

    __slots__ = ("_function", "_source")

    def __init__(self, source: Deferred[T], function: Callable[[T], U]) -> None:
        super().__init__(source.abandoned)
        self._source = source
        self._function = function

    @property
    def done(self) -> bool:
        return self._source.done

    @property
    def response(self) -> U:
        if not self._done:
            self._response = self._function(self._source.response)
            self._done = True
        return self._response  # type: ignore[return-value]  # made, so it is a U

    def complete(self, response: U) -> bool:  # noqa: ARG002  # as in the base
        raise RuntimeError("this answer is derived from another one; complete that one")

    def then(self, deliver: Callable[[U], object]) -> None:
        self._source.then(lambda _response: deliver(self.response))

    def then_make(self, deliver: Callable[[Callable[[], U]], object]) -> None:
        self._source.then(lambda _response: deliver(lambda: self.response))


def completed(response: T) -> Deferred[T]:
    """Return a Deferred that is already complete."""
    done: Deferred[T] = Deferred()
    done.complete(response)
    return done


def gathered(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """Combine Deferreds into one. It completes after all parts, with their responses in the order of `parts`."""
    givers_up = [part.abandoned for part in parts if part.abandoned is not None]

    def abandon() -> None:
        for give_up in givers_up:
            give_up()

    whole: Deferred[list[T]] = Deferred(abandon if givers_up else None)
    left = len(parts)

    def count(_response: T) -> None:
        nonlocal left
        with _lock:
            left -= 1
            last = left == 0
        if last:
            whole.complete([part.response for part in parts])

    if not parts:
        whole.complete([])
    for part in parts:
        part.then(count)
    return whole

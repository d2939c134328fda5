"""Deferred: a response that is completed later. A handler that must not wait returns a Deferred.

    handler ─▶ Deferred ─▶ dispatch parks the request ─▶ deliver(response)
                  ▲
                  └─ complete(response), once, from any thread, before or after

No thread is blocked until then. A Deferred that is never completed blocks the later responses of its connection. So its
creator must complete it in every case, also when the broker stops. A Deferred without a time limit has an `abandoned`
callback, which is called when its client has disconnected.

Thread rule: call `complete` and `then` from any thread, each once. No lock is held while the function given to `then`
is called. It is called on the completing thread or, if the response is already there, inside `then`.
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
    """A response that may not exist yet."""

    __slots__ = ("_deliver", "_done", "_response", "abandoned")

    def __init__(self, abandoned: Callable[[], object] | None = None) -> None:
        """Create a Deferred; `abandoned` is called when no client waits for the response any more."""
        self.abandoned = abandoned
        self._done = False
        self._response: T | None = None
        self._deliver: Callable[[T], object] | None = None

    @property
    def done(self) -> bool:
        """Whether the response is there."""
        return self._done

    @property
    def response(self) -> T:
        """The response. RuntimeError before `complete`."""
        if not self._done:
            raise RuntimeError("the deferred answer is not complete yet")
        return self._response  # type: ignore[return-value]  # done, so it is a T

    def map(self, function: Callable[[T], U]) -> Deferred[U]:
        """Return a Deferred of `function(response)`, which is computed at the delivery. Use it instead of `then`."""
        return _Mapped(self, function)

    def complete(self, response: T) -> bool:
        """Set the response. If there is a response already, return False and change nothing."""
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
        """Set the function that is called with the response."""
        with _lock:
            if not self._done:
                self._deliver = deliver
                return
        deliver(self._response)  # type: ignore[arg-type]  # done, so it is a T

    def then_make(self, deliver: Callable[[Callable[[], T]], object]) -> None:
        """Like `then`, but call `deliver` with a function that returns the response and runs the functions of `map`."""
        self.then(lambda response: deliver(lambda: response))


class _Mapped(Deferred[U], Generic[T, U]):
    """The Deferred that `map` returns. It calls the function when its response is needed, and keeps the result."""

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
    """Return a Deferred that is already completed."""
    done: Deferred[T] = Deferred()
    done.complete(response)
    return done


def gathered(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """Return a Deferred that is completed with the responses of all parts, in their order."""
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

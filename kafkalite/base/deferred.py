"""An answer that comes later: what a handler returns when it may not wait.

    handler ─▶ Deferred ─▶ dispatch parks the request ─▶ deliver(response)
                  ▲
                  └─ complete(response), once, from any thread, before or after

Nobody's thread is held meanwhile. What is never completed holds the answers after it on the same connection, so
whoever makes a Deferred sees to its end, at the broker's stop too. One that may wait for as long as a client likes has
`abandoned`, which is called when that client has gone.

Thread rule: `complete` and `then` from any thread, each once. The function given to `then` is called with no lock of
ours held, on the thread that completes, or at once when that was earlier.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
U = TypeVar("U")

_lock = threading.Lock()
"""Guards the hand-over in every Deferred: a few instructions, never held while calling anything."""


class Deferred(Generic[T]):
    """A response to be."""

    __slots__ = ("_deliver", "_done", "_response", "abandoned")

    def __init__(self, abandoned: Callable[[], object] | None = None) -> None:
        """`abandoned`: to be called when nobody is there any more who would be answered."""
        self.abandoned = abandoned
        self._done = False
        self._response: T | None = None
        self._deliver: Callable[[T], object] | None = None

    @property
    def done(self) -> bool:
        """Whether it was completed."""
        return self._done

    @property
    def response(self) -> T:
        """What it was completed with; RuntimeError before."""
        if not self._done:
            raise RuntimeError("the deferred answer is not complete yet")
        return self._response  # type: ignore[return-value]  # done, so it is a T

    def map(self, function: Callable[[T], U]) -> Deferred[U]:
        """The one whose response is `function` of this one's, called at its delivery. Takes the place of `then`."""
        return _Mapped(self, function)

    def complete(self, response: T) -> bool:
        """Gives the response; False, and nothing happens, when there is one already."""
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
        """Names the one who gets the response."""
        with _lock:
            if not self._done:
                self._deliver = deliver
                return
        deliver(self._response)  # type: ignore[arg-type]  # done, so it is a T

    def then_make(self, deliver: Callable[[Callable[[], T]], object]) -> None:
        """As `then`, with what makes the response in its place: what `map` adds to it is done by whoever calls that."""
        self.then(lambda response: deliver(lambda: response))


class _Mapped(Deferred[U], Generic[T, U]):
    """What `map` gives. It has no state but its source's, and the response once it was made."""

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
    """One that need not be waited for."""
    done: Deferred[T] = Deferred()
    done.complete(response)
    return done


def gathered(parts: Sequence[Deferred[T]]) -> Deferred[list[T]]:
    """Completed when all of them are, with their responses in their order."""
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

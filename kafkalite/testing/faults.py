"""Inject faults into a test's broker: errors, delays and lost connections, by API.

    broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)     fails the next two requests without executing them
    broker.delay("Fetch", 0.5)                                    delays each answer by 0.5 s
    broker.disconnect("JoinGroup")                                closes the connection instead of answering

A request of an API with a fault passes through `meet` before the broker handles it. A failed or disconnected request is
not executed. A delayed request is executed at once, and only its answer is late. Later answers of the same connection
wait for it.

Thread rule: `meet` runs on network workers. Any thread may call all other methods.
"""

from __future__ import annotations

import difflib
import threading
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kafkalite.broker.handlers import table
from kafkalite.broker.handlers.error_answers import MetadataView, error_answer
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire import protocol
from kafkalite.wire.protocol import api, header

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite._native.serve.connection import Connection
    from kafkalite._native.serve.transfer import Answer

Code = ErrorCode | int | str | type[KafkaError] | KafkaError

F = TypeVar("F", bound="Fault")

_TEXT: Final = "a fault that the test asked for"
"""The error message of an answer, and the reason in the log for a closed connection."""


class Fault:
    """A fault that a test has requested. `end`, or the end of a `with` block, removes it.

    `count` is the number of requests that it has affected.
    """

    def __init__(self, faults: Faults, key: int, times: int | None) -> None:
        if times is not None and times < 1:
            raise ValueError(
                f"invalid times={times}; expected at least 1, or None to repeat the fault until it is ended"
            )
        self._faults = faults
        self._times = times
        self.key = key
        self.count = 0

    @property
    def ended(self) -> bool:
        """Whether the fault has affected all its `times` requests. Removing the fault does not change this."""
        return self._times is not None and self.count >= self._times

    def end(self) -> None:
        """Remove the fault. Idempotent."""
        self._faults.end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __repr__(self) -> str:
        left = "until it is ended" if self._times is None else f"{max(self._times - self.count, 0)} times more"
        return f"<{type(self).__name__} of {api.APIS[self.key].name}, met {self.count} times, {left}>"


class Failure(Fault):
    """A fault that answers requests with an error."""

    def __init__(self, faults: Faults, key: int, times: int | None, code: int) -> None:
        super().__init__(faults, key, times)
        self.code = code


class Disconnection(Fault):
    """A fault that closes the connections of requests instead of answering."""


class Delay(Fault):
    """A fault that delays answers."""

    def __init__(self, faults: Faults, key: int, times: int | None, seconds: float) -> None:
        super().__init__(faults, key, times)
        if not seconds >= 0:
            raise ValueError(f"a delay must be at least 0 seconds, not {seconds}")
        self.seconds = seconds


class Faults:
    """The faults of one broker. `view` returns the broker's id, address and topics, for error responses to Metadata.

    Kafka 0.7's port has no faults.
    """

    def __init__(self, view: Callable[[Connection], MetadataView]) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._faults: list[Fault] = []  # guarded by _lock, as are the two below
        self._held: dict[Answer, threading.Timer] = {}
        self.armed: frozenset[int] = frozenset()
        """Keys of the APIs that have a fault; replaced as a whole."""

    def fail(self, name: str | int, code: Code, times: int | None = 1) -> Failure:
        """Answer the next `times` requests of an API with an error. KafkaBroker.fail has the details."""
        return self._add(Failure(self, key_of(name), times, code_of(code)))

    def disconnect(self, name: str | int, times: int | None = 1) -> Disconnection:
        """Close the connection of the next `times` requests of an API. KafkaBroker.disconnect has the details."""
        return self._add(Disconnection(self, key_of(name), times))

    def delay(self, name: str | int, seconds: float, times: int | None = None) -> Delay:
        """Delay the responses to an API. KafkaBroker.delay has the details."""
        return self._add(Delay(self, key_of(name), times, seconds))

    def end(self, fault: Fault) -> None:
        """Remove a fault."""
        with self._lock:
            self._faults = [other for other in self._faults if other is not fault]
            self._arm()

    def end_all(self) -> None:
        """Remove all faults. Delayed answers leave at once."""
        with self._lock:
            self._faults = []
            self._arm()
        self.let_go()

    def let_go(self) -> None:
        """Let the delayed answers leave at once."""
        with self._lock:
            held = dict(self._held)
        for place, timer in held.items():
            timer.cancel()
            self._complete(place)

    def meet(self, connection: Connection, frame: bytes) -> bytes | str | None:
        """Return the answer of a fault to a request, or the reason to close the connection. None if no such fault
        applies.

        A delay reserves its place in the connection's queue of answers first.
        """
        try:
            head = header.decode_request_header(frame)
            row = table.find(head.api_key)
            if row is None or not row.serves(head.api_version):
                return None
            request = row.decode(head.api_version, frame[head.body_position :])
        except ValueError:
            return None  # the handler reports the error
        if row.key == api.FETCH and request.session_id and not request.topics and self._waits(Failure, row.key):
            # The request names no partition that could fail: this error makes the client name them all (KIP-227).
            return self._answer(connection, row, head, request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        delay = self._take(Delay, row.key)
        if isinstance(delay, Delay):
            self._hold(connection.park(), delay.seconds)
        fault = self._take((Failure, Disconnection), row.key)
        if isinstance(fault, Disconnection):
            return _TEXT
        return self._answer(connection, row, head, request, fault.code) if isinstance(fault, Failure) else None

    def _answer(
        self, connection: Connection, row: table.Row, head: header.RequestHeader, request: object, code: int
    ) -> bytes | str:
        answer = error_answer(row.key, head.api_version, request, code, _TEXT, self._view(connection))
        if answer is None:
            return _TEXT
        return protocol.encode_response_frame(row.key, head.api_version, head.correlation_id, answer)

    def _hold(self, place: Answer, seconds: float) -> None:
        """Keep a place in a connection's queue of answers for `seconds`. The later answers wait for it."""
        timer = threading.Timer(seconds, self._complete, [place])
        timer.daemon = True
        with self._lock:
            self._held[place] = timer
        timer.start()

    def _complete(self, place: Answer) -> None:
        with self._lock:
            if self._held.pop(place, None) is None:
                return
        place.complete_silently()

    def _add(self, fault: F) -> F:
        with self._lock:
            self._faults.append(fault)
            self._arm()
        return fault

    def _waits(self, kind: type[Fault], key: int) -> bool:
        with self._lock:
            return any(isinstance(fault, kind) and fault.key == key for fault in self._faults)

    def _take(self, kind: type[Fault] | tuple[type[Fault], ...], key: int) -> Fault | None:
        """Return the oldest fault of a kind for an API, and count the request. None if there is no such fault."""
        with self._lock:
            for fault in self._faults:
                if fault.key == key and isinstance(fault, kind):
                    fault.count += 1
                    if fault.ended:
                        self._faults.remove(fault)
                        self._arm()
                    return fault
        return None

    def _arm(self) -> None:
        self.armed = frozenset(fault.key for fault in self._faults)


def key_of(name: str | int) -> int:
    """Return the key of an API, given by its name in Kafka or its key. ValueError if this broker does not serve the
    API."""
    names = {row.name.lower(): row.key for row in table.ROWS}
    if isinstance(name, int):
        if name in names.values():
            return name
    elif name.lower() in names:
        return names[name.lower()]
    close = difflib.get_close_matches(str(name), [row.name for row in table.ROWS], n=1)
    raise ValueError(f"unknown API {name!r}{f', did you mean {close[0]}' if close else ''}")


def code_of(code: Code) -> int:
    """Return the code of an error, given by its name, code or exception. ValueError if the error is unknown."""
    if isinstance(code, KafkaError) or (isinstance(code, type) and issubclass(code, KafkaError)):
        return int(code.code)
    try:
        found = ErrorCode[code.upper()] if isinstance(code, str) else ErrorCode(code)
    except (KeyError, ValueError):
        close = difflib.get_close_matches(str(code).upper(), ErrorCode.__members__, n=1)
        raise ValueError(f"unknown Kafka error {code!r}{f', did you mean {close[0]}' if close else ''}") from None
    if found == ErrorCode.NONE:
        raise ValueError("NONE is not an error; use another error code")
    return int(found)

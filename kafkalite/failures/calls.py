"""Call a handler for one record, and classify its exception by the policy.

    Message ─▶ Caller: decode ─▶ handler(record[, transaction]) ─▶ Outcome: the handler's output records, or the Failure

Thread rule: any thread; calls share no state except a cache of stack-trace lines.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from typing import TYPE_CHECKING, Any, Final

from kafkalite.failures.events import DeadLetter, Failure, FailureKind, Message, Outcome, Output
from kafkalite.failures.headers import up_to_date
from kafkalite.failures.times import milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType

    from kafkalite.failures.events import Headers
    from kafkalite.failures.policy import Policy

STACKS_MAX: Final = 256
"""Stack traces whose formatted lines are cached."""

_stacks: dict[tuple[tuple[CodeType, int], ...], str] = {}  # under the GIL: a lost race formats the lines twice


class Transaction:
    """Collects the records that a handler sends, as in `handler(record, transaction)`.

    The sent records are committed together with the offset of the handled record.
    """

    def __init__(self) -> None:
        self.outputs: list[Output] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Send a record. Without `partition`, the key selects the partition."""
        self.outputs.append(Output(topic, partition, key, value, headers))


class Failed(Exception):
    """An exception that a handler raises to classify its failure: "fatal", "retriable" or "outage"."""

    def __init__(self, message: str, kind: str = "retriable") -> None:
        super().__init__(message)
        self.kind = FailureKind(kind)


class Caller:
    """Calls a handler and classifies its exceptions by the policy.

    Raises ValueError if the handler's parameters do not fit the policy.
    """

    def __init__(self, policy: Policy, handler: Callable[..., Any]) -> None:
        self._policy = policy
        self._handler = handler
        self._limit_s = milliseconds(policy.processing_time_max) / 1000
        parameters = inspect.signature(handler).parameters.values()
        wanted = [one for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
        self.with_transaction = len([one for one in wanted if one.default is one.empty]) > 1
        if self.with_transaction and policy.moves != "exactly once":
            raise ValueError(f"a handler that takes a transaction needs moves='exactly once', not {policy.moves!r}")
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise ValueError(
                f"{name_of(handler)} is a generator function, which would handle no record; remove the yield"
            )
        if not wanted and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            raise ValueError(f"{name_of(handler)} has no parameter for the record; declare one")
        self.is_async = is_async(handler)

    def __call__(self, message: Message) -> Outcome:
        """Call a sync handler. SystemExit and KeyboardInterrupt are raised: they end the member."""
        transaction = Transaction()
        try:
            record = self._decoded(message)
            if isinstance(record, Outcome):
                return record
            self._run(record, transaction)
        except BaseException as error:
            if ends_member(error):
                raise
            return Outcome(self._failure(error, None))
        return Outcome(outputs=tuple(transaction.outputs))

    async def call(self, message: Message) -> Outcome:
        """Call an async handler, limited to `processing_time_max`.

        Raises CancelledError if this task is cancelled; the record then has no outcome. A CancelledError that the
        handler itself raises is a failure.
        """
        transaction = Transaction()
        try:
            record = self._decoded(message)
            if isinstance(record, Outcome):
                return record
            await self._run_async(record, transaction)
        except BaseException as error:
            if ends_member(error):
                raise
            if is_cancelled():
                raise asyncio.CancelledError from error
            return Outcome(self._failure(error, None))
        return Outcome(outputs=tuple(transaction.outputs))

    def _run(self, given: object, transaction: Transaction) -> None:
        """Call a sync handler with a record, a dead letter or a list. Raises TypeError if the handler returns a
        coroutine.
        """
        returned = self._handler(given, transaction) if self.with_transaction else self._handler(given)
        if returned is not None and inspect.iscoroutine(returned):
            returned.close()
            raise TypeError(f"{name_of(self._handler)} returned a coroutine: declare it with async def")

    async def _run_async(self, given: object, transaction: Transaction) -> None:
        """Call an async handler with a record, a dead letter or a list, limited to `processing_time_max`."""
        async with asyncio.timeout(self._limit_s):
            await (self._handler(given, transaction) if self.with_transaction else self._handler(given))

    def _decoded(self, message: Message) -> Message | DeadLetter | Outcome:
        """Return the record with its decoded value, or the failure to decode it."""
        message = up_to_date(message)
        if self._policy.decode is None or message.value is None:
            return message
        try:
            return message._replace(value=self._policy.decode(message.value))
        except BaseException as error:  # a decoder may raise anything
            if ends_member(error):
                raise
            return Outcome(self._failure(error, FailureKind.FATAL))

    def _failure(self, error: BaseException, kind: FailureKind | None) -> Failure:
        """Return the failure for an exception and its chain of causes, outermost first."""
        chain = [error, *causes(error)]
        kind, rule = self._meaning(chain, kind)
        stack = stack_text(error)
        cause = class_name(chain[-1]) if len(chain) > 1 else ""
        dead = first_fit(chain, self._policy.dead_topics)
        return Failure(kind, class_name(error), cause, text_of(error), stack, rule, dead)

    def _meaning(self, chain: Sequence[BaseException], kind: FailureKind | None) -> tuple[FailureKind, int]:
        """Return how the policy classifies a failure, and the index of the policy's rule for it."""
        policy = self._policy
        said = next((one.kind for one in chain if isinstance(one, Failed)), None)
        if any(isinstance(one, tuple(policy.outage)) for one in chain):
            kind = FailureKind.OUTAGE
        elif said is not None or kind is None:
            fatal = any(isinstance(one, tuple(policy.fatal)) for one in chain)
            kind = said or (FailureKind.FATAL if fatal else FailureKind.RETRIABLE)
        return kind, first_fit(chain, policy.rules)


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def first_fit(chain: Sequence[BaseException], kinds: Iterable[type[BaseException]]) -> int:
    """Return the index of the first class in `kinds` that matches an exception of the chain, or -1."""
    fits = (place for place, wanted in enumerate(kinds) if any(isinstance(one, wanted) for one in chain))
    return next(fits, -1)


def name_of(handler: Callable[..., Any]) -> str:
    """Return the handler's name for messages."""
    return getattr(handler, "__qualname__", None) or repr(handler)


def is_async(handler: Callable[..., Any]) -> bool:
    """Return whether calling the handler returns a coroutine: an async function, or an async `__call__`."""
    called = getattr(handler, "__call__", None)  # noqa: B004  # it is inspected, not tested for its presence
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)


def ends_member(error: BaseException) -> bool:
    """Return whether the exception, or one in its group, is SystemExit or KeyboardInterrupt."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup((SystemExit, KeyboardInterrupt)) is not None
    return isinstance(error, (SystemExit, KeyboardInterrupt))


def stack_text(error: BaseException) -> str:
    """Format a stack trace as Python does, but cache its lines, since the same code fails repeatedly."""
    if error.__cause__ is not None or error.__context__ is not None or isinstance(error, BaseExceptionGroup):
        return "".join(traceback.format_exception(error))
    places, link = [], error.__traceback__
    while link is not None:
        places.append((link.tb_frame.f_code, link.tb_lasti))
        link = link.tb_next
    key = tuple(places)
    lines = _stacks.get(key)
    if lines is None:
        lines = "".join(traceback.format_tb(error.__traceback__))
        if len(_stacks) >= STACKS_MAX:
            _stacks.clear()
        _stacks[key] = lines
    head = "Traceback (most recent call last):\n" if lines else ""
    return head + lines + last_lines(error)


def last_lines(error: BaseException) -> str:
    """Return the end of a stack trace: class and text of the exception, and its notes."""
    if isinstance(error, SyntaxError) or getattr(error, "__notes__", None):
        return "".join(traceback.format_exception_only(error))
    kind, text = type(error), text_of(error)
    name = kind.__qualname__ if kind.__module__ == "__main__" else class_name(error)
    return f"{name}: {text}\n" if text else f"{name}\n"


def text_of(error: BaseException) -> str:
    """Return str(error), or Python's substitute if `__str__` raises. So a faulty exception class does not end the
    worker.
    """
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  # `__str__` may raise anything
        return "<exception str() failed>"


def causes(error: BaseException) -> list[BaseException]:
    """Return the chain of causes and contexts, outermost first."""
    found: list[BaseException] = []
    link = error.__cause__ or error.__context__
    while link is not None and link not in found and link is not error:
        found.append(link)
        link = link.__cause__ or link.__context__
    return found


def class_name(error: BaseException) -> str:
    """Return the class name with its module, without "builtins"."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

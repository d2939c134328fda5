"""Call a dead-letter handler: a user's function that gets each dead letter of a group, for example to notify someone.

    dlq.billing.orders ─▶ Run ─▶ DeadCaller ─▶ handler(DeadLetter[, transaction]) ─▶ Outcome

By default, one transaction writes the handler's output and commits the offset of the dead letter. So the group's
committed offsets in the dead-letter topics show which letters were handled.

Thread rule: any thread, as in kafkalite.failures.calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.failures.calls import Caller, Failed, ends_member, name_of
from kafkalite.failures.events import DeadLetter, Failure, FailureKind, Message
from kafkalite.failures.headers import TIMESTAMP_TYPES, found_letter, original_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.failures.policy import Policy


class DeadCaller(Caller):
    """Calls a dead-letter handler. After an exception the call is repeated, unless the exception is `Failed(…,
    "fatal")`.

    A member reads dead-letter topics like its other topics, with the same client and group.

    Raises ValueError if the handler's parameters do not fit, or if the policy never writes a dead letter.
    """

    def __init__(self, policy: Policy, handler: Callable[..., Any]) -> None:
        super().__init__(policy, handler)
        if not policy.writes_letters:
            raise ValueError(
                f"{name_of(handler)} would get no dead letters: neither the strategy nor `fatal` writes any"
            )

    def _decoded(self, message: Message) -> DeadLetter:
        return dead_letter_of(message, self._policy.decode)

    def _meaning(self, chain: Sequence[BaseException], _: FailureKind | None) -> tuple[FailureKind, int]:
        said = next((one.kind for one in chain if isinstance(one, Failed)), None)
        return FailureKind.FATAL if said is FailureKind.FATAL else FailureKind.RETRIABLE, -1


def dead_letter_of(letter: Message, decode: Callable[[bytes], Any] | None) -> DeadLetter:
    """Parse a record of a dead-letter topic. Raises ValueError if it is not a letter."""
    found = found_letter(letter.headers)
    if found is None:
        raise ValueError(f"{letter.topic}-{letter.partition}-{letter.offset} is not a dead letter")
    of, reason = found.letter, found.reason
    timestamp, kind = original_time(letter)
    record = Message(
        *of.partition,
        of.offset,
        timestamp,
        found.key if found.rekeyed else letter.key,
        letter.value,
        found.headers,
        int(kind == TIMESTAMP_TYPES[1]),
        of.attempt,
    )
    if decode is not None and record.value is not None:
        try:
            record = record._replace(value=decode(record.value))
        except BaseException as error:  # a decoder may raise anything; its error may be why this is a dead letter
            if ends_member(error):
                raise
    failure = Failure(FailureKind.FATAL, reason.exception, reason.cause, reason.text, reason.stack)
    return DeadLetter(record, failure, letter)

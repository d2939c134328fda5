"""Test a handler and its policy in memory, without a broker and without waiting.

A test uses the same session as a real member (kafkalite.failures.session). The client, the workers and the clock are
replaced:

    records        the given records are passed to the session as if a client had read them
    Run            the handler is called
    Transact       dead letters and outputs are collected; letters for a retry topic are passed to the session
    due times      the clock jumps to the next due time

Thread rule: one thread at a time. An async handler runs in the event loop of another thread.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.failures.batch_calls import BatchCaller, caller_of
from kafkalite.failures.dead_letters import DeadCaller, dead_letter_of
from kafkalite.failures.events import (
    Alarm,
    Arrival,
    Assigned,
    Commit,
    CommitEnded,
    DeadLetter,
    Decided,
    Failure,
    FailureKind,
    Fetched,
    Finished,
    FinishedTogether,
    Goal,
    Message,
    Output,
    Run,
    RunEnded,
    Start,
    Stop,
    Tick,
    Transact,
    TransactionEnded,
)
from kafkalite.failures.headers import letter_of, rekeyed, rendered
from kafkalite.failures.retry_strategies import StepKind
from kafkalite.failures.run_progress import BatchWork, RunProgress
from kafkalite.failures.session import Session
from kafkalite.failures.times import Moment
from kafkalite.failures.transaction_writer import SIZE_MAX
from kafkalite.failures.workers import EventLoopThread
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from kafkalite.failures.calls import Caller
    from kafkalite.failures.events import Event, Outcome, Put
    from kafkalite.failures.policy import Policy

ATTEMPTS_MAX: Final = 1000


class Retried(NamedTuple):
    """A failed attempt that was followed by another attempt: the failure, and the record as passed to the handler."""

    record: Message
    failure: Failure


class DeadCall(NamedTuple):
    """A call of the dead-letter handler. `failure` is None if it returned."""

    letter: DeadLetter
    failure: Failure | None


class Tried(NamedTuple):
    """The outcomes of the records of `try_records`. Records have the topics and offsets of the given records."""

    processed: list[Message]
    """Records whose last attempt succeeded, in the order of success."""
    retried: list[Retried]
    """Failed attempts that were followed by another, in order."""
    dead_lettered: list[DeadLetter]
    dead_calls: list[DeadCall]
    """Calls of the dead-letter handler, in order."""
    ignored: list[Message]
    """Records that failed and were skipped (Ignore)."""
    skipped: list[Message]
    """Records that no handler gets: tombstones, with skip_tombstones."""
    unfinished: list[Message]
    """Records without an outcome when the policy stopped the member or attempts_max was reached, and records that wait
    for a dead letter of their key (after_dead="hold")."""
    sent: list[Output]
    """Records that the handlers sent through their transactions."""
    alarms: list[Alarm]
    stopped: str
    """The reason why the policy stopped the member, or ""."""


def messages_of(policy: Policy, records: Iterable[Message | bytes | None]) -> list[Message]:
    """Return the given records as Messages of the policy's topics.

    A value, or None for a tombstone, becomes a record of partition 0 of the first topic. Raises TypeError for anything
    that is not a record. Raises ValueError for another topic, or for offsets that do not increase.
    """
    found: list[Message] = []
    ends: defaultdict[TopicPartition, int] = defaultdict(int)
    for record in records:
        if isinstance(record, Message):
            message = record
        elif record is None or isinstance(record, bytes):
            place = TopicPartition(policy.topics[0], 0)
            message = Message(*place, ends[place], time.time_ns() // 1_000_000, None, record)
        else:
            raise TypeError(f"{record!r} is not a record: pass bytes, None for a tombstone, or a Message")
        place = TopicPartition(message.topic, message.partition)
        if message.topic not in policy.topics:
            raise ValueError(
                f"a record has topic {message.topic!r}, but the topics of the policy are {list(policy.topics)}"
            )
        if message.offset < ends[place]:
            raise ValueError(
                f"offset {message.offset} of {place} follows offset {ends[place] - 1}; offsets must increase"
            )
        ends[place] = message.offset + 1
        found.append(message)
    return found


class Trial:
    """One run of a handler in memory; see the module.

    `attempts_max`   maximum number of calls for one record
    `dead`           the dead-letter handler
    """

    def __init__(
        self,
        policy: Policy,
        handler: Callable[..., Any],
        attempts_max: int = 100,
        dead: Callable[..., Any] | None = None,
    ) -> None:
        if not 1 <= attempts_max <= ATTEMPTS_MAX:
            raise ValueError(f"attempts_max must be from 1 to {ATTEMPTS_MAX}, not {attempts_max}")
        self._policy = policy
        self._caller = caller_of(policy, handler)
        self._dead_caller = None if dead is None else DeadCaller(policy, dead)
        self._attempts_max = attempts_max
        self._session = Session(policy, member="try_records", nonce="t", draw=lambda: 0.0)
        self._wall_ms = time.time_ns() // 1_000_000
        self._ms = 0.0
        self._loop: EventLoopThread | None = None
        self._ends: dict[TopicPartition, int] = {}
        self._calls: dict[tuple[str, int, int], list[tuple[Message, Failure | None]]] = {}
        self._order: list[tuple[tuple[str, int, int], int]] = []
        """Record and number of each call."""
        self._letters: dict[tuple[str, int, int], DeadLetter] = {}
        self._dead_calls: list[DeadCall] = []
        self._sent: list[Output] = []
        self._alarms: list[Alarm] = []
        self._stopped = ""
        self._is_over = False

    def run(self, records: list[Message]) -> Tried:
        """Return the outcomes of these records. SystemExit and KeyboardInterrupt of the handler are raised."""
        callers = [one for one in (self._caller, self._dead_caller) if one is not None]
        self._loop = EventLoopThread() if any(one.is_async for one in callers) else None
        try:
            waiting = list(self._begin(records))
            while waiting and not self._is_over:
                actions = self._session.on_all(waiting, Moment(self._wall_ms + int(self._ms), self._ms))
                waiting = [event for action in actions for event in self._carry_out(action)]
                waiting += self._decided()
                if not waiting and (wake := self._session.wake_at) is not None:
                    self._ms = max(self._ms, wake)
                    waiting = [Tick()]
        finally:
            if self._loop is not None:
                self._loop.close()
        return self._tried(records)

    def _begin(self, records: list[Message]) -> Iterator[Event]:
        """Assign the partitions of the records and of the group's other topics, then deliver the records."""
        by_place: dict[TopicPartition, list[Message]] = {}
        for message in records:
            self._calls[message[:3]] = []
            by_place.setdefault(TopicPartition(message.topic, message.partition), []).append(message)
        starts = {}
        for place, messages in by_place.items():
            starts[place] = Start(messages[0].offset, messages[0].offset, messages[0].offset)
            for topic in self._policy.layout.retries(place.topic):
                starts[TopicPartition(topic, place.partition)] = Start(0, 0, 0)
            if self._dead_caller is not None:
                for topic in self._policy.layout.every_dead(place.topic):
                    starts[TopicPartition(topic, place.partition)] = Start(0, 0, 0)
        yield Assigned(starts, {}, {})
        for place, messages in by_place.items():
            yield Fetched(place, [Arrival(message) for message in messages], messages[-1].offset + 1)

    def _decided(self) -> Iterator[Event]:
        """Report to the session that the groups in `after` have processed every record."""
        for place, group in self._session.waits.items():
            yield Decided(group, place, 2**63 - 1)

    def _carry_out(self, action: object) -> Iterator[Event]:
        match action:
            case Run():
                yield from self._handle(action)
            case Transact():
                yield TransactionEnded(action.number)
                for put in action.puts:
                    yield from self._write(put)
            case Commit(number=number):
                yield CommitEnded(number)
            case Alarm():
                self._alarms.append(action)
            case Stop(reason=reason):
                self._stopped = reason

    def _handle(self, run: Run) -> Iterator[Event]:
        if isinstance(self._caller, BatchCaller) and run.partition.topic in self._policy.layout.lanes:
            yield from self._handle_batches(run, self._caller)
            return
        progress = RunProgress(run)
        for message in run.messages:
            if self._stopped or self._is_over or progress.over:
                break
            if progress.skips(message):
                continue
            outcome = self._call(message) if message.topic in self._policy.layout.lanes else self._call_dead(message)
            yield Finished(run.partition, run.number, message.offset, outcome)
            if outcome.failure is not None:
                progress.fail(message, outcome.failure)
        yield RunEnded(run.partition, run.number)

    def _handle_batches(self, run: Run, caller: BatchCaller) -> Iterator[Event]:
        work = BatchWork(run, caller, caller.size)
        while not (self._stopped or self._is_over) and (records := work.next()):
            if not caller.is_async:
                work.ended(caller.call_batch(records))
            else:
                assert self._loop is not None, "the handler is async"
                work.ended(self._loop.call(caller.call_batch_async(records)))
            yield from self._noted(run, work.take())
        yield from self._noted(run, work.take())
        yield RunEnded(run.partition, run.number)

    def _noted(self, run: Run, events: list[Event]) -> Iterator[Event]:
        """Store the outcome of each record of a batch call, and yield the call's events."""
        messages = {message.offset: message for message in run.messages}
        for event in events:
            if isinstance(event, Finished):
                self._note(messages[event.offset], event.outcome.failure)
            elif isinstance(event, FinishedTogether):
                for offset in event.offsets:
                    self._note(messages[offset], None)
            yield event

    def _call(self, message: Message) -> Outcome:
        outcome = self._outcome(self._caller, message)
        self._note(message, outcome.failure)
        return outcome

    def _note(self, message: Message, failure: Failure | None) -> None:
        origin = self._origin(message)
        calls = self._calls[origin]
        self._order.append((origin, len(calls)))
        calls.append((message._replace(topic=origin[0], partition=origin[1], offset=origin[2]), failure))
        if failure is not None and len(calls) >= self._attempts_max:
            self._is_over = True

    def _call_dead(self, message: Message) -> Outcome:
        assert self._dead_caller is not None, "its topics were assigned"
        outcome = self._outcome(self._dead_caller, message)
        self._dead_calls.append(DeadCall(dead_letter_of(message, self._policy.decode), outcome.failure))
        if outcome.failure is not None and message.attempt + 1 >= self._attempts_max:
            self._is_over = True
        return outcome

    def _outcome(self, caller: Caller, message: Message) -> Outcome:
        if not caller.is_async:
            return caller(message)
        assert self._loop is not None, "a handler is async"
        return self._loop.call(caller.call(message))

    def _origin(self, message: Message) -> tuple[str, int, int]:
        """Return the topic, partition and offset of the source record."""
        if not self._policy.layout.lanes[message.topic].is_retry:
            return message[:3]
        letter = letter_of(message.headers)
        assert letter is not None, "written here"
        return (*letter.partition, letter.offset)

    def _write(self, put: Put) -> Iterator[Event]:
        if put.goal is Goal.OUTPUT:
            message = put.message
            self._sent.append(Output(put.topic, put.partition, message.key, message.value, message.headers))
            return
        message = rendered(put, SIZE_MAX, self._policy.compat, self._policy.scrub)
        assert put.letter is not None, "only outputs have none"
        origin = (*put.letter.partition, put.letter.offset)
        place = TopicPartition(put.topic, put.letter.partition.partition)
        offset = self._ends.get(place, 0)
        self._ends[place] = offset + 1
        message = message._replace(topic=put.topic, partition=place.partition, offset=offset)
        if put.goal is Goal.DEAD:
            assert put.failure is not None, "a dead letter has failed"
            if self._policy.letter_kind != "original":
                message = rekeyed(message, put, self._policy.letter_kind)
            self._letters[origin] = DeadLetter(self._calls[origin][-1][0], put.failure, message)
        if put.goal is not Goal.DEAD or self._dead_caller is not None:
            message = message._replace(attempt=0)
            yield Fetched(place, [Arrival(message, letter_of(message.headers))], offset + 1)

    # --- results ------------------------------------------------------------------------------------------------------

    def _tried(self, records: list[Message]) -> Tried:
        processed, retried = [], []
        for origin, number in self._order:
            calls = self._calls[origin]
            message, failure = calls[number]
            if failure is None:
                processed.append(message)
            elif number + 1 < len(calls):
                retried.append(Retried(message, failure))
        rest: dict[str, list[Message]] = {"ignored": [], "skipped": [], "unfinished": []}
        for message in records:
            calls = self._calls[message[:3]]
            if (calls and calls[-1][1] is None) or message[:3] in self._letters:
                continue
            rest[self._rest(message)].append(message)
        dead = list(self._letters.values())
        return Tried(
            processed,
            retried,
            dead,
            self._dead_calls,
            **rest,
            sent=self._sent,
            alarms=self._alarms,
            stopped=self._stopped,
        )

    def _rest(self, message: Message) -> str:
        """Return the field of Tried for a record that was neither processed nor became a dead letter."""
        origin = message[:3]
        failures = [failure for _, failure in self._calls[origin] if failure is not None]
        is_ended = bool(self._stopped) or self._is_over
        if not failures:
            is_skipped = self._policy.skip_tombstones and message.value is None and not is_ended
            return "skipped" if is_skipped else "unfinished"
        if not is_ended:
            return "ignored"
        counted = sum(failure.kind is not FailureKind.OUTAGE for failure in failures)
        step = self._policy.step(failures[-1].rule, max(counted, 1))
        is_last = self._order[-1][0] == origin
        return "ignored" if step.kind is StepKind.IGNORE and not is_last else "unfinished"

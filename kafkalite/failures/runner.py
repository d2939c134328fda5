"""Run a member of a group: read records, call handlers, and write and commit what the session decides.

    read             the port polls the client; the session gets the records (Fetched)
    Run              workers call the handler for each record, and report the outcomes (Finished)
    Transact         a separate thread writes records, rows and offsets, by default in a transaction (TransactionEnded)
    Commit           the port commits offsets without a transaction (CommitEnded)
    Pause, Resume    the port stops or continues reading a partition

The session (kafkalite.failures.session) makes all decisions. A port adapts a client library
(kafkalite.failures.adapters). The client is polled while handlers and transactions run. So a slow handler does not end
the group membership.

Thread rule: `run` and the client belong to one thread; any thread may set `stop`. Handlers and transactions run in
other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkalite.client import READ_COMMITTED
from kafkalite.client.errors import UNREACHED, ClientError, LogTruncated
from kafkalite.client.history import find_divergences
from kafkalite.client.read.damage import has_other_in_sync, is_readable, next_readable
from kafkalite.client.read.marks import Divergence, Mark, Position
from kafkalite.errors import KafkaError, StartupError
from kafkalite.failures.batch_calls import caller_of
from kafkalite.failures.breaker_status import Board
from kafkalite.failures.calls import class_name, ends_member, text_of
from kafkalite.failures.dead_letters import DeadCaller
from kafkalite.failures.events import (
    Alarm,
    Arrival,
    Assigned,
    Commit,
    CommitEnded,
    Damaged,
    Decided,
    Doubt,
    Failure,
    Fetched,
    Finished,
    Goal,
    Lost,
    Message,
    Pause,
    Released,
    Resume,
    Revoked,
    Revoking,
    Run,
    RunEnded,
    Start,
    Stop,
    Tick,
    Transact,
    TransactionEnded,
    Withdraw,
)
from kafkalite.failures.headers import letter_of
from kafkalite.failures.ledger import Ledger
from kafkalite.failures.marks import Marks
from kafkalite.failures.metrics import Late, exposition
from kafkalite.failures.rows import GIVEN_UP, UNDECIDED
from kafkalite.failures.session import Session
from kafkalite.failures.times import Moment, milliseconds
from kafkalite.failures.topics import ensure, publish, require_topics, size_max, topic_ids
from kafkalite.failures.transaction_writer import SIZE_MAX, Ended, Move, Mover, WritingPort, refused
from kafkalite.failures.workers import DividedWorkers, TaskWorkers, ThreadWorkers
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalite.client import Client, CommittedOffset
    from kafkalite.failures.calls import Caller
    from kafkalite.failures.events import Action, Event
    from kafkalite.failures.policy import Policy
    from kafkalite.failures.workers import Workers

IDLE_POLL_S: Final = 0.1
BUSY_POLL_S: Final = 0.02
MOVING_POLL_S: Final = 0.005
"""Poll interval while a commit or a write is under way, because its end does not wake the client."""
REVOKE_WAIT_S: Final = 10.0
STUCK_S: Final = 0.5
"""For clients that do not report damage: how long a partition makes no progress before it is checked."""
START_PAUSE_S_MIN: Final = 0.5
START_PAUSE_S_MAX: Final = 10.0
"""Limits of the backoff while no broker is reachable at the start."""
ASK_S_MIN: Final = 0.25
ASK_S_MAX: Final = 1.0

logger = logging.getLogger(__name__)


class DamagedBatch(Exception):
    """The batch at this offset cannot be read."""

    def __init__(self, message: str, partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset


class CommitRefused(Exception):
    """An offset commit failed."""


class Fetch(NamedTuple):
    """Records of one partition that the client has read, and the offset after them."""

    partition: TopicPartition
    messages: Sequence[Message]
    next_offset: int


class Port(WritingPort, Protocol):
    """The client interface that a runner needs. Callbacks run inside `poll` and `close`, in the caller's thread."""

    by_partition: bool
    """Whether each transaction covers one source partition, because the client cannot send its group metadata."""

    def claim(self) -> None:
        """Initialize the transactional ids, before `open` is called.

        This aborts transactions that a previous process left open, so readers do not wait until they time out. The
        method is not called with at-least-once moves.
        """

    def open(
        self,
        group: str,
        topics: Sequence[str],
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        """Join the group and read committed records. Without a committed offset, begin at the earliest offset.

        The client must not commit automatically.
        """

    reports_damage: bool
    """Whether `poll` raises DamagedBatch. Otherwise the runner checks partitions that make no progress."""

    def poll(self, timeout_s: float) -> list[Fetch]:
        """Return the records that arrived. Raises DamagedBatch for a batch that cannot be read."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading at this offset."""

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset to read, or -1 if it is not known yet."""

    def pause(self, partition: TopicPartition) -> None: ...

    def resume(self, partition: TopicPartition) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets and wait. Commits that `commit_soon` has started end first. Raises CommitRefused."""

    def commit_soon(self, offsets: Mapping[TopicPartition, int], ended: Callable[[Exception | None], None]) -> None:
        """Start a commit.

        `ended` is called with the commit's error or None, in this call or in a later call. Commits end in the order in
        which they were started.
        """

    def settle(self) -> None:
        """Wait until all started commits have ended and their `ended` functions were called."""

    def member(self) -> object:
        """Return the current group membership, for `transact`.

        The broker rejects commits of a member that was replaced.
        """

    def close(self) -> None:
        """Give up all partitions with the callbacks, and leave the group."""


# --- the runner -------------------------------------------------------------------------------------------------------


class Runner:
    """A member of a consumer group that handles records by a policy. `failures.run` creates it.

    `policy`     the group's policy
    `handler`    called with each record, or with lists of records (`Policy.batch`)
    `port`       the client that reads and writes records
    `client`     the client that reads the ledger, topics and committed offsets
    `member`     name of this member, unique in the group and unchanged after a restart; default: random
    `workers`    handlers that run at a time: threads, or tasks of an async handler. Calls for one partition overlap
                 only if the handler is async and the policy does not keep the offset order
    `loop`       event loop for async handlers; default: one in its own thread
    `dead`       the dead-letter handler: called with each DeadLetter of the group, in the same number of extra workers
    `on_alarm`   called with each Alarm, in the thread of `run`; default: alarms are logged
    `on_failed`  called with the Message and the Failure of each failed attempt
    `on_moved`   called after a record was moved to a retry or dead-letter topic: with the Message, the goal ("retry",
                 "parked" or "dead") and the topic
    `create_topics`   whether to create missing topics. The start fails and names those that are still missing

    Exceptions raised by `on_alarm`, `on_failed` and `on_moved` are logged. Errors: ValueError for `workers` below 1, or
    if the handler's parameters do not fit.
    """

    def __init__(
        self,
        policy: Policy,
        handler: Callable[..., Any],
        port: Port,
        client: Client,
        *,
        member: str | None = None,
        workers: int = 1,
        loop: asyncio.AbstractEventLoop | None = None,
        dead: Callable[..., Any] | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
        on_failed: Callable[[Message, Failure], object] | None = None,
        on_moved: Callable[[Message, str, str], object] | None = None,
        create_topics: bool = True,
    ) -> None:
        drawn = f"{random.getrandbits(48):012x}"
        self.policy = policy
        self._port = port
        self._client = client
        self._member = member or drawn
        self._caller = caller_of(policy, handler)
        self._dead_caller = None if dead is None else DeadCaller(policy, dead)
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self._worker_count = workers
        self._loop = loop
        self._on_alarm = on_alarm
        self._on_failed = on_failed
        self._on_moved = on_moved
        self._create_topics = create_topics
        self.session = Session(
            policy,
            member=self._member,
            nonce=drawn if policy.moves == "exactly once" else "",
            draw=random.random,
            by_partition=port.by_partition,
        )
        self._ledger = Ledger(client, policy.group)
        self._others = {group: Ledger(client, group) for group in policy.after}
        self._board = Board(client, self._ledger.topic if policy.keeps_ledger else "", self._member)
        self._marks = Marks(client, policy.layout.ledger)
        self._sizes: dict[str, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._workers: Workers | DividedWorkers | None = None
        self._mover: Mover | None = None
        self._stopped = ""
        self._truncated: LogTruncated | None = None
        """A log that was truncated below the committed offset. The next turn raises it."""
        self._ask_at = 0.0
        self._ask_s = ASK_S_MIN
        self._gone: set[TopicPartition] = set()
        """Partitions lost since the last move began. Without transactions, nothing else would refuse their offsets."""
        self._commits_begun = self._commits_ended = 0
        self._heard: list[Event] = []
        """Ends of commits that the port has reported, not yet passed to the session."""
        self._awaits_commits = False
        """Whether commits must wait for their end, because no poll would report it."""
        self._slow: set[tuple[TopicPartition, int]] = set()
        self._late = Late()
        self._look_at = 0.0
        self._looking: Client | None = None
        self._looked: dict[TopicPartition, int] = {}
        """Positions at the last damage check, without a report from the client."""
        self._whole: dict[TopicPartition, int] = {}
        """Stuck positions whose batch was found readable."""
        self._awaited: dict[TopicPartition, float] = {}
        """Since when a damaged batch waits for another leader (monotonic s)."""

    def metrics(self) -> str:
        """Return the member's metrics in Prometheus text format. Any thread may call it."""
        return exposition(self.session, self._late, self.policy.group)

    def run(self, stop: threading.Event) -> str:
        """Handle records until `stop` is set or the policy stops the member. Return "", or the policy's reason.

        If no broker is reachable at the start, retry and log each attempt. If a handler raises SystemExit or
        KeyboardInterrupt, the member gives up all partitions and raises that exception here.

        Errors: StartupError, KafkaError, and LogTruncated for a log that was restored or truncated below the committed
        offset.
        """
        prepared = False
        try:
            prepared = self._prepared(stop)
        finally:
            if not prepared:
                self._port.close()
                self._board.close()
                self._marks.close()
        if not prepared:
            return ""
        self._workers = self._new_workers()
        self._mover = Mover(self.policy, self._port, self._bell)
        topics = [name for name, lane in self.policy.layout.lanes.items() if not lane.is_retry or self._has_retries]
        if self._dead_caller is not None:
            topics += self.policy.layout.dead_lanes
        try:
            if self.policy.moves == "exactly once":
                self._port.claim()
            self._port.open(self.policy.group, topics, self._assigned, self._revoked, self._lost)
            while not stop.is_set() and not self._stopped:
                self._turn()
        finally:
            try:
                self._port.close()
            finally:
                self._mover.close()
                self._workers.close()
                self._board.close()
                self._marks.close()
                if self._looking is not None:
                    self._looking.close()
                if self._workers.failure is not None:
                    raise self._workers.failure
        return self._stopped

    def _new_workers(self) -> Workers | DividedWorkers:
        own = self._workers_of(self._caller, self._loop)
        if self._dead_caller is None:
            return own
        loop = own.loop if isinstance(own, TaskWorkers) else self._loop
        dead_lanes = self.policy.layout.dead_lanes
        return DividedWorkers(own, self._workers_of(self._dead_caller, loop), lambda key: key.topic in dead_lanes)

    def _workers_of(self, caller: Caller, loop: asyncio.AbstractEventLoop | None) -> Workers:
        if caller.is_async:
            return TaskWorkers(caller, self._worker_count, self._bell, self._marks.write, loop)
        return ThreadWorkers(caller, self._worker_count, self._bell, self._marks.write)

    def cancel(self) -> None:
        """Cancel the async handlers that are running. Their records get no outcome, so the next member handles them.

        Any thread may call it, after `stop` was set.
        """
        if self._workers is not None:
            self._workers.cancel()

    @property
    def _has_retries(self) -> bool:
        return self.policy.uses_topics or self.policy.writes_letters

    def _prepared(self, stop: threading.Event) -> bool:
        """Prepare as soon as a broker responds. Return False if `stop` was set before."""
        pause_s, waited = START_PAUSE_S_MIN, False
        while not stop.is_set():
            try:
                self._prepare()
            except UNREACHED as error:
                waited = True
                logger.warning(
                    "group %s: no broker is reachable (%s); retrying in %g s", self.policy.group, error, pause_s
                )
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, START_PAUSE_S_MAX)
            else:
                if waited:
                    logger.warning("group %s: a broker is reachable again; the member starts", self.policy.group)
                return True
        return False

    def _prepare(self) -> None:
        """Create missing topics if allowed, or else refuse them. Refuse cycles of groups that wait for each other.
        Publish the policy.
        """
        if self._create_topics:
            missing = ensure(self.policy, self._client)
            if missing:
                raise StartupError("missing topics could not be created; create them with: " + "; ".join(missing))
        else:
            require_topics(self.policy, self._client)
        self._require_no_circle()
        if self.policy.keeps_ledger:
            publish(self.policy, self._client)

    def _require_no_circle(self) -> None:
        """Raise StartupError if a group in `after` waits for this group, directly or through other groups."""
        seen: set[str] = set()
        waiting = list(self.policy.after)
        while waiting:
            group = waiting.pop()
            if group == self.policy.group:
                raise StartupError(
                    f"group {self.policy.group} would wait for itself through {', '.join(self.policy.after)}"
                )
            if group not in seen:
                seen.add(group)
                ledger = Ledger(self._client, group)
                ledger.refresh()
                waiting += (ledger.policy or {}).get("after", [])

    # --- turns --------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        assert self._workers is not None, "running"
        assert self._mover is not None, "running"
        busy = bool(self._workers.running)
        committing = self._commits_begun > self._commits_ended
        timeout_s = 0.0
        if not busy:
            timeout_s = self._until_wake(MOVING_POLL_S if committing or self._mover.busy else IDLE_POLL_S)
        events: list[Event] = []
        fetched = self._poll(timeout_s, events)
        if self._truncated is not None:
            raise self._truncated
        for partition, messages, next_offset in fetched:
            lane = self.policy.layout.lane(partition.topic)
            is_letter = lane.is_retry or lane.is_dead
            arrivals = [Arrival(one, letter_of(one.headers) if is_letter else None) for one in messages]
            events.append(Fetched(partition, arrivals, next_offset))
        for key, reached in self.session.behind.items():
            position = self._port.position(key)
            if position > reached:
                events.append(Fetched(key, (), position))
        wait_s = MOVING_POLL_S if committing else BUSY_POLL_S
        events += self._results(self._until_wake(wait_s) if busy and not events else 0.0)
        self._look_at_slow()
        self._ask(events)
        self._tell([*self._take_heard(), *events] or [Tick()])
        self._late.take(self.session.late_ms)

    def _results(self, timeout_s: float) -> list[Event]:
        """Return the results of the workers and the writing thread. Wait up to `timeout_s` for the first result."""
        assert self._workers is not None, "running"
        assert self._mover is not None, "running"
        with contextlib.suppress(queue.Empty):
            self._bell.get(timeout=timeout_s) if timeout_s else self._bell.get_nowait()
            while True:
                self._bell.get_nowait()
        events = self._workers.results()
        failure = self._workers.failure
        if failure is not None and not self.session.stopped:
            text = self.policy.scrubbed(text_of(failure))
            self.session.stop(f"the handler raised {class_name(failure)}: {text}")
        ended = self._mover.ended()
        if ended is not None:
            events.append(self._ended(ended))
        return events

    def _poll(self, timeout_s: float, events: list[Event]) -> Sequence[Fetch]:
        try:
            if not self._port.reports_damage and time.monotonic() >= self._look_at:
                self._look_for_damage()
            return self._port.poll(timeout_s)
        except LogTruncated as error:
            if error.partition is None:
                raise
            place = Divergence(error.partition, error.offset, error.at)
            raise LogTruncated(truncated_text(self.policy.group, place), *place) from error
        except DamagedBatch as damage:
            if self.policy.on_damage == "stop":
                self._finish()
                raise (damage.__cause__ or damage) from None
            events.append(self._pass_over(damage))
            return ()

    def _pass_over(self, damage: DamagedBatch) -> Damaged:
        """Skip a batch that cannot be read, and return the event that reports it."""
        place = damage.partition
        following = next_readable(self._client, place, damage.offset, self._client.end_offset(*place))
        self._port.seek(place, following)
        return Damaged(place, damage.offset, following, str(damage))

    def _look_for_damage(self) -> None:
        """Find damaged batches for clients that do not report them.

        A partition that makes no progress before its end may have a damaged batch. If so, DamagedBatch is raised. But
        if another in-sync replica may have an intact copy, the member first waits some time for that replica to lead.
        """
        moment = time.monotonic()
        self._look_at = moment + STUCK_S
        positions = self.session.positions
        stuck = {key: offset for key, offset in positions.items() if self._looked.get(key) == offset}
        self._looked = positions
        self._whole = {key: offset for key, offset in self._whole.items() if stuck.get(key) == offset}
        self._awaited = {key: since for key, since in self._awaited.items() if key in stuck}
        wanted = dict.fromkeys([key for key in stuck if key not in self._whole], OFFSET_LATEST)
        if not wanted:
            return
        if self._looking is None:
            self._looking = self._client.twin()
            self._looking.retry_timeout_s = STUCK_S  # without a broker, records that were read are still handled
        client = self._looking
        try:
            ends = client.list_offsets(wanted, isolation=READ_COMMITTED)
            for key in [key for key in wanted if stuck[key] < ends[key].offset]:
                offset = stuck[key]
                if is_readable(client, key, offset):
                    self._whole[key] = offset
                    continue
                since = self._awaited.setdefault(key, moment)
                if moment - since > self._client.retry_timeout_s or not has_other_in_sync(client, key):
                    raise DamagedBatch(f"{key}: the batch at offset {offset} cannot be read", key, offset)
        except (KafkaError, ClientError) as error:
            logger.info("cannot check for damaged batches: %s", error)

    def _until_wake(self, limit_s: float) -> float:
        wake = self.session.wake_at
        return limit_s if wake is None else min(max(wake / 1000 - time.monotonic(), 0.0), limit_s)

    def _tell(self, events: Sequence[Event]) -> None:
        """Pass events to the session, execute its actions, and pass it the events that these actions cause."""
        assert self._workers is not None, "running"
        waiting = list(events)
        while waiting:
            for event in waiting:
                if isinstance(event, Finished) and event.outcome.failure is not None:
                    self._tell_of_failure(event, event.outcome.failure)
                elif isinstance(event, RunEnded):
                    self._workers.ended(event)
            actions = self.session.on_all(waiting, now())
            for action in actions:
                self._carry_out(action)
            waiting = self._take_heard()

    def _carry_out(self, action: Action) -> None:
        assert self._workers is not None, "running"
        match action:
            case Run():
                self._workers.start(action)
            case Withdraw(partition=partition):
                self._workers.withdraw(partition)
            case Pause(partition=partition):
                self._port.pause(partition)
            case Resume(partition=partition):
                self._port.resume(partition)
            case Transact():
                self._begin(action)
            case Commit():
                self._begin_commit(action)
            case Doubt():
                logger.warning("group %s: %s", self.policy.group, doubt_text(action))
            case Alarm():
                if action.kind == "breaker":
                    self._board.tell(is_open=bool(action.details["open"]), reason=action.text)
                self._alarm(action)
            case Stop(reason=reason):
                self._stopped = reason

    def _alarm(self, alarm: Alarm) -> None:
        if self._on_alarm is None:
            logger.warning("group %s: %s: %s", self.policy.group, alarm.kind, alarm.text)
        else:
            call_hook(self._on_alarm, alarm)

    def _tell_of_failure(self, event: Finished, failure: Failure) -> None:
        assert self._workers is not None, "running"
        run = self._workers.running.get(event.partition)
        is_dead = event.partition.topic in self.policy.layout.dead_lanes
        if self._on_failed is not None and run is not None and not is_dead:
            message = next(one for one in run.messages if one.offset == event.offset)
            call_hook(self._on_failed, message, failure)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        """Read positions, then stable offsets, then the ledger, then end offsets.

        This order matters. A letter is committed with its row, so a ledger that is read later lists all letters below
        the stable offsets. End offsets are read last, so the letters of all rows are below them and none seems to be
        lost.
        """
        if not partitions:
            return
        committed = self._client.groups.committed(self.policy.group, require_stable=True)
        if self._is_parted({key: committed[key] for key in partitions if key in committed}):
            return
        stable = self._client.list_offsets(dict.fromkeys(partitions, OFFSET_LATEST), isolation=READ_COMMITTED)
        if self.policy.keeps_ledger:
            self._ledger.refresh()
        firsts = self._client.list_offsets(dict.fromkeys(partitions, OFFSET_EARLIEST))
        ends = self._client.list_offsets(dict.fromkeys(partitions, OFFSET_LATEST))
        starts = {}
        for key in partitions:
            found = committed.get(key)
            position = max(firsts[key].offset, -1 if found is None else found.offset)
            starts[key] = Start(position, stable[key].offset, ends[key].offset)
        opened = {key: row for key, row in self._ledger.opened.items() if key in starts}
        self._topic_ids = topic_ids(self._client, [*self.policy.topics, *self.policy.layout.dead_lanes])
        self._tell([Assigned(starts, self._ledger.rows, opened, self._ledger.hands, self._topic_ids)])

    def _is_parted(self, committed: Mapping[TopicPartition, CommittedOffset]) -> bool:
        """Return whether a log was restored or truncated below the committed offset.

        The error is only stored here. Some clients merely log an exception of the rebalance callback, so `run` raises
        it next.
        """
        positions = {
            key: Position(row.offset, Mark(row.leader_epoch)) for key, row in committed.items() if row.offset > 0
        }
        parted = find_divergences(self._client, positions) if positions else []
        if parted:
            self._truncated = LogTruncated(truncated_text(self.policy.group, parted[0]), *parted[0])
        return bool(parted)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        """Wait for running handler calls and write their outcomes. The next owner handles the other records."""
        assert self._workers is not None, "running"
        assert self._mover is not None, "running"
        self._tell([Revoking(partitions)])
        for key in partitions:
            self._workers.withdraw(key)
        self._await_workers(partitions)
        with self._settled():
            self._tell([Revoked(partitions)])
            while self._mover.busy and self.session.is_closing:
                self._tell(self._results(BUSY_POLL_S))
        self._drop(partitions)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        """Drop the partitions, and wait for the write in progress.

        It must end before another transaction begins, and before the member closes the client.
        """
        assert self._mover is not None, "running"
        self._drop(partitions)
        with self._settled():
            while self._mover.busy:
                self._tell(self._results(BUSY_POLL_S))

    def _drop(self, partitions: list[TopicPartition]) -> None:
        self._gone.update(partitions)
        self._tell([Lost(partitions)])

    def _await_workers(self, partitions: Sequence[TopicPartition]) -> None:
        """Wait at most REVOKE_WAIT_S until no worker handles records of these partitions."""
        assert self._workers is not None, "running"
        deadline = time.monotonic() + REVOKE_WAIT_S
        while any(key in self._workers.running for key in partitions) and time.monotonic() < deadline:
            self._tell(self._results(BUSY_POLL_S))

    def _finish(self) -> None:
        """Process the records that were read before a damaged batch.

        Otherwise a member that stops and restarts at that batch would never process them.
        """
        assert self._workers is not None, "running"
        deadline = time.monotonic() + REVOKE_WAIT_S
        with self._settled():
            while self.session.is_busy and time.monotonic() < deadline:
                self._tell(self._results(BUSY_POLL_S) or [Tick()])

    @contextlib.contextmanager
    def _settled(self) -> Iterator[None]:
        """Run a block after all commits in progress have ended.

        No commit may end after another member has got the partition. A write also has to wait for the commits of its
        partitions, but no poll would report their ends meanwhile.
        """
        self._awaits_commits = True
        try:
            self._port.settle()
            self._tell(self._take_heard())
            yield
        finally:
            self._awaits_commits = False

    # --- writing ------------------------------------------------------------------------------------------------------

    def _begin(self, action: Transact) -> None:
        """Pass a transaction to the writing thread, with the current group membership."""
        assert self._mover is not None, "running"
        sizes = {put.topic: self._size_max(put.topic) for put in action.puts if put.goal is not Goal.OUTPUT}
        self._gone.clear()
        self._mover.begin(Move(action, self._port.member(), sizes))

    def _ended(self, ended: Ended) -> TransactionEnded:
        """Report a finished write to the session. With at-least-once moves, commit its offsets first.

        If a record was too large, the limits of the topics are read again.
        """
        policy, action, failed = self.policy, ended.action, ended.error is not None
        if not failed and policy.moves != "exactly once":
            offsets = {key: offset for key, offset in action.offsets.items() if key not in self._gone}
            failed = bool(offsets) and not self._commit(offsets)
        for put in action.puts if self._on_moved is not None and not failed else ():
            if put.goal is not Goal.OUTPUT:
                call_hook(self._on_moved, put.message, put.goal.value, put.topic)
        if ended.error is None or not ended.error.too_large:
            return TransactionEnded(action.number, failed)
        self._sizes.clear()
        return TransactionEnded(action.number, failed, refused(ended, self._size_max))

    def _begin_commit(self, action: Commit) -> None:
        """Start a commit. Wait for its end if no later poll would report it."""
        self._commits_begun += 1
        if self._awaits_commits:
            self._commit_ended(action.number, failed=not self._commit(action.offsets))
        else:
            self._port.commit_soon(action.offsets, functools.partial(self._heard_of, action.number))

    def _heard_of(self, number: int, error: Exception | None) -> None:
        if error is not None:
            logger.warning("commit of group %s failed: %s", self.policy.group, error)
        self._commit_ended(number, failed=error is not None)

    def _commit_ended(self, number: int, *, failed: bool) -> None:
        self._commits_ended += 1
        self._heard.append(CommitEnded(number, failed))

    def _take_heard(self) -> list[Event]:
        """Return the ends of commits that the session has not seen yet."""
        heard, self._heard = self._heard, []
        return heard

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        try:
            self._port.commit(offsets)
        except CommitRefused as error:
            logger.warning("commit of group %s failed: %s", self.policy.group, error)
            return False
        return True

    def _size_max(self, topic: str) -> int:
        if topic not in self._sizes:
            try:
                self._sizes[topic] = size_max(self._client, topic)
            except KafkaError:
                return SIZE_MAX
        return self._sizes[topic]

    # --- watching -----------------------------------------------------------------------------------------------------

    def _look_at_slow(self) -> None:
        """Raise an alarm, once per record, for a handler that takes longer than `processing_time_max`.

        A sync handler cannot be interrupted.
        """
        assert self._workers is not None, "running"
        limit_s = milliseconds(self.policy.processing_time_max) / 1000
        for (partition, offset), since in list(self._workers.since.items()):
            if time.monotonic() - since > limit_s and (partition, offset) not in self._slow:
                self._slow.add((partition, offset))
                text = f"{partition}-{offset} has been in the handler for more than {limit_s:g} s"
                self._alarm(Alarm("slow", text, {"record": f"{partition}-{offset}"}))

    def _ask(self, events: list[Event]) -> None:
        """Periodically read the decisions of the groups in `after`, and check whether held keys may continue."""
        waits, holders = self.session.waits, self.session.holders
        if not waits and not holders:
            self._ask_s = ASK_S_MIN
        elif time.monotonic() >= self._ask_at:
            self._ask_s = min(self._ask_s * 1.5, ASK_S_MAX)
            events += self._decided(waits)
            if holders:
                self._ledger.refresh()
                events += [
                    Released(key, offset)
                    for key, offsets in holders.items()
                    for offset in offsets
                    if (row := self._ledger.rows.get(key, {}).get(offset)) is None or not row.held
                ]
            self._ask_at = time.monotonic() + self._ask_s

    def _decided(self, waits: Mapping[TopicPartition, str]) -> Iterator[Decided]:
        """Read the stable committed offsets of the groups in `waits`, and then their ledgers.

        In this order, the ledgers cover all records below these offsets.
        """
        for group in set(waits.values()):
            committed = self._client.groups.committed(group, require_stable=True)
            ledger = self._others[group]
            ledger.refresh()
            for key in [key for key, wanted in waits.items() if wanted == group]:
                topic_id = self._topic_ids.get(key.topic, "")
                rows = {at: row for at, row in ledger.rows.get(key, {}).items() if row.concerns(topic_id)}
                undecided = frozenset(offset for offset, row in rows.items() if row.state in UNDECIDED)
                dead = frozenset(offset for offset, row in rows.items() if row.state in GIVEN_UP)
                upto = committed[key].offset if key in committed else 0
                yield Decided(group, key, upto, undecided, dead)


def doubt_text(doubt: Doubt) -> str:
    """Return the log line for a Doubt. After an unclean shutdown, it says that records are noted before they are
    handled, and later that this has ended.
    """
    where = f"{doubt.partition}, offsets {doubt.first} to {doubt.until - 1}"
    if doubt.over:
        return (
            f"{where}: the records in doubt after the unclean shutdown are processed; the member is at full speed again"
        )
    suspects = f"; {doubt.suspects} were being processed then and are retried one at a time" if doubt.suspects else ""
    return (
        f"{where}: the previous member did not shut down cleanly, and one of these records may be the cause; "
        f"they are processed in growing batches, each noted in the ledger first{suspects}"
    )


def now() -> Moment:
    """Return the current time of the wall clock and the monotonic clock, in ms."""
    return Moment(time.time_ns() // 1_000_000, time.monotonic() * 1000)


def truncated_text(group: str, divergence: Divergence) -> str:
    """Return the error text that names the truncated log and the command that resets the offsets."""
    topic, partition = divergence.partition
    where = "--to-earliest" if divergence.at is None else f"--to-offset {divergence.at}"
    return (
        f"{divergence}: it was restored from a backup, truncated or recreated, and group {group} has committed later "
        f"offsets; stop its members, reset the offsets (kafkalite groups reset-offsets {group} --topic "
        f"{topic}:{partition} {where} --execute), and start them again"
    )


def call_hook(hook: Callable[..., object] | None, *arguments: object) -> None:
    """Call a user's hook. Log its exception, except for SystemExit and KeyboardInterrupt, which end the member."""
    try:
        if hook is not None:
            hook(*arguments)
    except BaseException as error:
        if ends_member(error):
            raise
        logger.exception("a hook failed")

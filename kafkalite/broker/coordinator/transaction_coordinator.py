"""Coordinate all transactions of this broker: serve transactional ids, and complete prepared transactions.

Each change of a transactional id takes the same steps:

    1  a function of `transaction_rules` returns the next state
    2  the next state is written to `__transaction_state`
    3  when it is durable, it takes effect and the client gets its response
    4  after a Prepare, the markers are written; when all of them are durable, Complete is written

After loading, a broker completes the transactions that were prepared before.

A producer may send its next request before the markers are written. Kafka refuses this request with
CONCURRENT_TRANSACTIONS. Here the request waits until the transaction is complete, for a limited time.

Thread rule: any thread may call anything; only loading and `initialise` may wait for a disk. `_lock` guards the table
and is a leaf. Responses are delivered without a lock.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.serve.deferred_produce import ADMITS_FROM
from kafkalite._native.wire.codec import CodecError
from kafkalite.base.deferred import Deferred, completed
from kafkalite.base.executors import THREADS
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator import transaction_rules as rules
from kafkalite.broker.coordinator.base import write_error
from kafkalite.broker.coordinator.failure_log import Troubles
from kafkalite.broker.coordinator.marker_requests import Ask, RemoteMarker
from kafkalite.broker.coordinator.marker_writer import MarkerWriter
from kafkalite.broker.coordinator.shard_epoch import NO_EPOCH, ShardEpoch
from kafkalite.broker.coordinator.shards import Shards
from kafkalite.broker.coordinator.state_log import TRANSACTIONS_TOPIC, Marker, StateLog
from kafkalite.broker.coordinator.transaction_records import read_key, read_value, transaction_record
from kafkalite.broker.coordinator.transaction_rules import (
    COMPLETE,
    DEAD,
    EMPTY,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARED,
    TV2,
    Metadata,
    Outcome,
)
from kafkalite.broker.coordinator.transactional_id import Add, Change, Transaction, Wait
from kafkalite.broker.coordinator.transactional_offset_commits import OffsetCommits, fenced_as_old
from kafkalite.broker.limits.shares import Shares, note_refusal
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.base.clock import Clock
    from kafkalite.base.executors import Executors
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.coordinator.groups import GroupCoordinator
    from kafkalite.broker.coordinator.producer_ids import IdSource
    from kafkalite.broker.coordinator.remote import Remote
    from kafkalite.broker.coordinator.timer_queue import TimerQueue
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.broker.log.assigned import AssignedTopics
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.settings.broker import BrokerConfig

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)

COMPLETE_RETRY_S_MIN: Final = 0.1
COMPLETE_RETRY_S_MAX: Final = 5.0
ABORT_RETRY_S: Final = 1.0
LOADING_LOOK_S: Final = 0.2
"""Interval in seconds for checking for a stop while groups are loaded."""
PRODUCE_ABORTABLE_SINCE: Final = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE."""

_UNEXPECTED_BY_PRODUCERS: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes that producers do not expect from Produce; NOT_ENOUGH_REPLICAS, on which all producers retry, replaces them."""


class EndAnswer:
    """The response to EndTxn: an error code, and in TV2 (KIP-890) the producer's next id and epoch."""

    __slots__ = ("code", "epoch", "producer_id")

    def __init__(self, code: int, producer_id: int = NO_PRODUCER_ID, epoch: int = rules.NO_EPOCH) -> None:
        self.code = int(code)
        self.producer_id = producer_id
        self.epoch = epoch


class TransactionCoordinator:
    """All transactional ids of this broker. Produce also checks transactional writes here."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        pool: IoPool,
        clock: Clock,
        groups: GroupCoordinator,
        producer_ids: IdSource,
        timers: TimerQueue,
        *,
        executors: Executors = THREADS,
    ) -> None:
        self._config = config
        self._logs = logs
        self._pool = pool
        self._clock = clock
        self._groups = groups
        self._timers = timers
        self.producer_ids = producer_ids
        self.log = StateLog(
            TRANSACTIONS_TOPIC,
            logs,
            pool,
            clock,
            partition_count=config.transaction_state_log_num_partitions,
            segment_bytes=config.transaction_state_log_segment_bytes,
            in_sync=True,
        )
        self.markers = MarkerWriter(logs, groups, pool, timers)
        self._unfinished = Troubles(clock)
        self._lock = threading.Lock()
        self._transactions: dict[str, Transaction] = {}  # guarded by _lock
        self._shares = Shares()  # of them; guarded by _lock
        self.shards = Shards(self.log, self, executors)
        self._finishes = False  # whether markers may be written: the groups, whose offsets they decide, are loaded
        self._expiry = timers.timer(self._expire)
        self.offsets = OffsetCommits(self, groups)
        self.remote: Remote | None = None
        """In a cluster: requests to other brokers."""

    # --- start and stop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start loading; transactional ids are served when loading is done."""
        self._schedule_expiry()
        if self.shards.start_empty() and self._groups.shards.wait_loaded(0):
            self._finishes = True
            return
        self.shards.start_loading("kafkalite-transaction-loader", self._load)

    def coordinate_led(self, topics: AssignedTopics, remote: Remote) -> None:
        """Serve the transactional ids in the partitions that this broker leads. Call this once, after start. In a
        cluster only.

        Requests to other brokers are sent by `remote`.
        """
        self.remote = self.markers.remote = remote
        self.shards.coordinate_led(topics)

    def stop(self) -> None:
        """Stop serving, and refuse waiting requests."""
        self._expiry.cancel()
        self.shards.stop()
        for transaction in self.all():
            with transaction.changing():
                self._refuse_waiting_locked(transaction, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def error_of(self, transactional_id: str) -> int:
        """Return the error code if a transactional id cannot be served now, else 0."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.shards.error_of(transactional_id)

    # --- the table ----------------------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the object for a transactional id, or None."""
        return self._transactions.get(transactional_id)

    def lookup(self, transactional_id: str) -> tuple[Transaction | None, int]:
        """Return (the object for a transactional id, or None; the error code if it cannot be served now, else 0)."""

        def ask() -> tuple[Transaction | None, int]:
            code = int(self.error_of(transactional_id))
            return None if code else self.find(transactional_id), code

        return self.log.lookup(transactional_id, ask)

    @property
    def count(self) -> int:
        """The number of transactional ids."""
        return len(self._transactions)

    def all(self) -> list[Transaction]:
        """Return every transactional id, in no particular order."""
        with self._lock:
            return list(self._transactions.values())

    def _find_or_new(self, transactional_id: str, producer_id: int, holder: Holder | None) -> Transaction | None:
        """Return the object for a transactional id, created if it does not exist.

        None if the id is not served, or if transaction.max.ids leaves no room for a new one.
        """
        with self._lock:
            found = self._transactions.get(transactional_id)
            if found is None and self._shares.admits(holder, len(self._transactions), self._config.transaction_max_ids):
                home = self.shards.home_of(transactional_id)
                if home is None or home.epoch != NO_EPOCH:  # else it would hide the id that is about to be loaded
                    found = Transaction(transactional_id, Metadata(producer_id=producer_id), home, holder)
                    self._transactions[transactional_id] = found
                    self._shares.add(holder)
            return found

    def _refuse_id(self, transactional_id: str, holder: Holder | None) -> int:
        """Return the error code for a transactional id that cannot be created now.

        If transaction.max.ids leaves no room, the code is POLICY_VIOLATION. It ends a Java producer at once; librdkafka
        reports it when its initialisation timeout is over.
        """
        code = self.error_of(transactional_id)
        if code:
            return code
        note_refusal(holder, "transaction.max.ids", self._config.transaction_max_ids, self._shares.of(holder))
        return ErrorCode.POLICY_VIOLATION

    def _forget(self, transaction: Transaction) -> None:
        """Remove a transactional id from the table, unless another object has replaced it."""
        with self._lock:
            if self._transactions.get(transaction.transactional_id) is transaction:
                del self._transactions[transaction.transactional_id]
                self._shares.remove(transaction.holder)

    # --- a change -----------------------------------------------------------------------------------------------------

    def _change_locked(self, transaction: Transaction, coming: Metadata, done: Callable[[int], object]) -> None:
        """Make the state `coming` durable; then call done(0), without the lock.

        If it could not be written, call done(code) instead.
        """
        assert transaction.coming is None, "one change of an id at a time"
        transaction.coming = coming

        def stored(code: int) -> None:
            with transaction.changing():
                transaction.coming = None
                if code == 0:
                    transaction.now = coming
                transaction.later_locked(lambda: done(write_error(code)))
                self._settled_locked(transaction)

        record = transaction_record(transaction.transactional_id, None if coming.state is DEAD else coming)
        self.log.write(transaction.transactional_id, [record], stored, home=transaction.home)

    def _settled_locked(self, transaction: Transaction) -> None:
        """Continue with waiting requests and postponed work, after a write of the state has ended."""
        now = transaction.now
        if transaction.dropped:
            self._refuse_waiting_locked(transaction, ErrorCode.NOT_COORDINATOR)
            return
        if now.state not in PREPARED:
            transaction.completing = False
        if now.state is not ONGOING and transaction.timer is not None and transaction.coming is None:
            transaction.timer.cancel()
        if now.state is DEAD:
            transaction.dead = True
            self._forget(transaction)
        elif now.state in PREPARED:
            if self._finishes and not transaction.completing:
                transaction.completing = True
                transaction.later_locked(lambda: self._write_markers(transaction, now))
        elif now.state is ONGOING and self._clock.monotonic() >= transaction.deadline:
            self._abort_locked(transaction)
        self._serve_waiting_locked(transaction)

    # --- requests that wait -------------------------------------------------------------------------------------------

    def _wait_locked(self, transaction: Transaction, wait: Wait, answer: Deferred[Any]) -> None:
        """Serve a request, or let it wait, at most for transaction.completion.wait.max.ms.

        A waiting request is refused if its client disconnects, the broker stops, or another broker becomes the
        coordinator.
        """
        queue: list[Any] = transaction.adds if isinstance(wait, Add) else transaction.changes
        queue.append(wait)
        self._serve_waiting_locked(transaction)
        if not transaction.has_waiting(wait):
            return
        wait_s = self._config.transaction_completion_wait_max_ms / 1000
        wait.deadline = self._clock.monotonic() + wait_s
        answer.abandoned = lambda: self._abandon(transaction, wait)
        if transaction.patience is None:
            transaction.patience = self._timers.timer(lambda: self._give_up(transaction))
        if not transaction.patience.armed:
            transaction.patience.set(wait_s)

    def _serve_waiting_locked(self, transaction: Transaction) -> None:
        """Serve waiting requests like new ones, until one of them starts a write.

        EndTxn and InitProducerId are served first, then all additions of partitions together. So a late EndTxn never
        ends the next transaction, and a new producer fences an older one whose additions still wait.
        """
        waiting, transaction.changes = transaction.changes, []
        for number, change in enumerate(waiting):
            if transaction.coming is not None:
                transaction.changes += waiting[number:]
                break
            if not change.attempt():
                transaction.changes.append(change)
        if transaction.coming is None and transaction.adds:
            self._add_waiting_locked(transaction)
        if transaction.patience is not None and not transaction.waits:
            transaction.patience.cancel()

    @staticmethod
    def _refuse_locked(transaction: Transaction, wait: Wait, code: int) -> None:
        transaction.later_locked(lambda: wait.refuse(int(code)))

    def _refuse_waiting_locked(self, transaction: Transaction, code: int) -> None:
        for wait in transaction.take_waiting(lambda _wait: True):
            self._refuse_locked(transaction, wait, code)
        if transaction.patience is not None:
            transaction.patience.cancel()

    def _give_up(self, transaction: Transaction) -> None:
        """Refuse the requests that have waited for the maximum time."""
        now = self._clock.monotonic()
        with transaction.changing():
            for wait in transaction.take_waiting(lambda wait: wait.deadline <= now):
                self._refuse_locked(transaction, wait, ErrorCode.CONCURRENT_TRANSACTIONS)
            if transaction.waits and transaction.patience is not None:
                first = min(wait.deadline for wait in (*transaction.changes, *transaction.adds))
                transaction.patience.set(first - now)

    def _abandon(self, transaction: Transaction, gone: Wait) -> None:
        """Drop a waiting request, without any effect, because its client has disconnected.

        In TV1 a late request has the same epoch as a request of the next transaction. A client that repeats a request
        on another connection has closed the first connection, so the first request must not take effect later.
        """
        with transaction.changing():
            for wait in transaction.take_waiting(lambda wait: wait is gone):
                self._refuse_locked(transaction, wait, ErrorCode.CONCURRENT_TRANSACTIONS)

    # --- InitProducerId -----------------------------------------------------------------------------------------------

    def initialise(
        self, transactional_id: str, timeout_ms: int, asked: tuple[int, int] | None, holder: Holder | None = None
    ) -> Deferred[tuple[int, int, int]]:
        """Handle InitProducerId; the result is (error code, producer id, epoch).

        A call may wait for the disk to get a producer id. A new transactional id is charged to `holder`.
        """
        code = self.error_of(transactional_id)
        if not code and not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        if code:
            return completed((code, NO_PRODUCER_ID, rules.NO_EPOCH))
        answer: Deferred[tuple[int, int, int]] = Deferred()
        while True:
            transaction = self.find(transactional_id)
            try:
                needs_id = transaction is None or transaction.now.exhausted
                spare_id = self.producer_ids.next() if needs_id else NO_PRODUCER_ID
            except KafkaError as error:
                return completed((int(error.code), NO_PRODUCER_ID, rules.NO_EPOCH))
            transaction = transaction or self._find_or_new(transactional_id, spare_id, holder)
            if transaction is None:
                return completed((self._refuse_id(transactional_id, holder), NO_PRODUCER_ID, rules.NO_EPOCH))
            with transaction.changing():
                if transaction.dead or (transaction.now.exhausted and not needs_id):
                    continue
                self._wait_to_initialise_locked(transaction, timeout_ms, asked, spare_id, answer)
            return answer

    def _wait_to_initialise_locked(
        self,
        transaction: Transaction,
        timeout_ms: int,
        asked: tuple[int, int] | None,
        spare_id: int,
        answer: Deferred[tuple[int, int, int]],
    ) -> None:
        def refuse(code: int) -> None:
            answer.complete((code, NO_PRODUCER_ID, rules.NO_EPOCH))

        def attempt() -> bool:
            return self._initialise_locked(transaction, timeout_ms, asked, spare_id, answer)

        self._wait_locked(transaction, Change(attempt, refuse), answer)

    def _initialise_locked(
        self,
        transaction: Transaction,
        timeout_ms: int,
        asked: tuple[int, int] | None,
        spare_id: int,
        answer: Deferred[tuple[int, int, int]],
    ) -> bool:
        """Serve an InitProducerId; return False if it has to wait (see `Change.attempt`)."""
        waits = False
        if transaction.dropped:
            outcome = Outcome(ErrorCode.NOT_COORDINATOR)
        elif transaction.dead or (transaction.now.exhausted and spare_id == NO_PRODUCER_ID):
            outcome = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)  # it waited; a retry gets a spare producer id
        else:
            outcome = rules.initialise(transaction.now, asked, timeout_ms, self._clock.time_ms(), spare_id)
            waits = outcome.code == ErrorCode.CONCURRENT_TRANSACTIONS and outcome.next is None
        if outcome.next is None:
            if not waits:
                transaction.later_locked(lambda: answer.complete((outcome.code, NO_PRODUCER_ID, rules.NO_EPOCH)))
            return not waits
        coming = outcome.next

        def done(code: int) -> None:
            code = code or outcome.code
            given = (NO_PRODUCER_ID, rules.NO_EPOCH) if code else (coming.producer_id, coming.epoch)
            answer.complete((code, *given))

        if outcome.code:
            repeats.info("aborting the open transaction of an earlier producer", extra=_fields(transaction))
        self._change_locked(transaction, coming, done)
        return True

    # --- adding partitions --------------------------------------------------------------------------------------------

    def add(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: frozenset[TopicPartition], version: int
    ) -> Deferred[int]:
        """Add partitions to a transaction; the first partitions begin it.

        The Deferred gets 0 when the addition is durable, or an error code.
        """
        transaction, code = self.lookup(transactional_id)
        if transaction is None:
            return completed(code or int(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        answer: Deferred[int] = Deferred()
        with transaction.changing():
            if transaction.dropped:
                return completed(int(ErrorCode.NOT_COORDINATOR))
            self._wait_locked(transaction, Add(producer_id, epoch, partitions, version, answer), answer)
        return answer

    def _add_waiting_locked(self, transaction: Transaction) -> None:
        """Check all waiting additions of partitions, and write all accepted ones together."""
        waiting, transaction.adds = transaction.adds, []
        time_ms = self._clock.time_ms()
        coming = None
        added = []
        for add in waiting:
            now = coming or transaction.now
            outcome = (
                Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                if transaction.dead
                else rules.add(
                    now,
                    add.producer_id,
                    add.epoch,
                    add.partitions,
                    add.version,
                    time_ms,
                    self._config.transaction_max_partitions,
                )
            )
            if outcome.next is not None:
                coming = outcome.next
                added.append(add)
            elif outcome.code == 0 and coming is not None:
                added.append(add)  # its partitions are among those that are about to be added
            elif outcome.code == ErrorCode.CONCURRENT_TRANSACTIONS:
                transaction.adds.append(add)
            else:
                self._refuse_locked(transaction, add, outcome.code)
        if coming is not None:
            if transaction.now.state is not ONGOING:
                self._set_deadline_locked(transaction, coming.timeout_ms / 1000)
            self._change_locked(transaction, coming, lambda code: _complete_all(added, code))

    def admit(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        produce_version: int,
    ) -> int | Deferred[int]:
        """Return 0 if a producer may write to a partition in its transaction, else the error code for Produce.

        Up to Produce 11, the partition must be in the transaction already. From Produce 12 on, this call adds it. Never
        blocks: a result that has to wait is a Deferred.
        """
        if transactional_id is None:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        where = TopicPartition(topic, partition)
        abortable = produce_version >= PRODUCE_ABORTABLE_SINCE
        if self.remote is not None and self.error_of(transactional_id) == ErrorCode.NOT_COORDINATOR:
            ask = Ask(transactional_id, producer_id, producer_epoch, where, produce_version < ADMITS_FROM, abortable)
            code_of = _verified_code if ask.only_verify else _produce_v2_code
            return self.remote.ask(ask).map(code_of)
        if produce_version < ADMITS_FROM:
            code = self.verify(transactional_id, producer_id, producer_epoch, where, abortable=abortable)
            return _verified_code(code)
        answer = self.add(transactional_id, producer_id, producer_epoch, frozenset((where,)), TV2)
        return _produce_v2_code(answer.response) if answer.done else answer.map(_produce_v2_code)

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition, *, abortable: bool
    ) -> int:
        """Return 0 if a partition is in the producer's open transaction, else an error code."""
        transaction, code = self.lookup(transactional_id)
        if transaction is not None:
            code = rules.verify(transaction.now, producer_id, epoch, partition)
        elif not code:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if code == ErrorCode.TRANSACTION_ABORTABLE and not abortable:
            return int(ErrorCode.INVALID_TXN_STATE)
        return int(code)

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, version: int
    ) -> Deferred[EndAnswer]:
        """Handle EndTxn. The response waits until the outcome (Prepare) is durable; the markers are written
        afterwards.
        """
        transaction, code = self.lookup(transactional_id)
        if transaction is None:
            return completed(EndAnswer(code or ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        answer: Deferred[EndAnswer] = Deferred()

        def attempt(spare_id: int | None) -> None:
            def judge() -> bool:
                return self._end_locked(transaction, producer_id, epoch, commit, version, spare_id, answer)

            with transaction.changing():
                wait = Change(judge, lambda code: answer.complete(EndAnswer(code)))
                self._wait_locked(transaction, wait, answer)

        if transaction.now.exhausted and version >= TV2:
            self._with_spare_id(attempt, lambda code: answer.complete(EndAnswer(code)))
        else:
            attempt(None)
        return answer

    def _end_locked(
        self,
        transaction: Transaction,
        producer_id: int,
        epoch: int,
        commit: bool,
        version: int,
        spare_id: int | None,
        answer: Deferred[EndAnswer],
    ) -> bool:
        """Serve an EndTxn; return False if it has to wait (see `Change.attempt`)."""
        now = transaction.now
        waits = False
        if transaction.dropped:
            outcome = Outcome(ErrorCode.NOT_COORDINATOR)
        elif transaction.dead:
            outcome = Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif now.exhausted and version >= TV2 and spare_id is None:
            outcome = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)  # it waited; a retry gets a spare producer id
        else:
            outcome = rules.end(
                now,
                producer_id,
                epoch,
                commit=commit,
                client_version=version,
                time_ms=self._clock.time_ms(),
                spare_id=NO_PRODUCER_ID if spare_id is None else spare_id,
            )
            waits = outcome.code == ErrorCode.CONCURRENT_TRANSACTIONS
        if waits:
            return False
        if outcome.next is None:
            result = EndAnswer(outcome.code) if outcome.code else EndAnswer(0, now.producer_id, now.epoch)
            transaction.later_locked(lambda: answer.complete(result))
            return True
        after = rules.complete(outcome.next, now.update_ms)

        def done(code: int) -> None:
            answer.complete(EndAnswer(code) if code else EndAnswer(0, after.producer_id, after.epoch))

        self._change_locked(transaction, outcome.next, done)
        return True

    def _with_spare_id(self, action: Callable[[int], object], failed: Callable[[int], object]) -> None:
        """Call `action` with a new producer id: at once if one is available, else later on the I/O pool."""
        spare_id = self.producer_ids.take()
        if spare_id is not None:
            action(spare_id)
            return

        def fetch() -> None:
            try:
                found = self.producer_ids.next()
            except KafkaError as error:
                failed(write_error(int(error.code)))
                return
            action(found)

        try:
            self._pool.submit(fetch)
        except RuntimeError:  # the broker stops
            failed(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # --- markers ------------------------------------------------------------------------------------------------------

    def _write_markers(self, transaction: Transaction, prepared: Metadata) -> None:
        mark = RemoteMarker(
            prepared.producer_id,
            prepared.epoch,
            self._coordinator_epoch(transaction),
            prepared.commits,
            prepared.client_version,
        )
        self.markers.write(mark, prepared.partitions, lambda: self._complete(transaction, COMPLETE_RETRY_S_MIN))

    def _complete(self, transaction: Transaction, retry_s: float) -> None:
        """Write Complete, when all markers are durable. After a failure, try again, since no client would."""
        name = transaction.transactional_id

        def done(code: int) -> None:
            if not code:
                if self._unfinished.over(name) is not None:
                    repeats.warning(
                        "a transaction's completion could be written after retries", extra=_fields(transaction)
                    )
            elif not self.shards.stopped:
                if self._unfinished.failed(name) is not None:
                    repeats.warning(
                        "could not write the completion of a transaction; retrying", extra=_fields(transaction)
                    )
                again = min(retry_s * 2, COMPLETE_RETRY_S_MAX)
                self._timers.timer(lambda: self._complete(transaction, again)).set(retry_s)

        with transaction.changing():
            if transaction.now.state not in PREPARED or transaction.dropped:
                self._unfinished.over(name)
                return
            coming = rules.complete(transaction.now, self._clock.time_ms())
            self._change_locked(transaction, coming, done)

    def _coordinator_epoch(self, transaction: Transaction) -> int:
        """Return the coordinator epoch for markers.

        On a standalone broker it rises with every unclean start, so that markers from before that start count as older.
        """
        if transaction.home is not None:
            return transaction.home.epoch
        partitions = self.log.partitions
        return partitions[self.log.partition_of(transaction.transactional_id)].leader_epoch if partitions else 0

    # --- timeouts -----------------------------------------------------------------------------------------------------

    def _set_deadline_locked(self, transaction: Transaction, delay_s: float) -> None:
        """Start the timeout of an open transaction."""
        if transaction.timer is None:
            transaction.timer = self._timers.timer(lambda: self._time_is_up(transaction), awaits_client=True)
        transaction.deadline = self._clock.monotonic() + delay_s
        transaction.timer.set(delay_s)

    def _time_is_up(self, transaction: Transaction) -> None:
        with transaction.changing():
            overdue = self._clock.monotonic() >= transaction.deadline
            if overdue and self._may_abort_locked(transaction):
                self._abort_locked(transaction)

    def _may_abort_locked(self, transaction: Transaction) -> bool:
        ours = not self.shards.stopped and not transaction.dropped
        return ours and transaction.now.state is ONGOING and transaction.coming is None

    def _abort_locked(self, transaction: Transaction) -> None:
        """Abort a transaction that has timed out."""
        now = transaction.now
        if now.exhausted and now.client_version >= TV2:
            transaction.later_locked(
                lambda: self._with_spare_id(
                    lambda spare_id: self._abort_with(transaction, spare_id),
                    lambda _code: self._abort_later(transaction),
                )
            )
        else:
            self._fence_locked(transaction, NO_PRODUCER_ID)

    def _abort_with(self, transaction: Transaction, spare_id: int) -> None:
        with transaction.changing():
            if self._may_abort_locked(transaction):
                self._fence_locked(transaction, spare_id)

    def _fence_locked(self, transaction: Transaction, spare_id: int) -> None:
        repeats.info("aborting a transaction that exceeded its timeout", extra=_fields(transaction))

        def done(code: int) -> None:
            if code:
                self._abort_later(transaction)

        self._change_locked(transaction, rules.fence(transaction.now, self._clock.time_ms(), spare_id), done)

    def _abort_later(self, transaction: Transaction) -> None:
        """Retry an abort that could not be written, unless the transaction ends before that."""
        with transaction.changing():
            if not self.shards.stopped and not transaction.dropped:
                self._set_deadline_locked(transaction, ABORT_RETRY_S)

    # --- expiry -------------------------------------------------------------------------------------------------------

    def _schedule_expiry(self) -> None:
        self._expiry.set(self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000)

    def _expire(self) -> None:
        if self.shards.stopped:
            return
        if self.shards.loaded.is_set():
            self.expire_now()
        self._schedule_expiry()

    def expire_now(self) -> int:
        """Delete transactional ids that were unused for transactional.id.expiration.ms; return their number."""
        oldest_ms = self._logs.expiry_time.time_ms() - self._config.transactional_id_expiration_ms
        count = 0
        for transaction in self.all():
            with transaction.changing():
                now = transaction.now
                idle = now.state is EMPTY or now.state in COMPLETE
                if idle and now.update_ms <= oldest_ms and transaction.coming is None and not transaction.waits:
                    self._change_locked(transaction, replace(now, state=DEAD), lambda _code: None)
                    count += 1
        return count

    # --- loading ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        began = self._clock.monotonic()
        if not self.shards.loaded.is_set():
            if not self.shards.load_all(_tell_unreadable):
                return
            self.shards.loaded.set()
        while not self._groups.shards.wait_loaded(LOADING_LOOK_S):
            if self.shards.stopped:
                return
        prepared = 0
        self._finishes = True
        for transaction in self.all():
            with transaction.changing():
                prepared += transaction.now.state in PREPARED
                if transaction.coming is None:
                    self._settled_locked(transaction)
        logger.info(
            "transactions loaded",
            extra=fields(
                ids=len(self._transactions), finishing=prepared, seconds=round(self._clock.monotonic() - began, 3)
            ),
        )

    def read_log(self, log: PartitionLog, home: ShardEpoch | None) -> Callable[[], object]:
        """Replay a partition of `__transaction_state`; return a function that puts its ids into the table. May
        block.
        """
        found = self._read(log)
        return lambda: self._install(found, home)

    def begin_partition(self, number: int) -> None:
        """Continue the transactions of a partition whose ids were just loaded. In a cluster only."""
        for transaction in self._of_partition(number):
            with transaction.changing():
                if transaction.coming is None:
                    self._settled_locked(transaction)

    def drop_partition(self, number: int) -> None:
        """Forget the transactional ids of a partition, and refuse their waiting requests. In a cluster only."""
        for transaction in self._of_partition(number):
            self._forget(transaction)
            with transaction.changing():
                transaction.dropped = True
                if transaction.timer is not None:
                    transaction.timer.cancel()
                self._refuse_waiting_locked(transaction, ErrorCode.NOT_COORDINATOR)

    def _of_partition(self, number: int) -> list[Transaction]:
        return [each for each in self.all() if each.home is not None and each.home.partition == number]

    def _read(self, log: PartitionLog) -> dict[str, Metadata]:
        """Replay the records of a partition; return its transactional ids."""
        found: dict[str, Metadata] = {}
        for entry in self.log.entries(log):
            if self.shards.stopped:
                return {}
            if isinstance(entry, Marker):
                continue
            try:
                transactional_id = read_key(entry.key)
                if entry.value is None:
                    found.pop(transactional_id, None)
                else:
                    found[transactional_id] = read_value(entry.value)
            except CodecError as error:
                raise ValueError(f"{log.name} has an invalid transaction record: {error}") from error
        return found

    def _install(self, found: Mapping[str, Metadata], home: ShardEpoch | None) -> None:
        """Add transactional ids to the table, after their whole partition was read.

        The remaining time of an open transaction is computed with the trusted clock, and is at most its timeout.
        """
        time_ms = self._logs.expiry_time.time_ms()
        for transactional_id, metadata in found.items():
            transaction = Transaction(transactional_id, metadata, home)
            if metadata.state is ONGOING:
                left_ms = metadata.start_ms + metadata.timeout_ms - time_ms
                with transaction.changing():
                    self._set_deadline_locked(transaction, min(max(left_ms, 0), metadata.timeout_ms) / 1000)
            with self._lock:
                early = self._transactions.get(transactional_id)
                self._transactions[transactional_id] = transaction
                if early is not None:
                    self._shares.remove(early.holder)


def _tell_unreadable(number: int, error: Exception) -> None:
    logger.error(
        "could not load transactions; they are unavailable until the broker restarts",
        exc_info=error,
        extra=fields(partition=number),
    )


def _complete_all(added: list[Add], code: int) -> None:
    for add in added:
        add.refuse(code)


def _verified_code(code: int) -> int:
    return int(ErrorCode.NOT_ENOUGH_REPLICAS) if code in _UNEXPECTED_BY_PRODUCERS else fenced_as_old(code)


def _produce_v2_code(code: int) -> int:
    """Return the error code for Produce 12 and later. Clients of these versions know CONCURRENT_TRANSACTIONS."""
    if code in _UNEXPECTED_BY_PRODUCERS and code != ErrorCode.CONCURRENT_TRANSACTIONS:
        return int(ErrorCode.NOT_ENOUGH_REPLICAS)
    return fenced_as_old(code)


def _fields(transaction: Transaction) -> Mapping[str, Any]:
    now = transaction.now
    return fields(
        transactional_id=transaction.transactional_id,
        producer_id=now.producer_id,
        epoch=now.epoch,
        state=now.state.label,
    )

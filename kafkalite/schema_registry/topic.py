"""Read, follow and write the registry's topic, so that several registries can share it without a leader.

All registries use the same transactional id, so only one of them can write at a time: the one that has the turn. A
write has these steps:

    1. take the turn   unless this registry has it: send InitProducerId, which fences the previous writer and ends its
                       open transaction
    2. catch up        wait until the follower thread has read the topic to its end
    3. decide          compute the records from the state, which now includes all acknowledged writes
    4. commit          write the records in one transaction (acks=all)
    5. acknowledge     when the follower has read the records

If another registry takes the turn before step 4, the broker rejects the commit, and the write starts again at step 1.
So no id or version is assigned twice.

Thread rule: any thread may call `write`, `refresh` and `read`. Only the follower thread changes the state. Lock order:
the write lock or the refresh lock, then the state's lock.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Self, TypeVar

from kafkalite.base.logging import fields
from kafkalite.client import READ_COMMITTED, Client, ClientError, TransactionAborted
from kafkalite.client.errors import LogTruncated
from kafkalite.client.read.marks import UNMARKED
from kafkalite.errors import ErrorCode, InvalidTxnState, KafkaError, OffsetOutOfRange, ProducerFenced, StartupError
from kafkalite.model import TopicPartition
from kafkalite.schema_registry import errors
from kafkalite.schema_registry.records import RecordError, read
from kafkalite.schema_registry.state import RegistryState
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.client import Chunk, Producer, Reader
    from kafkalite.schema_registry.records import TopicRecord

T = TypeVar("T")

logger = logging.getLogger(__name__)

TOPIC: Final = "_schemas"
POLL_S: Final = 0.5
RETRY_PAUSE_S: Final = 1.0
TURN_COUNT_MAX: Final = 100
"""A write fails after it lost the turn to other registries this many times."""
TURN_LOST: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Error codes that a fenced writer gets."""
TRANSACTION_TIMEOUT_S: Final = 10.0
"""The timeout of a transaction whose registry died; another registry's write ends it earlier."""


class TopicStore:
    """The topic of a schema registry, as a Store. Call `start` before use, and `close` at the end.

    `timeout_s` is how long a request waits for the broker, and then for the follower to read the request's own write.
    """

    def __init__(self, client: Client, topic: str = TOPIC, *, timeout_s: float = 15.0) -> None:
        self._topic = topic
        self._key = TopicPartition(topic, 0)
        self._timeout_s = timeout_s
        self._admin_client = client
        self._follow_client = client.twin()
        self._write_client = client.twin()
        self._write_client.retry_timeout_s = timeout_s
        self._refresh_client = client.twin()
        self._refresh_client.retry_timeout_s = timeout_s
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)
        self._state = RegistryState()
        self._position = 0
        self._mark = UNMARKED
        self._write_lock = threading.Lock()
        self._refresh_lock = threading.Lock()
        self._producer: Producer | None = None
        self._own_end = 0
        """The end offset of this registry's last write. The follower must reach it before the next decision."""
        self._stopping = threading.Event()
        self.failed = threading.Event()
        """Set when the topic cannot be followed any more: the state may be wrong."""
        self.followed_at = time.monotonic()
        """The time of the last successful read, by time.monotonic()."""
        self.follow_error = ""
        """Why the topic cannot be read now, "" if it can."""
        self._follower = threading.Thread(target=self._follow, name="schemas-follower", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self, timeout_s: float = 60.0) -> None:
        """Create the topic if it does not exist, and read it to its end. StartupError, KafkaError or ClientError."""
        self._make_topic()
        end = self._admin_client.end_offset(self._topic, 0, isolation=READ_COMMITTED)
        self._position = self._admin_client.start_offset(self._topic, 0)
        self._follower.start()
        if not self._await(end, timeout_s):
            self.close()
            raise StartupError(f"cannot read the topic {self._topic} to its end, offset {end}, within {timeout_s:g} s")
        logger.info("schemas read", extra=fields(topic=self._topic, offset=end, subjects=len(self._state.subjects)))

    def close(self) -> None:
        """Stop following the topic, after a write in progress has ended. Idempotent."""
        self._stopping.set()
        if self._follower.ident is not None:
            self._follower.join()
        with self._write_lock:
            self._drop_producer()
            self._write_client.close()
        with self._refresh_lock:
            self._refresh_client.close()

    # --- the store ----------------------------------------------------------------------------------------------------

    def read(self, look: Callable[[RegistryState], T]) -> T:
        """Return `look(state)`. It runs under the state's lock, so it must be fast and must not change the state."""
        with self._lock:
            return look(self._state)

    @property
    def position(self) -> int:
        """The offset up to which the follower has read the topic."""
        return self._position

    def refresh(self) -> None:
        """Wait until the state includes all writes that were acknowledged before this call.

        RegistryError after the timeout.
        """
        with self._refresh_lock:
            try:
                end = self._refresh_client.end_offset(self._topic, 0, isolation=READ_COMMITTED)
            except (KafkaError, ClientError) as error:
                raise errors.store_failed(str(error)) from error
        if not self._await(end, self._timeout_s):
            raise errors.timed_out(f"cannot read the topic {self._topic} up to offset {end} in time")

    def write(self, decide: Callable[[RegistryState], tuple[Sequence[TopicRecord], T]]) -> T:
        """Call `decide(state)`, write all of the records that it returns or none, and return its result. RegistryError.

        After error 50001 or 50002, the records may have been written. The client then repeats the request, or looks the
        result up.
        """
        with self._write_lock:
            for _ in range(TURN_COUNT_MAX):
                try:
                    producer = self._take_turn()
                    if not self._await(self._own_end, self._timeout_s):
                        raise errors.timed_out(
                            f"cannot read the topic {self._topic} up to offset {self._own_end} in time"
                        )
                    records, result = self.read(decide)
                    if records:
                        self._commit(producer, records)
                except (ProducerFenced, InvalidTxnState, TransactionAborted) as error:
                    # Another registry took the turn and ended the transaction. If it was committed after all, the next
                    # decision sees it.
                    self._drop_producer()
                    if not lost_the_turn(error):
                        raise errors.store_failed(str(error)) from error
                    continue
                except (KafkaError, ClientError) as error:
                    self._drop_producer()
                    raise errors.store_failed(str(error)) from error
                if not self._await(self._own_end, self._timeout_s):
                    raise errors.timed_out("the record was written but not read back in time")
                return result
        raise errors.timed_out(f"other registries wrote first {TURN_COUNT_MAX} times; try again")

    # --- writing ------------------------------------------------------------------------------------------------------

    def _take_turn(self) -> Producer:
        """Return the producer that has the turn, taking the turn if necessary.

        The follower must then read up to `_own_end` before the next decision.
        """
        if self._producer is None:
            producer = self._write_client.producer(
                transactional_id=f"kafkalite-registry-{self._topic}",
                transaction_timeout_s=TRANSACTION_TIMEOUT_S,
                delivery_timeout_s=self._timeout_s,
            )
            producer.init_transactions()
            self._producer = producer
            self._own_end = self._write_client.end_offset(self._topic, 0, isolation=READ_COMMITTED)
        return self._producer

    def _commit(self, producer: Producer, records: Sequence[TopicRecord]) -> None:
        now = int(time.time() * 1000)
        producer.begin_transaction()
        producer.send(self._topic, 0, [Record(-1, now, record.key, record.value) for record in records])
        producer.commit_transaction()
        self._own_end = producer.delivery(self._topic, 0).end_offset

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    # --- following ----------------------------------------------------------------------------------------------------

    def _await(self, offset: int, timeout_s: float) -> bool:
        """Wait until the follower has read up to an offset. Return whether it has."""
        with self._moved:
            self._moved.wait_for(lambda: self._position >= offset or self._stopping.is_set(), timeout_s)
            return self._position >= offset

    def _follow(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._follow_once()
                except (OffsetOutOfRange, LogTruncated):
                    logger.exception(
                        "the topic was restored or truncated below the offset already read; restart the registry "
                        "to read all of it",
                        extra=fields(topic=self._topic),
                    )
                    self.failed.set()
                    return
                except (KafkaError, ClientError) as error:
                    logger.warning("cannot follow the topic, retrying", extra=fields(error=str(error)))
                    self.follow_error = str(error)
                    self._stopping.wait(RETRY_PAUSE_S)
        except BaseException:
            self.failed.set()
            raise
        finally:
            self._follow_client.close()

    def _follow_once(self) -> None:
        with self._follow_client.reader(
            {self._key: self._position}, marks={self._key: self._mark}, isolation=READ_COMMITTED
        ) as reader:
            while not self._stopping.is_set():
                self._take(reader, reader.poll(POLL_S))
                failure = reader.failing
                self.follow_error = "" if failure is None else str(failure)
                if failure is None:
                    self.followed_at = time.monotonic()

    def _take(self, reader: Reader, chunks: Sequence[Chunk]) -> None:
        changes = []
        for chunk in chunks:
            for record in chunk.records():
                try:
                    changes.append((record.offset, read(record.key, record.value)))
                except RecordError as error:
                    logger.warning("skipped a record", extra=fields(offset=record.offset, reason=str(error)))
        with self._moved:
            for offset, change in changes:
                if not self._state.apply(change):
                    logger.error(
                        "skipped a record that gives an existing id to another schema", extra=fields(offset=offset)
                    )
            self._position = reader.position(self._key)
            self._mark = reader.mark(self._key)
            self._moved.notify_all()

    # --- the topic ----------------------------------------------------------------------------------------------------

    def _make_topic(self) -> None:
        """Create the topic with one partition and compaction. StartupError if it exists with other properties."""
        try:
            topic = self._admin_client.topic(self._topic)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self._create_topic()
            return
        if len(topic.partitions) != 1:
            raise StartupError(
                f"the topic {self._topic} has {len(topic.partitions)} partitions; the registry's topic must have one"
            )
        (policy,) = self._admin_client.admin.describe_topic_configs(self._topic, ["cleanup.policy"])
        if policy.value != "compact":
            raise StartupError(
                f"the topic {self._topic} has cleanup.policy={policy.value}, which would delete schemas; run: "
                f"kafkalite configs alter topic {self._topic} --set cleanup.policy=compact"
            )

    def _create_topic(self) -> None:
        try:
            self._admin_client.admin.create_topic(self._topic, 1, configs={"cleanup.policy": "compact"})
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another registry created it first
                raise


def lost_the_turn(error: BaseException | None) -> bool:
    """Return whether a transaction failed because another registry took the turn."""
    while error is not None:
        if isinstance(error, KafkaError) and error.code in TURN_LOST:
            return True
        error = error.__cause__
    return False

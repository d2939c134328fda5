"""Copy the records of topics from one cluster to another, exactly once. Only the offsets of records change.

    fetch      a response of a source broker, with the batches of several partitions
    send       each batch unchanged, except for producer and CRC, if possible
               record by record: small, cut or compacted batches, old formats, and LogAppendTime
    progress   the next source offsets to copy
    commit     records, progress and (for group offsets) the offset map together, in one transaction in the target

The source is read with read_committed. Aborted records and transaction markers are not copied.

If a mirror is killed, the next mirror with the same name aborts the open transaction. It continues at the stored
progress.

Thread rule: one thread at a time. Any thread may use `lags`, `failing` and `last_success`, and set the Event `stop`.
"""

from __future__ import annotations

import math
import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kafkalite._native.wire.batch import CODEC_MASK, TRANSACTIONAL, BatchError, crc_matches
from kafkalite.base.dataclass import dataclass
from kafkalite.client import READ_COMMITTED, DeliveryFailed, Reader, TransactionAborted
from kafkalite.client.errors import UNREACHED, LogTruncated
from kafkalite.client.history import find_divergences, leader_epochs
from kafkalite.client.read.marks import Mark, Position
from kafkalite.client.read.reader import FETCH_SIZE
from kafkalite.client.write.producer import TRANSACTION_TIMEOUT_S
from kafkalite.client.write.transactions import FINAL
from kafkalite.errors import ErrorCode, KafkaError, OffsetOutOfRange, error_for
from kafkalite.mirror.offsets import OffsetMap, OffsetUnknown
from kafkalite.mirror.progress import PREFIX, WHOLE_TOPIC, CopiedUpTo, Origin, Progress
from kafkalite.mirror.states import TopicFailed, TopicStates
from kafkalite.mirror.sync import Synchroniser, SyncOptions
from kafkalite.mirror.topics import CONFIG_EXCLUDE, OWN_PREFIXES, TargetTopics, TopicFilter
from kafkalite.mirror.upstream import MirrorLoop, Upstream
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, ZERO_UUID, TopicPartition, topic_name_error
from kafkalite.wire.record.batches import BatchReader, next_whole
from kafkalite.wire.record.compression import CompressionError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kafkalite._native.wire.aborted_filter import AbortedFilter
    from kafkalite._native.wire.batch import BatchInfo
    from kafkalite.client import Client, Producer, TopicDescription
    from kafkalite.client.read.reader import ReadPosition

COMMIT_INTERVAL_S: Final = 1.0
COMMIT_SIZE: Final = 64 * 1024 * 1024
"""Bytes fetched for a transaction, or a little more."""
REFRESH_S: Final = 30.0
"""Interval of the checks for new topics and partitions."""
GIVE_UP_S: Final = 300.0
"""How long transactions may fail in a row, counted from the first failure."""
STOP: Final = "stop"
REWIND: Final = "rewind"
RESTART: Final = "restart"
ON_DATA_LOSS: Final = (STOP, REWIND, RESTART)
RETRY_PAUSE_S: Final = 0.5
"""Pause after a failed transaction; it doubles each time."""
RETRY_PAUSE_S_MAX: Final = 10.0
REFUSAL_TIMEOUT_S: Final = 5.0
"""How long the target may refuse a batch with a retriable error before its topic is left behind."""
TRIES_AT_END: Final = 3
"""How often a run to the end tries a refused topic."""
POLL_S: Final = 0.2
MAX_WAIT_MS: Final = 100
PASS_SIZE_MIN: Final = 16 * 1024
"""Smaller batches are merged: a request for each would cost more than re-encoding their records."""
MERGE_SIZE: Final = 1024 * 1024
MERGE_COUNT: Final = 50_000
PLAIN_ATTRIBUTES: Final = CODEC_MASK | TRANSACTIONAL
"""Codec and transactional bit: a batch with other attributes cannot be sent unchanged."""


class Fetched(NamedTuple):
    """The batches of one partition in a response, valid until the next response of its leader."""

    partition: TopicPartition
    records: memoryview
    offset: int
    next_offset: int
    aborted: AbortedFilter | None


class FetchedReader(Reader):
    """A Reader that returns fetched batches undecoded."""

    def fetched(self, timeout_s: float) -> Iterator[Fetched]:
        """Yield the fetched batches, as `answers` does."""
        return cast("Iterator[Fetched]", self.answers(timeout_s))

    def _decode(self, position: ReadPosition, offset: int, row: Any) -> Iterator[Any]:
        yield Fetched(position.key, memoryview(row.records), offset, position.offset, self._aborted(row))


@dataclass(slots=True)
class Copied:
    """The topics, records and transactions that a mirror has copied, and its messages for the operator."""

    topics: set[str] = field(default_factory=set)
    """The topics being mirrored, with or without records."""
    skipped: set[str] = field(default_factory=set)
    """Topics that are copies of the target's topics, made by another mirror with a prefix."""
    records: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of batches in the source."""
    transactions: int = 0
    notes: list[str] = field(default_factory=list)
    """Messages for the operator: missing ranges, recreated topics."""

    @property
    def record_count(self) -> int:
        return sum(self.records.values())

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


class Copier:
    """Sends fetched batches to a producer: unchanged if possible, otherwise record by record."""

    def __init__(self, producer: Producer, offsets: OffsetMap | None, named: Callable[[str], str]) -> None:
        """`offsets` stores the offsets of sent records in the source and in the target.

        `named` returns the target's name of a topic.
        """
        self._producer = producer
        self._named = named
        self._offsets = offsets
        self._batches = BatchReader()
        self.mark = Mark()
        """The mark of the last copied batch."""
        self.passed = 0
        """Number of batches sent unchanged."""

    def close(self) -> None:
        self._batches.close()

    def copy(self, fetched: Fetched) -> int:
        """Send the records of a response and return their number. Raises CorruptMessage for a damaged batch."""
        try:
            return self._copy(fetched)
        except (BatchError, CompressionError) as error:
            self._batches.take()
            text = f"{fetched.partition}: cannot read the batch at offset {self._batches.damaged_at}: {error}"
            raise error_for(ErrorCode.CORRUPT_MESSAGE, text) from error

    def _copy(self, fetched: Fetched) -> int:
        key, view, aborted, end = fetched.partition, fetched.records, fetched.aborted, fetched.next_offset
        offset, position, codec, count = fetched.offset, 0, 0, 0
        self.mark = Mark()
        while offset < end:
            info = next_of_today(view, position)
            if info is None:
                while offset < end:
                    following = self._batches.read(
                        view[position:], offset, end, aborted, count_max=MERGE_COUNT, size_max=MERGE_SIZE
                    )
                    assert following > offset, "headers promised records that are not there"
                    offset = following
                    count += self._send_collected(key, codec)
                self.mark = Mark()
                break
            self.mark = Mark(info.leader_epoch, info.base_offset, info.crc)
            batch = view[position : position + info.size]
            position += info.size
            if info.last_offset < offset:
                continue
            if may_pass(info, offset, end) and not (aborted is not None and aborted.drops_batch(info)):
                if not crc_matches(batch):
                    raise error_for(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"{key}: the batch at offset {info.base_offset} is corrupt (CRC mismatch)",
                    )
                count += self._send_collected(key, codec)
                if self._offsets is not None:
                    self._offsets.sent_run(key, info.base_offset, info.record_count)
                count += self._producer.send_batch(self._named(key.topic), key.partition, batch)
                self.passed += 1
            else:
                if info.codec != codec and self._batches.count:
                    count += self._send_collected(key, codec)
                codec = info.codec
                self._batches.read(batch, offset, end, aborted)
                if self._batches.size >= MERGE_SIZE or self._batches.count >= MERGE_COUNT:
                    count += self._send_collected(key, codec)
            offset = min(info.last_offset + 1, end)
        return count + self._send_collected(key, codec)

    def _send_collected(self, key: TopicPartition, codec: int) -> int:
        columns = self._batches.take()
        if len(columns):
            if self._offsets is not None:
                self._offsets.sent_offsets(key, columns.offsets)
            self._producer.send(self._named(key.topic), key.partition, columns, codec=codec)
        return len(columns)


def next_of_today(view: memoryview, position: int) -> BatchInfo | None:
    """Return the header of the batch at `position`. Return None for a message of magic 0 or 1 or an invalid header."""
    try:
        return next_whole(view, position)
    except BatchError:
        return None  # a reader decodes it, or reports what is wrong


def may_pass(info: BatchInfo, offset: int, end: int) -> bool:
    """Return whether a batch can be sent unchanged, and is large enough to be sent alone."""
    return (
        info.base_offset >= offset
        and info.last_offset < end
        and info.size >= PASS_SIZE_MIN
        and not info.attributes & ~PLAIN_ATTRIBUTES
        and info.record_count == info.last_offset_delta + 1
    )


def is_recreated(topic: TopicDescription, key: TopicPartition, row: CopiedUpTo) -> bool:
    """Return whether the topic was recreated after this progress row of the partition was written."""
    return key.topic == topic.name and any(topic.topic_id) and row.topic_id not in {topic.topic_id, ZERO_UUID}


def refusal_of(error: KafkaError) -> str:
    """Return the reason why a topic is not copied, for this error."""
    return f"{error} ({error.name})"


def check_prefix(prefix: str) -> None:
    """Raise ValueError if no topic name may begin with this prefix."""
    wrong = topic_name_error(prefix + "x")
    if wrong is not None or prefix.startswith(OWN_PREFIXES):
        raise ValueError(
            f"{prefix!r} is not a valid topic prefix: {wrong or 'it is reserved for the progress of mirrors'}"
        )


class Mirror:
    """Copies topics continuously; see the module. Only one mirror runs per `name`: a newer mirror fences the older.

    `name`               determines the progress topic and the transactional id
    `topics`             which topics are copied
    `prefix`             is put before the source's topic names in the target. As in MirrorMaker 2, it keeps two
                         mirrors of opposite directions from copying each other's copies
    `commit_interval_s`, `commit_size`   limits of a transaction: its age, and the bytes fetched for it
    `refresh_s`          interval of the checks for new topics and partitions
    `sync`               what to copy besides records; None: nothing
    `config_exclude`     regular expressions for topic settings that are not copied
    `on_data_loss`       reaction to a restored or truncated source: STOP, REWIND to the offset from which its log
                         differs from what was copied, or RESTART from its beginning
    `on_commit`          called after each transaction with what was copied so far
    `on_note`            called once with each message for the operator

    Transactions of the source are not preserved. The mirror keeps in memory one fetch response of each source
    broker, and at most five batches in flight to each target broker.
    """

    def __init__(
        self,
        source: Client,
        target: Client,
        *,
        name: str,
        topics: TopicFilter | None = None,
        prefix: str = "",
        commit_interval_s: float = COMMIT_INTERVAL_S,
        commit_size: int = COMMIT_SIZE,
        refresh_s: float = REFRESH_S,
        fetch_size: int = FETCH_SIZE,
        sync: SyncOptions | None = None,
        config_exclude: Iterable[str] = CONFIG_EXCLUDE,
        on_data_loss: str = STOP,
        on_commit: Callable[[Copied], None] | None = None,
        on_note: Callable[[str], object] | None = None,
    ) -> None:
        """Raises ValueError for an invalid name, prefix or pattern, and if source and target are the same cluster."""
        check_prefix(prefix)
        self._source = source
        self._target = target
        self._filter = TopicFilter() if topics is None else topics
        self._commit_interval_s = commit_interval_s
        self._commit_size = commit_size
        self._refresh_s = refresh_s
        self._fetch_size = fetch_size
        if on_data_loss not in ON_DATA_LOSS:
            raise ValueError(f"on_data_loss must be {' or '.join(ON_DATA_LOSS)}, not {on_data_loss!r}")
        self._on_data_loss = on_data_loss
        self._on_commit = on_commit
        self._on_note = on_note
        self._sync = SyncOptions() if sync is None else sync
        self.copied = Copied()
        source_id = self._source_id()
        self._progress = Progress(target, name, source_id, prefix)
        self._prefix = prefix
        self._upstream = Upstream(source, self._note)
        self._offsets = OffsetMap(target, name, source_id) if self._sync.group_offsets else None
        self._targets = TargetTopics(
            source, target, self._progress.topic, prefix=prefix, config_exclude=config_exclude, note=self._note
        )
        self._producer = target.producer(
            transactional_id=f"kafkalite-mirror-{name}",
            transaction_timeout_s=max(TRANSACTION_TIMEOUT_S, 2 * commit_interval_s),
            refusal_timeout_s=REFUSAL_TIMEOUT_S,
            on_acknowledged=None if self._offsets is None else self._acknowledged,
        )
        self._copier = Copier(self._producer, self._offsets, self._targets.named)
        self.carried = Synchroniser(
            source, target, self._sync, topics=self._targets, offsets=self._offsets, note=self._note
        )
        """Synchronizes everything besides records."""
        self.states = TopicStates()
        """The topics that are left behind."""
        self._prepare()

    def _prepare(self) -> None:
        """Create the reader and the state of a run."""
        self._reader = self._make_reader(await_topics=False)
        self._to_end = False
        self._ids: dict[str, bytes] = {}
        self._origins: dict[str, frozenset[Origin]] = {}
        """The origins of source topics that are copies themselves."""
        self._reached: dict[TopicPartition, CopiedUpTo] = {}
        """The progress in the target, including topics that are not visible now."""
        self._committed: dict[TopicPartition, int] = {}
        """The offset at which each partition continues after a failure."""
        self._pending: dict[TopicPartition, int] = {}
        self._pending_marks: dict[TopicPartition, Mark] = {}
        self._leader_epochs: dict[TopicPartition, int] = {}
        """Leader epochs of the source's partitions, at the last check of their history."""
        self._shaken = False
        """Whether the source was unreachable, or a leader changed, since the last check of the history."""
        self._pending_records: dict[str, int] = {}
        self._pending_sizes: dict[str, int] = {}
        self._began = 0.0
        self._open = False
        self._looked = self._synced = -math.inf
        self._failing_since = 0.0
        self._done = -1
        """Number of committed transactions when the current series of failures began."""
        self._pause_s = RETRY_PAUSE_S
        self._aborted: Exception | None = None
        """The error of the last transaction, or None if it was committed."""
        self.last_success: float | None = None
        """When the last transaction was committed or there was nothing to copy, by time.monotonic()."""

    def _acknowledged(self, key: TopicPartition, base_offset: int, count: int) -> None:
        assert self._offsets is not None, "called only with them"
        self._offsets.acknowledged(
            TopicPartition(key.topic.removeprefix(self._prefix), key.partition), base_offset, count
        )

    def _note(self, text: str) -> None:
        if text not in self.copied.notes:
            self.copied.notes.append(text)
            if self._on_note is not None:
                self._on_note(text)

    @property
    def created_topics(self) -> list[str]:
        """The topics that this mirror created in the target."""
        return self._targets.created

    @property
    def changed_settings(self) -> dict[str, dict[str, str | None]]:
        """Topic settings that were changed to the source's values; None: removed."""
        return self._targets.changed

    @property
    def failing(self) -> Exception | None:
        """The error in reading the source or in committing that stops progress now, or None.

        Any thread may read it.
        """
        return self._aborted or self._reader.failing

    def lags(self) -> dict[str, int]:
        """Return the number of offsets not copied yet, by topic, as of the source's last responses.

        Any thread may call it.
        """
        found: dict[str, int] = {}
        for key, offset in list(self._committed.items()):
            try:
                end = self._reader.readable_end(key)
            except KeyError:
                continue  # it is being added or dropped
            found[key.topic] = found.get(key.topic, 0) + max(0, end - offset)
        return found

    def _source_id(self) -> str:
        """Return the source's cluster id. Raises ValueError if source and target are the same cluster."""
        self._source.refresh([])
        self._target.refresh([])
        if self._source.cluster_id is not None and self._source.cluster_id == self._target.cluster_id:
            raise ValueError(f"source and target are the same cluster ({self._source.cluster_id})")
        return self._source.cluster_id or ""

    def _make_reader(self, *, await_topics: bool) -> FetchedReader:
        return FetchedReader(
            self._source,
            {},
            isolation=READ_COMMITTED,
            fetch_size=self._fetch_size,
            max_wait_ms=MAX_WAIT_MS,
            await_topics=await_topics,
        )

    def close(self) -> None:
        """Close the reader and the producer. Idempotent.

        An open transaction times out, or the next mirror with the same name aborts it.
        """
        self._reader.close()
        self._copier.close()
        self._producer.close()

    def run(self, stop: threading.Event, *, to_end: bool = False) -> Copied:
        """Copy until `stop` is set or, with `to_end`, until everything that the source has now is copied.

        Raises ProducerFenced if a newer mirror of this name starts. Raises TransactionAborted if no transaction can be
        committed for GIVE_UP_S. Raises LogTruncated if the source was restored or truncated and `on_data_loss` is STOP.
        Raises MirrorLoop if the mirror would copy a topic back to the target topic of which it is a copy.
        """
        self._to_end = to_end
        self._reader.close()
        self._reader = self._make_reader(await_topics=not to_end)
        if not self._begun(stop):
            return self.copied
        while True:
            try:
                if self._step(stop):
                    return self.copied
            except TransactionAborted as error:
                self._after_abort(error, stop)
                if stop.is_set():
                    return self.copied
            except TopicFailed as error:
                self._roll_back()
                self._leave(error.topic, error.reason)
            except OffsetOutOfRange as error:
                self._roll_back()
                self._step_over(error)

    def _begun(self, stop: threading.Event) -> bool:
        """Begin, and retry while the target is unavailable. A run to the end does not retry.

        Return False if the mirror was stopped before.
        """
        began, pause_s = time.monotonic(), RETRY_PAUSE_S
        while not stop.is_set():
            try:
                self._begin()
            except (KafkaError, *UNREACHED) as error:
                passing = not isinstance(error, KafkaError) or error.retriable
                if self._to_end or not passing or time.monotonic() - began > GIVE_UP_S:
                    raise
                self._aborted = error
                self._note(f"waiting for the target: {error}")
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)
            else:
                self._aborted = None
                return True
        return False

    def _begin(self) -> None:
        """Initialize the transactional id, then load the progress of the last mirror with this name."""
        self._progress.create()
        self._producer.init_transactions()
        self._reached = self._progress.load()
        self.states.restore(self._progress.left_behind)
        if self._offsets is not None:
            self._offsets.create()
            self._offsets.load()
        self._looked = self._synced = -math.inf
        self._failing_since = time.monotonic()

    def _step(self, stop: threading.Event) -> bool:
        """Check for topics if that is due, run one round of copying, and synchronize if that is due.

        Return whether this round was the last.
        """
        if self._looks():
            self._commit()
            self._take_topics()
            self._looked = time.monotonic()
        if stop.is_set() or self._at_end():
            self._commit()
            if stop.is_set() or self._at_end():
                self._recover(self.states.tried if self._at_end() else set())
                self._synchronise()
                return True
        self._round()
        if not self._to_end and time.monotonic() - self._synced > self._sync.interval_s:
            self._synced = time.monotonic()
            self._commit()
            self._synchronise()
        return False

    def _looks(self) -> bool:
        """Return whether it is time to check for new topics or to retry a topic."""
        interval_s = math.inf if self._to_end and self._looked > 0 else self._refresh_s
        return time.monotonic() - self._looked > interval_s or self.states.is_due()

    def _at_end(self) -> bool:
        """Return whether a run to the end has copied everything.

        Topics that could not be copied are retried a few times first.
        """
        return self._to_end and self._reader.done and not self.states.untried(TRIES_AT_END)

    def _after_abort(self, error: TransactionAborted, stop: threading.Event) -> None:
        """Handle a failed transaction.

        If the target refuses a topic, the topic is left behind: it is not copied until it is retried. Otherwise the
        transaction is repeated after a growing pause. Raises the error if no transaction could be committed for
        GIVE_UP_S.
        """
        refused = self._refused(error)
        if refused is not None:
            self._roll_back()
            self._leave(*refused)
            return
        self._aborted = error
        if self.copied.transactions != self._done:
            self._done, self._failing_since = self.copied.transactions, time.monotonic()
        if time.monotonic() - self._failing_since > GIVE_UP_S:
            raise error
        self._roll_back()
        stop.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, RETRY_PAUSE_S_MAX)

    def _refused(self, error: TransactionAborted) -> tuple[str, str] | None:
        """Return the source topic whose records the target refused, and the reason; None for other failures."""
        cause = error.__cause__
        while cause is not None and not isinstance(cause, DeliveryFailed):
            cause = cause.__cause__
        if cause is None or cause.partition is None or not isinstance(cause.__cause__, KafkaError):
            return None
        topic = cause.partition.topic
        if topic.startswith(OWN_PREFIXES):
            return None
        return topic.removeprefix(self._prefix), refusal_of(cause.__cause__)

    # --- topics that are left behind ----------------------------------------------------------------------------------

    def _leave(self, name: str, reason: str) -> None:
        """Stop copying a topic that cannot be copied, until it is retried."""
        if name in self._ids:
            self._forget(name)
        self._targets.forget(name)
        row = self.states.leave(name, reason)
        self._note(f"topic {name} cannot be copied now and is left behind: {reason}")
        self._write_if_possible(lambda: self._progress.write_state(self._producer, name, row))

    def _recover(self, names: Iterable[str]) -> None:
        """Clear the left-behind state of topics that are copied again."""
        keys = [TopicPartition(name, WHOLE_TOPIC) for name in names]
        if keys:
            self._write_if_possible(lambda: self._progress.withdraw(self._producer, keys))
            self.states.forget(names)

    def _recover_idle(self) -> None:
        """Clear the left-behind state of retried topics that have no new records."""
        idle = set()
        for name in self.states.tried:
            keys = [key for key in self._committed if key.topic == name]
            if keys and all(0 <= self._reader.readable_end(key) <= self._committed[key] for key in keys):
                idle.add(name)
        self._recover(idle)

    def _write_if_possible(self, send: Callable[[], object]) -> None:
        """Write as `_write` does, but ignore a failure, because the topic's state is also in memory."""
        try:
            self._write(send)
        except TransactionAborted:
            self._roll_back()

    def _synchronise(self) -> None:
        """Copy settings, ACLs, quotas and group offsets as `sync` says, for the topics that are being copied."""
        there = self._source.with_retries(self._source.topics)
        self.carried.sync([topic for name, topic in there.items() if name in self._ids])

    # --- topics -------------------------------------------------------------------------------------------------------

    def _take_topics(self) -> None:
        """Start copying new partitions, and stop copying deleted topics."""
        fresh: dict[TopicPartition, int] = {}
        there = self._source.with_retries(self._source.topics)
        for name in [name for name in self._ids if name not in there]:
            self._forget(name)
        taken = [topic for topic in there.values() if self._filter.takes(topic)]
        allowed = self._without_copies(taken, there)
        self._recover(self.states.rows.keys() - {topic.name for topic in allowed})
        for topic in allowed:
            self.copied.topics.add(topic.name)
            if self.states.begin(topic.name) and self._is_ready(topic):
                self._forget_old(topic)
                fresh.update(self._starts(topic))
        self._leader_epochs.update(leader_epochs(there[name] for name in {key.topic for key in fresh}))
        if not self._check_history({key: self._reached[key] for key, offset in fresh.items() if offset > 0}):
            fresh = {key: self._reached[key].offset if offset > 0 else 0 for key, offset in fresh.items()}
        self._claim(fresh, taken)
        if not fresh:
            return
        earliest = self._source.list_offsets(dict.fromkeys(fresh, OFFSET_EARLIEST))
        for key, offset in fresh.items():
            first = earliest[key].offset
            if offset > 0 and offset < first:
                self._note(f"{key}: the source no longer has offsets {offset} to {first - 1}; skipping them")
            self._committed[key] = max(offset, first)
        if self._offsets is not None:
            self._begin_offsets(self._offsets, fresh)
        ends = None
        if self._to_end:
            latest = self._source.list_offsets(dict.fromkeys(fresh, OFFSET_LATEST), isolation=READ_COMMITTED)
            ends = {key: row.offset for key, row in latest.items()}
        self._reader.add({key: self._committed[key] for key in fresh}, ends)

    def _is_ready(self, topic: TopicDescription) -> bool:
        """Return whether a topic can be copied. Otherwise it is left behind.

        Its new partitions must have leaders, and the target must have or create the topic. With `on_data_loss` STOP, a
        topic that was recreated after it was copied is left behind, too.
        """
        away = [partition.partition for partition in topic.partitions if partition.leader < 0]
        if away and not all(TopicPartition(topic.name, number) in self._committed for number in away):
            self._leave(topic.name, f"partition {away[0]} has no leader in the source")
            return False
        read = [key for key, row in self._reached.items() if row.offset > 0 and is_recreated(topic, key, row)]
        if read and self._on_data_loss == STOP:
            self._leave(
                topic.name,
                f"it was deleted and recreated in the source after {read[0]} was copied up to offset "
                f"{self._reached[read[0]].offset}; --on-data-loss {REWIND} or {RESTART} copies the new topic from its "
                "beginning and appends it to the target's topic",
            )
            return False
        try:
            self._targets.ensure(topic)
        except KafkaError as error:
            self._leave(topic.name, refusal_of(error))
            return False
        return True

    def _without_copies(
        self, topics: list[TopicDescription], there: Mapping[str, TopicDescription]
    ) -> list[TopicDescription]:
        """Return the topics to copy. Topics that another mirror copied from the target under a prefix are left out.

        Raises MirrorLoop for a source topic that is itself a copy of the target topic to which it would be copied.
        """
        self._upstream.refresh(there)
        target_id = self._target.cluster_id
        found = []
        for topic in topics:
            origins = self._upstream.origins(topic.name)
            same = Origin(target_id or "", self._targets.named(topic.name))
            if same in origins and target_id:
                other = self._upstream.mirror(topic.name, same)
                raise MirrorLoop(
                    f"topic {topic.name} in the source is a copy of the target's topic {same.topic}, made by mirror "
                    f"{other}: two mirrors would copy each other's copies without end, so leave the topic out with "
                    "--exclude, or give this mirror a --prefix; if that mirror has ended for good, delete "
                    f"{PREFIX}{other} in the source"
                )
            if any(origin.cluster_id == target_id and origin.topic != topic.name for origin in origins):
                self.copied.skipped.add(topic.name)
                self._note(f"topic {topic.name} is not copied: in the source it is a copy from the target")
                continue
            self._origins[topic.name] = origins
            found.append(topic)
        return found

    def _claim(self, fresh: dict[TopicPartition, int], taken: list[TopicDescription]) -> None:
        """Write the progress of new partitions before their first record, then check for loops again.

        Each mirror writes before it checks. So if two mirrors in opposite directions start together, at least one of
        them sees the other mirror's progress. Raises MirrorLoop.
        """
        new = {key: CopiedUpTo(at, self._ids[key.topic]) for key, at in fresh.items() if key not in self._reached}
        known = self._progress.origins
        changed = {name for name, origins in self._origins.items() if known.get(name, frozenset()) != origins}
        claimed = {key: row for key, row in self._reached.items() if key.topic in changed} | new
        known.update(self._origins)
        if not claimed:
            return
        self._write(lambda: self._progress.write(self._producer, claimed))
        try:
            self._without_copies(taken, self._source.with_retries(self._source.topics))
        except MirrorLoop:
            if new:
                self._write(lambda: self._progress.withdraw(self._producer, new))
            raise
        self._reached.update(new)

    def _write(self, send: Callable[[], object]) -> None:
        """Run a transaction that writes only the progress topic."""
        assert not self._open, "what was copied is committed with its own progress"
        self._producer.begin_transaction()
        self._open = True
        send()
        self._producer.commit_transaction()
        self._open = False

    def _begin_offsets(self, offsets: OffsetMap, fresh: dict[TopicPartition, int]) -> None:
        """Begin to record the target offsets of these partitions."""
        in_target = {key: TopicPartition(self._targets.named(key.topic), key.partition) for key in fresh}
        names = {key.topic for key in in_target.values()}
        rows = self._target.with_retries(lambda: self._target.refresh(names)).topics
        target_ids = {row.name: row.topic_id for row in rows}
        ends = self._target.list_offsets(dict.fromkeys(in_target.values(), OFFSET_LATEST))
        for key, offset in fresh.items():
            ids = (self._ids[key.topic], target_ids[in_target[key].topic])
            offsets.begin(key, self._committed[key], ids, ends[in_target[key]].offset, from_start=offset == 0)

    def _starts(self, topic: TopicDescription) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the partitions of a topic that are not being copied yet, with their first offset to copy."""
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition)
            if key in self._committed:
                continue
            found = self._reached.get(key)
            if found is not None and is_recreated(topic, key, found):
                self._note(f"{key}: the topic was deleted and recreated in the source; copying it from the start")
                del self._reached[key]
                found = None
            yield key, 0 if found is None else found.offset

    def _forget_old(self, topic: TopicDescription) -> None:
        """Store the id of a topic. If the topic was recreated under its name, first stop copying the old one."""
        if self._ids.get(topic.name, topic.topic_id) != topic.topic_id:
            self._forget(topic.name)
        self._ids[topic.name] = topic.topic_id

    def _forget(self, name: str) -> None:
        """Stop copying a topic.

        Its progress stays in memory, in case the topic is only temporarily missing from metadata.
        """
        old = [key for key in self._committed if key.topic == name]
        self._reader.drop(old)
        for key in old:
            del self._committed[key]
        del self._ids[name]

    def _some_are_others(self) -> bool:
        """Return whether a topic of this transaction was recreated since the transaction began.

        The check is made after the last fetch of the transaction. Topic ids are never reused. So an unchanged id shows
        that the topic was the same all the time.
        """
        wanted = {key.topic for key in self._pending}
        answer = self._source.with_retries(lambda: self._source.refresh(wanted))
        self._shaken |= any(
            self._leader_epochs.get(TopicPartition(row.name, part.partition_index), part.leader_epoch)
            != part.leader_epoch
            for row in answer.topics
            for part in row.partitions
        )
        ids = {row.name: row.topic_id for row in answer.topics if not row.error_code}
        return any(ids.get(name, self._ids[name]) != self._ids[name] for name in wanted)

    # --- a restored or truncated source -------------------------------------------------------------------------------

    def _is_same_history(self, reached: Mapping[TopicPartition, CopiedUpTo]) -> bool:
        """Return whether the transaction continues the history of what was copied before.

        The check is made after the source was unreachable or a leader has changed. Then the log must still have the
        records before the old position and before the new position.
        """
        if not self._shaken or self._reader.failing is not None:
            return True
        self._shaken = False
        before = {key: self._reached[key] for key in reached if key in self._reached}
        same = self._check_history(before) and self._check_history(reached)
        there = self._source.with_retries(lambda: self._source.described({key.topic for key in reached}))
        self._leader_epochs.update(leader_epochs(there.values()))
        return same

    def _check_history(self, reached: Mapping[TopicPartition, CopiedUpTo]) -> bool:
        """Return whether the source still has the history of these positions.

        If not, either LogTruncated is raised, or the positions are set back, as `on_data_loss` says. Copying continues
        at the new positions after the next check for topics.
        """
        positions = {key: Position(row.offset, row.mark) for key, row in reached.items() if row.offset > 0}
        found = find_divergences(self._source, positions)
        there = self._source.described({divergence.partition.topic for divergence in found})
        for divergence in found:
            name = divergence.partition.topic
            if name in there and reached[divergence.partition].topic_id not in {there[name].topic_id, ZERO_UUID}:
                continue  # recreated meanwhile: the next check for topics finds that
            if self._on_data_loss == STOP:
                others = f" (and {len(found) - 1} more partitions)" if len(found) > 1 else ""
                raise LogTruncated(
                    f"the source was restored or truncated: {divergence}{others}; --on-data-loss {REWIND} copies "
                    f"from that offset on, {RESTART} from the start; both append to the target's topic"
                )
            key = divergence.partition
            at = divergence.at if self._on_data_loss == REWIND and divergence.at is not None else 0
            self._note(f"the source was restored or truncated: {divergence}; copying from offset {at}")
            before = self._reached.get(key)
            if before is None or before.offset > at:
                self._reached[key] = CopiedUpTo(at, reached[key].topic_id)
            if key.topic in self._ids and key in self._committed:
                self._forget(key.topic)
        return not found

    def _step_over(self, error: OffsetOutOfRange) -> None:
        """Skip records that the source has deleted. Raises the error if it has another cause."""
        if not self._check_history({key: self._reached[key] for key in self._committed if key in self._reached}):
            self._take_topics()
            return
        earliest = self._source.list_offsets(dict.fromkeys(self._committed, OFFSET_EARLIEST))
        gone = {key: row.offset for key, row in earliest.items() if row.offset > self._committed[key]}
        if not gone:
            raise error
        for key, first in gone.items():
            self._note(f"{key}: the source no longer has offsets {self._committed[key]} to {first - 1}; skipping them")
            self._committed[key] = first
            self._reader.seek(key, first)

    # --- copying ------------------------------------------------------------------------------------------------------

    def _round(self) -> None:
        """Copy the fetch responses of one or more leaders, and commit if the transaction is old or large enough."""
        for fetched in self._answers():
            if not self._open:
                self._producer.begin_transaction()
                self._open = True
                self._began = time.monotonic()
            topic = fetched.partition.topic
            count = self._copied(fetched)
            self._pending[fetched.partition] = fetched.next_offset
            self._pending_marks[fetched.partition] = self._copier.mark
            self._pending_records[topic] = self._pending_records.get(topic, 0) + count
            self._pending_sizes[topic] = self._pending_sizes.get(topic, 0) + len(fetched.records)
            if self._is_due() and not self._commit():
                return  # the rest of the response may be of a deleted topic; it is fetched again
        if self._reader.failing is not None:
            self._shaken = True
        if self._is_due():
            self._commit()
        if not self._open and self._reader.failing is None:
            self.last_success = time.monotonic()
            self._recover_idle()

    def _answers(self) -> Iterator[Fetched]:
        """Yield fetched batches of one or more leaders. Raises TopicFailed if a topic's records cannot be fetched."""
        try:
            yield from self._reader.fetched(POLL_S)
        except KafkaError as error:
            failed, self._reader.failed = self._reader.failed, None
            if failed is None or isinstance(error, OffsetOutOfRange):
                raise
            self._commit()  # earlier batches are complete; if that fails, the topic fails in another round
            raise TopicFailed(failed.topic, refusal_of(error)) from error

    def _copied(self, fetched: Fetched) -> int:
        """Send the records of a response and return their number.

        Raises TopicFailed if the records are unreadable or the target refuses the topic.
        """
        try:
            return self._copier.copy(fetched)
        except KafkaError as error:
            if error.code in FINAL:
                raise
            raise TopicFailed(fetched.partition.topic, refusal_of(error)) from error
        except TransactionAborted as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaError) or cause.retriable:
                raise
            raise TopicFailed(fetched.partition.topic, refusal_of(cause)) from error

    def _is_due(self) -> bool:
        late = time.monotonic() - self._began > self._commit_interval_s
        return self._open and (late or sum(self._pending_sizes.values()) >= self._commit_size)

    def _commit(self) -> bool:
        """Commit the transaction with its progress. Return False if it was rolled back."""
        if not self._open:
            return True
        if self._some_are_others():
            self._roll_back()
            self._take_topics()
            return False
        reached = {
            key: CopiedUpTo(offset, self._ids[key.topic], self._pending_marks[key])
            for key, offset in self._pending.items()
        }
        if not self._is_same_history(reached):
            self._roll_back()
            self._take_topics()
            return False
        self._progress.write(self._producer, reached)
        recovered = self.states.tried & {key.topic for key in self._pending}
        if recovered:
            self._progress.withdraw(self._producer, [TopicPartition(name, WHOLE_TOPIC) for name in recovered])
        if self._offsets is not None:
            self._producer.flush()  # acknowledgements contain the offsets of records
            try:
                self._offsets.write(self._producer, self._pending)
            except OffsetUnknown:
                self._roll_back()
                return False
        self._producer.commit_transaction()
        self._open = False
        self._aborted = None
        self._pause_s = RETRY_PAUSE_S
        self.states.forget(recovered)
        self.last_success = time.monotonic()
        if self._offsets is not None:
            self._offsets.settle()
        self._reached.update(reached)
        self._committed.update(self._pending)
        for topic, count in self._pending_records.items():
            self.copied.records[topic] = self.copied.records.get(topic, 0) + count
            self.copied.sizes[topic] = self.copied.sizes.get(topic, 0) + self._pending_sizes[topic]
        self.copied.transactions += 1
        self._forget_pending()
        if self._on_commit is not None:
            self._on_commit(self.copied)
        return True

    def _roll_back(self) -> None:
        """Abort the transaction. Every partition continues where the last committed transaction ended."""
        if self._open:
            self._producer.abort_transaction()
            self._open = False
        self._forget_pending()
        for key, offset in self._committed.items():
            self._reader.seek(key, offset)

    def _forget_pending(self) -> None:
        self._pending.clear()
        self._pending_marks.clear()
        self._pending_records.clear()
        self._pending_sizes.clear()
        if self._offsets is not None:
            self._offsets.forget()

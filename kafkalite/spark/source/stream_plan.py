"""Plan the micro-batches of a streaming query, as Spark's driver requests them. Does not import PySpark.

    next end        the current ends of the partitions, limited by rows and bytes, with fair shares
    tasks           the ranges from start to end, in pieces of at most about 128 MiB
    after a crash   Spark requests the same start and end again, and gets the same records if they still exist

A position contains the offsets up to which a query has read: {"topic": {"0": 17}}, as in Spark's own connector. It may
also have entries that Spark's connector lacks:

    "@ids"      {"topic": "id"}
    "@epochs"   {"topic": {"0": [leader epoch, first offset, CRC]}}      describes the batch before the offset
    "@from"     {"topic": {"0": 10}}                                     start of the batch that ends at this position

"@ids" detects a topic that was recreated. "@epochs" detects a log that was restored or truncated. With
failOnDataLoss=false, the next batch reads such a log again, from the offset in "@from".

The checkpoint alone decides what is read. A group's committed offsets only serve tools that watch its lag.

Thread rule: one object per query, used by one thread.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.client import ISOLATIONS, Client, ClientError, CommittedOffset, split_by_size
from kafkalite.client.history import find_divergences, marks_at
from kafkalite.client.read.marks import Divergence, Mark, Position
from kafkalite.errors import KafkaError, OffsetOutOfRange
from kafkalite.load.positions import from_json, to_json
from kafkalite.load.selection import Offsets, beyond_the_end, discover, ids_of, partitions_of, resolve
from kafkalite.load.shares import ESTIMATE_PIECE, end_at_size, fair_shares
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition, uuid_bytes
from kafkalite.spark.options import log_without_effect
from kafkalite.spark.source.offsets import REMEDY, DataLoss, checked_ranges
from kafkalite.spark.source.plan import ReadTask, client_for, split_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.spark.options import StreamOptions

logger = logging.getLogger(__name__)

IDS, EPOCHS, FROM = "@ids", "@epochs", "@from"
COMMIT_TIMEOUT_S: Final = 2.0
"""Limit for a commit to the group coordinator, because the query waits for it."""
SETTLE_ATTEMPTS: Final = 3
SETTLE_S: Final = 0.2
"""Number and interval of further looks at a partition that seems to have become shorter."""


class StreamPosition(NamedTuple):
    """A query's offsets, with the ids of their topics and the marks of their logs, if known."""

    offsets: dict[TopicPartition, int]
    ids: dict[str, str]
    marks: Mapping[TopicPartition, Mark] = {}
    begins: Mapping[TopicPartition, int] = {}
    """Where the batch that ends here starts to read logs that went back, instead of at the previous position."""

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON data. Equal positions give equal text."""
        named = {key.topic for key in self.offsets}
        ids = {name: self.ids[name] for name in sorted(self.ids) if name in named}
        epochs: dict[str, dict[str, list[int]]] = {}
        for key in sorted(self.marks):
            epochs.setdefault(key.topic, {})[str(key.partition)] = list(self.marks[key])
        beside = {IDS: ids, EPOCHS: epochs, FROM: to_json(self.begins)}
        return {**{name: value for name, value in beside.items() if value}, **to_json(self.offsets)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamPosition:
        """Parse the result of `to_json`, or offsets alone. Raises ValueError for anything else."""
        ids = value.get(IDS, {})
        if not isinstance(ids, dict) or not all(isinstance(text, str) for text in ids.values()):
            raise ValueError(f"{IDS} must contain topic ids, not {ids!r}")
        offsets = from_json({name: row for name, row in value.items() if name not in {IDS, EPOCHS, FROM}})
        return cls(offsets, dict(ids), marks_of(value.get(EPOCHS, {})), from_json(value.get(FROM, {})))


def marks_of(value: Any) -> dict[TopicPartition, Mark]:
    """Parse the marks under "@epochs". Raises ValueError for anything else."""
    try:
        return {
            TopicPartition(topic, int(number)): Mark(*map(int, row))
            for topic, rows in value.items()
            for number, row in rows.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{EPOCHS} must contain leader epochs, not {value!r}") from error


class StreamPlanner:
    """The planner of a streaming query; see the module. `clock` returns seconds, for maxTriggerDelay."""

    def __init__(self, options: StreamOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._source = options.source
        self._clock = clock
        self._initial: StreamPosition | None = None
        self._committed: dict[TopicPartition, int] | None = None
        self._latest: StreamPosition | None = None
        self._bounded = False
        self._target: StreamPosition | None = None
        self._planned_at: float | None = None
        self._planned: dict[str, Any] | None = None
        """The end of the last batch that this object planned."""
        self._histories_checked = False
        self._logged = False

    # --- requests of the engine ---------------------------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Return where a new query starts.

        The result is kept, because Spark calls this method repeatedly and "latest" must not move.
        """
        if self._initial is None:
            client, look_up = self._look_up()
            topics = discover(client, self._source.subscription)
            keys = partitions_of(self._source.subscription, topics)
            strategy = self._source.timestamp_strategy
            starts = resolve(self._source.starting, keys, look_up, missing=strategy)
            if self._source.starting.offsets is not None:
                starts = self._within_the_end(starts, look_up)
            marks = marks_before(client, {key: offset for key, offset in starts.items() if offset > 0})
            self._initial = StreamPosition(starts, ids_of(topics), marks)
        return self._initial.to_json()

    def _within_the_end(self, starts: dict[TopicPartition, int], look_up: Offsets) -> dict[TopicPartition, int]:
        """Return the starts, none of which is after the end of its partition.

        Raises DataLoss for a start after the end if failOnDataLoss is set.
        """
        latest = look_up(dict.fromkeys(starts, OFFSET_LATEST))
        for why in beyond_the_end(self._source.starting, starts, latest):
            if self._source.fail_on_data_loss:
                raise DataLoss(f"{why}; {REMEDY}")
            logger.warning("%s; starting there because failOnDataLoss is false", why)
        return {key: min(start, latest[key]) for key, start in starts.items()}

    def bound(self) -> None:
        """End the query after the records that exist when it next looks at the topics."""
        self._bounded = True
        self._target = None

    def latest(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return the end of the next batch, or `start` if there is nothing to read or too little yet. Raises
        DataLoss.
        """
        at = StreamPosition.from_json(start)
        if self._initial is None or at.offsets != self._initial.offsets:
            self._commit(at)
        there, losses = self._available(at)
        begins = self._check_losses(at, there, losses)
        since = at._replace(offsets={**at.offsets, **begins})
        end = self._marked(at, self._admit(since, there) if limited else there, begins)
        self._planned = end.to_json()
        return self._planned

    def reported(self) -> dict[str, Any] | None:
        """Return the ends of the partitions at the last look."""
        return None if self._latest is None else self._latest.to_json()

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ReadTask]:
        """Return the tasks of a batch. Raises DataLoss if failOnDataLoss is set and records are missing."""
        first, last = StreamPosition.from_json(start), StreamPosition.from_json(end)
        keys = sorted(last.offsets)
        starts = {key: begin_of(first, last, key) for key in keys}
        moving = [key for key in keys if starts[key] < last.offsets[key]]
        if not moving:
            return []
        client, look_up = self._look_up()
        if end != self._planned:
            self._check_again(first, last, moving)
        ranges, losses = checked_ranges(
            {key: starts[key] for key in moving},
            last.offsets,
            look_up(dict.fromkeys(moving, OFFSET_EARLIEST)),
            look_up(dict.fromkeys(moving, OFFSET_LATEST)),
            fail_on_data_loss=self._source.fail_on_data_loss,
        )
        for loss in losses:
            logger.warning("%s; reading the rest because failOnDataLoss is false", loss)
        pieces = split_ranges(client, ranges, self._source)
        ids = {name: uuid_bytes(text) for name, text in last.ids.items()}
        return [ReadTask(piece, ids.get(piece.key.topic)) for piece in pieces]

    # --- how far ------------------------------------------------------------------------------------------------------

    def _look_up(self) -> tuple[Client, Offsets]:
        if not self._logged:
            log_without_effect(self._source.without_effect)
            self._logged = True
        settings = self._source.client
        client = client_for(settings)
        return client, Offsets(client, ISOLATIONS[settings.isolation_level])

    def _available(self, at: StreamPosition) -> tuple[StreamPosition, dict[TopicPartition, str]]:
        """Return the end of all that can be read, and sentences about records that were read and no longer exist.

        For a bounded query, the end is that of its first look at the topics. The sentences are by partition.
        """
        if self._target is not None:
            ends = {key: max(offset, self._target.offsets.get(key, offset)) for key, offset in at.offsets.items()}
            return StreamPosition({**self._target.offsets, **ends}, {**at.ids, **self._target.ids}), {}
        for attempt in range(SETTLE_ATTEMPTS):
            client, look_up = self._look_up()
            topics = discover(client, self._source.subscription)
            keys = partitions_of(self._source.subscription, topics)
            found = StreamPosition(look_up(dict.fromkeys(keys, OFFSET_LATEST)), ids_of(topics))
            losses = lost(at, found)
            if not losses:
                break
            if attempt < SETTLE_ATTEMPTS - 1:
                time.sleep(SETTLE_S)  # a new leader may not know its high watermark yet
        self._latest = found
        if self._bounded:
            self._target = found
        return found, losses

    # --- what went back -----------------------------------------------------------------------------------------------

    def _check_losses(
        self, at: StreamPosition, there: StreamPosition, losses: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, int]:
        """Return where to read logs again that were restored or truncated.

        Any loss raises DataLoss if failOnDataLoss is set, and is logged otherwise.
        """
        # An unchanged log is compared only once: later changes are found when it has new records.
        keys = [
            key
            for key, offset in there.offsets.items()
            if key in at.marks
            and not made_anew(at, there, key.topic)
            and (offset != at.offsets[key] or not self._histories_checked)
        ]
        parted = self._parted({key: Position(at.offsets[key], at.marks[key]) for key in keys})
        self._histories_checked = True
        sentences = {**losses, **{key: went_back(divergence) for key, divergence in parted.items()}}
        if sentences and self._source.fail_on_data_loss:
            raise DataLoss(sentences[min(sentences)])
        earliest = self._look_up()[1](dict.fromkeys(parted, OFFSET_EARLIEST)) if parted else {}
        begins = {key: max(divergence.at or 0, earliest[key]) for key, divergence in parted.items()}
        for key, sentence in sorted(sentences.items()):
            how = f"reading again from offset {begins[key]}" if key in begins else "the query continues"
            logger.warning("%s (failOnDataLoss is false: %s)", sentence, how)
        return begins

    def _check_again(self, first: StreamPosition, last: StreamPosition, keys: list[TopicPartition]) -> None:
        """Check that a batch that was planned before a restart can still be read.

        If a log went back, raise DataLoss if failOnDataLoss is set. Otherwise, the next batch reads this log again.
        """
        for position in (first, last):
            known = {
                key: Position(position.offsets[key], position.marks[key])
                for key in keys
                if key in position.marks and (position is last or key not in last.begins)
            }
            for key, divergence in self._parted(known).items():
                if made_anew(first, last, key.topic):
                    continue
                if self._source.fail_on_data_loss:
                    raise DataLoss(went_back(divergence))
                logger.warning("%s (failOnDataLoss is false: the query continues)", went_back(divergence))

    def _parted(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, Divergence]:
        client = client_for(self._source.client)
        return {found.partition: found for found in find_divergences(client, positions)} if positions else {}

    def _marked(self, at: StreamPosition, end: StreamPosition, begins: Mapping[TopicPartition, int]) -> StreamPosition:
        """Return the end of a batch with its marks. Without new records, the old marks are kept, so that Spark sees no
        change.
        """
        if end.offsets == at.offsets and not begins:
            return end._replace(marks=at.marks, begins=at.begins)
        kept = {
            key: mark
            for key, mark in at.marks.items()
            if end.offsets.get(key) == at.offsets[key] and key not in begins and not made_anew(at, end, key.topic)
        }
        fresh = {key: offset for key, offset in end.offsets.items() if offset > 0 and key not in kept}
        return end._replace(marks={**kept, **marks_before(client_for(self._source.client), fresh)}, begins=begins)

    # --- how much -----------------------------------------------------------------------------------------------------

    def _admit(self, at: StreamPosition, there: StreamPosition) -> StreamPosition:
        """Return the end that the limits allow."""
        starts = {key: begin_of(at, there, key) for key in there.offsets}
        backlog = {key: max(0, there.offsets[key] - starts[key]) for key in there.offsets}
        total = sum(backlog.values())
        now = self._clock()
        waiting = self._planned_at is not None and now - self._planned_at < self._options.delay_max_s
        if waiting and not self._bounded and total < (self._options.rows_min or 0):
            return StreamPosition(at.offsets, {**there.ids, **at.ids})
        self._planned_at = now
        turn = sum(starts.values())
        if self._options.rows_max is not None and total > self._options.rows_max:
            backlog = fair_shares(backlog, self._options.rows_max, turn)
        ends = {key: starts[key] + backlog.get(key, 0) for key in there.offsets}
        if self._options.size_max is not None:
            ends = self._ends_within(starts, ends, self._options.size_max, turn)
        # If a partition became shorter, and that is allowed, the query continues at its end.
        return StreamPosition({key: min(ends[key], there.offsets[key]) for key in ends}, there.ids)

    def _ends_within(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int, turn: int
    ) -> dict[TopicPartition, int]:
        """Return ends so that all ranges together have about `limit` bytes. Some range has at least one offset."""
        client = client_for(self._source.client)
        target = max(limit // 4, ESTIMATE_PIECE)
        found = {}
        for key in sorted(ends):
            if starts[key] < ends[key]:
                try:
                    found[key] = split_by_size(client, key, starts[key], ends[key], target)
                except OffsetOutOfRange:
                    logger.warning(
                        "records from offset %d on of %s aged out while a batch was planned", starts[key], key
                    )
        sizes = {key: max(1, sum(piece.size for piece in pieces)) for key, pieces in found.items()}
        shares = fair_shares(sizes, limit, turn)
        cut = {key: end_at_size(found[key], share) for key, share in shares.items()}
        return {key: cut.get(key, starts[key] if key in found else ends[key]) for key in ends}

    # --- for lag tools ------------------------------------------------------------------------------------------------

    def _commit(self, at: StreamPosition) -> None:
        """Commit finished offsets for the group. Errors are only logged, because the checkpoint decides.

        Spark stores the end of a batch in its checkpoint before it reads the batch, and requests the next end only
        after the batch. So everything before the start is finished.
        """
        group = self._options.group_id
        if group is None or not self._options.commits or at.offsets == self._committed:
            return
        settings = self._source.client
        options = {**dict(settings.options), "retry_timeout_s": COMMIT_TIMEOUT_S}
        try:
            with Client(settings.bootstrap_servers, **options) as client:
                epochs = {key: mark.epoch for key, mark in at.marks.items()}
                rows = {key: CommittedOffset(offset, epochs.get(key, -1)) for key, offset in at.offsets.items()}
                client.groups.commit(group, rows)
        except (KafkaError, ClientError) as error:
            logger.warning("cannot commit the offsets of group %s: %s", group, error)
        else:
            self._committed = dict(at.offsets)


def marks_before(client: Client, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, Mark]:
    """Return the marks before these offsets, as far as they are available."""
    try:
        return {key: position.mark for key, position in marks_at(client, positions).items()}
    except OffsetOutOfRange:  # aged out meanwhile; the next batch sets them
        return {}


def went_back(divergence: Divergence) -> str:
    """Return the error message for a log that went back."""
    where = "the beginning" if divergence.at is None else f"offset {divergence.at}"
    return (
        f"{divergence}: it was restored from a backup or truncated; set failOnDataLoss to false to read it again "
        f"from {where}, or start the query with a new checkpoint"
    )


def begin_of(start: StreamPosition, end: StreamPosition, key: TopicPartition) -> int:
    """Return the offset at which a batch starts to read a partition; 0 if the partition or its topic is new."""
    if made_anew(start, end, key.topic):
        return 0
    return min(end.begins.get(key, start.offsets.get(key, 0)), end.offsets[key])


def made_anew(start: StreamPosition, end: StreamPosition, topic: str) -> bool:
    """Return whether a topic was recreated under its name."""
    return topic in start.ids and topic in end.ids and start.ids[topic] != end.ids[topic]


def lost(at: StreamPosition, found: StreamPosition) -> dict[TopicPartition, str]:
    """Return sentences about records that a query has read and that no longer exist, by partition."""
    losses = {}
    for key, offset in sorted(at.offsets.items()):
        if key not in found.offsets:
            losses[key] = f"{key} no longer exists (the query read it up to offset {offset}); {REMEDY}"
        elif made_anew(at, found, key.topic):
            losses[key] = (
                f"topic {key.topic} was deleted and recreated (the query read {key} up to offset {offset}); {REMEDY}"
            )
        elif found.offsets[key] < offset:
            losses[key] = f"{key} ends at offset {found.offsets[key]}, but the query has read up to {offset}; {REMEDY}"
    return losses

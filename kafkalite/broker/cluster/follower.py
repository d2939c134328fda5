"""Decide what a follower fetches from one leader, and turn the responses into changes of its logs.

    1  follow(partition) and forget(partition) set the partitions to fetch
    2  request(now) returns the next Fetch request, which the caller sends
    3  answered(response, now) returns the changes of the logs (steps); unanswered(now) notes that there is no response
    4  the caller applies the steps, and reports the result of each by note_place, delay or give_up

One request is for all followed partitions that are due, in an incremental fetch session (KIP-227). A partition's entry
has the epoch of the log's last batch, so that the response can show where the logs diverge (KIP-595).

Source: AbstractFetcherThread, ReplicaFetcherThread, FetchSessionHandler of Kafka 4.1. Does no I/O; belongs to one
thread.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.base.logging import fields
from kafkalite.broker.cluster.divergence import UNDEFINED, Diverged, Key
from kafkalite.errors import ErrorCode
from kafkalite.model import uuid_text
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalite.wire.protocol.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger("kafkalite.broker.cluster")

EPOCH_MAX: Final = 0x7FFFFFFF
_NO_SESSION: Final = 0
_SESSION_CODES: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_METADATA_CODES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors which mean that the leader or this broker does not have the newest metadata yet; the log is unaffected."""
EARLY_MAX: Final = 12
EARLY_S: Final = 0.02
"""Delay in seconds before a partition with such an error is fetched again; doubles each time up to the back-off.

An election reaches all brokers at about the same time, and producers with acks=all wait for the followers.
"""


class Place(NamedTuple):
    """The position of a log: its end, from which the next fetch continues, its last epoch and its start."""

    end: int
    """The next offset to fetch."""
    last_epoch: int
    """The epoch of the log's last batch, or UNDEFINED if the log has no batch."""
    start: int


class Append(NamedTuple):
    """Records to append, possibly none, with the leader's high watermark and log start offset."""

    key: Key
    leader_epoch: int
    records: bytes | memoryview
    high_watermark: int
    log_start: int


class OutOfRange(NamedTuple):
    """The fetched offset is outside the leader's log. Ask the leader for its start and end offsets."""

    key: Key
    leader_epoch: int


Step = Append | Diverged | OutOfRange


class Limits(NamedTuple):
    """The limits in a follower's Fetch requests."""

    wait_ms: int
    """replica.fetch.wait.max.ms"""
    min_bytes: int
    """replica.fetch.min.bytes"""
    response_bytes: int
    """replica.fetch.response.max.bytes"""
    partition_bytes: int
    """replica.fetch.max.bytes"""
    backoff_s: float
    """replica.fetch.backoff.ms, in seconds"""


class _Session:
    """The fetch session: the positions that the leader was sent, and the ids for the next request."""

    __slots__ = ("epoch", "id", "sent")

    def __init__(self) -> None:
        self.id = _NO_SESSION
        self.epoch = 0
        self.sent: dict[Key, tuple[int, Place]] = {}

    @property
    def full(self) -> bool:
        """Whether the next request lists all partitions."""
        return self.epoch == 0

    def begin_again(self, *, known: bool) -> None:
        """Make the next request open a new fetch session. With `known`, the leader then closes the current session."""
        if not known:
            self.id = _NO_SESSION
        self.epoch = 0

    def answered(self, session_id: int) -> None:
        """Note a response with this fetch session id."""
        if session_id == _NO_SESSION or (self.epoch > 0 and session_id != self.id):
            self.begin_again(known=False)
            return
        self.id = session_id
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1


class _Followed:
    """A partition that is followed: its leader epoch, its position, and when it is fetched."""

    __slots__ = ("due", "early", "fetched", "leader_epoch", "place")

    def __init__(self, leader_epoch: int, place: Place) -> None:
        self.leader_epoch = leader_epoch
        self.place = place
        self.fetched = True
        """Whether requests include the partition."""
        self.due = 0.0
        """The time at which the partition is fetched again; 0 if it is not fetched until its metadata changes."""
        self.early = 0
        """The number of consecutive responses from before either side had the newest metadata."""


class Follower:
    """The partitions that one fetcher follows from one leader. `name` identifies the follower in logs."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self.limits = limits
        self._followed: dict[Key, _Followed] = {}  # in fetch order
        self._fetched_count = 0
        self._changed: dict[Key, None] = {}  # partitions whose entry in the session may have to change
        self._delayed: list[tuple[float, Key]] = []  # a heap; outdated entries are skipped
        self._session = _Session()
        self._failures = 0  # consecutive refused requests
        self._troubles: dict[Key, object] = {}  # the last logged problem of each partition

    @property
    def given_up(self) -> int:
        """The number of partitions that are not fetched until their metadata changes. Any thread."""
        return sum(not each.fetched and not each.due for each in tuple(self._followed.values()))

    # --- what is followed ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, key: Key, leader_epoch: int, place: Place) -> None:
        """Follow a partition that the leader leads in this epoch. `place` is the position of this broker's log."""
        self._remove(key)
        self._followed[key] = _Followed(leader_epoch, place)
        self._fetched_count += 1
        self._changed[key] = None

    def forget(self, key: Key) -> None:
        """Stop following a partition."""
        self._troubles.pop(key, None)
        self._remove(key)

    def _remove(self, key: Key) -> None:
        found = self._followed.pop(key, None)
        if found is not None:
            self._fetched_count -= found.fetched
            self._changed[key] = None

    def leader_epoch(self, key: Key) -> int:
        """Return the leader epoch in which a partition is followed, or UNDEFINED if the partition is not followed."""
        found = self._followed.get(key)
        return UNDEFINED if found is None else found.leader_epoch

    def note_place(self, key: Key, leader_epoch: int, place: Place) -> None:
        """Note the position of a partition's log, if the partition is still followed in this leader epoch."""
        found = self._present(key, leader_epoch)
        if found is not None and found.place != place:
            if found.place.end != place.end:  # moved to the end, since a response may not have room for all
                self._followed[key] = self._followed.pop(key)
            found.place = place
            self._changed[key] = None

    def delay(self, key: Key, leader_epoch: int, now: float, delay_s: float | None = None) -> None:
        """Do not fetch a partition for `delay_s` seconds; by default, for the fetch back-off."""
        found = self._present(key, leader_epoch)
        if found is not None:
            self._put_off(key, found)
            found.due = now + (self.limits.backoff_s if delay_s is None else delay_s)
            heapq.heappush(self._delayed, (found.due, key))

    def give_up(self, key: Key, leader_epoch: int) -> None:
        """Do not fetch a partition until its metadata changes."""
        found = self._present(key, leader_epoch)
        if found is not None:
            self._put_off(key, found)
            found.due = 0.0

    def is_news(self, key: Key, trouble: object) -> bool:
        """Note a problem of a partition; return whether it differs from the partition's last problem.

        So a lasting problem is logged only once, even if leader epochs change meanwhile.
        """
        if self._troubles.get(key) == trouble:
            return False
        self._troubles[key] = trouble
        return True

    def goes_well(self, key: Key) -> None:
        """Forget the partition's last problem, so that its next problem is logged again."""
        self._troubles.pop(key, None)

    def _present(self, key: Key, leader_epoch: int) -> _Followed | None:
        found = self._followed.get(key)
        return found if found is not None and found.leader_epoch == leader_epoch else None

    def _put_off(self, key: Key, followed: _Followed) -> None:
        self._fetched_count -= followed.fetched
        followed.fetched = False
        self._changed[key] = None

    def asks_for(self, key: Key, leader_epoch: int) -> bool:
        """Return whether this partition is being fetched, and not delayed or given up."""
        found = self._present(key, leader_epoch)
        return found is not None and found.fetched

    def is_told(self, key: Key, place: Place) -> bool:
        """Return whether the leader was sent this position of the partition's log and did not reject it."""
        found = self._followed.get(key)
        return found is not None and found.fetched and self._session.sent.get(key) == (found.leader_epoch, place)

    def take_up(self, now: float) -> None:
        """Include partitions whose delay is over in the next request. `request` calls this first."""
        while self._delayed and self._delayed[0][0] <= now:
            due, key = heapq.heappop(self._delayed)
            found = self._followed.get(key)
            if found is not None and not found.fetched and found.due == due:
                found.fetched = True
                self._fetched_count += 1
                self._changed[key] = None

    def wait(self, now: float) -> float | None:
        """Return the seconds until a partition is due; None if none becomes due by time alone."""
        if self._fetched_count:
            return 0.0
        while self._delayed:
            due, key = self._delayed[0]
            found = self._followed.get(key)
            if found is not None and not found.fetched and found.due == due:
                return max(0.0, due - now)
            heapq.heappop(self._delayed)
        return None

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, now: float) -> FetchRequest | None:
        """Return the next request, or None if no partition is due. The sender adds its own replica id."""
        self.take_up(now)
        if not self._fetched_count:
            return None
        session = self._session
        if session.full:
            wanted = {key: (each.leader_epoch, each.place) for key, each in self._followed.items() if each.fetched}
            forgotten: list[Key] = []
            session.sent = wanted
        else:
            wanted, forgotten = self._news(session.sent)
        self._changed.clear()
        return FetchRequest(
            max_wait_ms=self.limits.wait_ms,
            min_bytes=self.limits.min_bytes,
            max_bytes=self.limits.response_bytes,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=[FetchTopic(topic_id=name, partitions=rows) for name, rows in self._by_topic(wanted)],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=name, partitions=numbers) for name, numbers in _numbers_by_topic(forgotten)
            ],
        )

    def _news(self, sent: dict[Key, tuple[int, Place]]) -> tuple[dict[Key, tuple[int, Place]], list[Key]]:
        """Return (partitions to add to the fetch session or to change in it, partitions to remove from it)."""
        wanted, forgotten = {}, []
        for key in self._changed:
            each = self._followed.get(key)
            if each is None or not each.fetched:
                if sent.pop(key, None) is not None:
                    forgotten.append(key)
            elif sent.get(key) != (each.leader_epoch, each.place):
                wanted[key] = sent[key] = (each.leader_epoch, each.place)
        return wanted, forgotten

    def _by_topic(self, wanted: dict[Key, tuple[int, Place]]) -> Iterable[tuple[bytes, list[FetchPartition]]]:
        topics: dict[bytes, list[FetchPartition]] = {}
        for (topic_id, number), (leader_epoch, place) in wanted.items():
            topics.setdefault(topic_id, []).append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=place.end,
                    last_fetched_epoch=place.last_epoch,
                    log_start_offset=place.start,
                    partition_max_bytes=self.limits.partition_bytes,
                )
            )
        return topics.items()

    # --- responses ----------------------------------------------------------------------------------------------------

    def unanswered(self, now: float) -> None:
        """Note that no response came. Delay the partitions in the request; the next request opens a new session."""
        self._session.begin_again(known=True)
        self._delay_all(now)

    def _delay_all(self, now: float) -> None:
        for key, each in self._followed.items():
            if each.fetched:
                self.delay(key, each.leader_epoch, now)

    def answered(self, response: FetchResponse, now: float) -> list[Step]:
        """Return the steps that a response to the last request requires, in order. A step is a change of a log.

        A partition's response is used only if its log is still at the requested position in the same leader epoch.
        """
        if response.error_code:
            self._refused(response.error_code, now)
            return []
        self._failures = 0
        self._session.answered(response.session_id)
        return list(self._steps(response, now))

    def _refused(self, code: int, now: float) -> None:
        self._session.begin_again(known=code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._failures += 1
        if code not in _SESSION_CODES or self._failures > 1:
            logger.warning("the leader refused a fetch request", extra=fields(fetcher=self._name, code=code))
            self._delay_all(now)

    def _steps(self, response: FetchResponse, now: float) -> Iterator[Step]:
        for topic in response.responses:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                found = self._followed.get(key)
                if found is None or not found.fetched:
                    continue
                if self._session.sent.get(key) == (found.leader_epoch, found.place):
                    step = self._step(key, found, part, now)
                    if step is not None:
                        yield step

    def _step(self, key: Key, followed: _Followed, part: PartitionData, now: float) -> Step | None:
        code, epoch = part.error_code, followed.leader_epoch
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return OutOfRange(key, epoch)
        if not code:
            followed.early = 0
            diverging = part.diverging_epoch
            if diverging.epoch >= 0 or diverging.end_offset >= 0:
                return Diverged(key, epoch, diverging.epoch, diverging.end_offset)
            return Append(key, epoch, part.records or b"", part.high_watermark, part.log_start_offset)
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            level, message = logging.DEBUG, "a partition has a newer leader; waiting for metadata that names it"
            self.give_up(key, epoch)
        elif code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            level = logging.ERROR
            message = "cannot replicate a partition, because its leader keeps a part of it in tiered storage"
            self.give_up(key, epoch)
        elif code in _METADATA_CODES:
            level, message = logging.DEBUG, "the leader is not ready to serve a partition"
            self.delay(key, epoch, now, min(self.limits.backoff_s, EARLY_S * 2**followed.early))
            followed.early = min(followed.early + 1, EARLY_MAX)
        else:
            level, message = logging.WARNING, "the leader refused to serve a partition"
            self.delay(key, epoch, now)
        if level > logging.DEBUG and not self.is_news(key, code):
            level = logging.DEBUG
        named = fields(fetcher=self._name, topic_id=uuid_text(key[0]), partition=key[1], code=code, epoch=epoch)
        logger.log(level, message, extra=named)
        return None


def _numbers_by_topic(keys: Iterable[Key]) -> Iterable[tuple[bytes, list[int]]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, []).append(number)
    return topics.items()

"""What a broker asks the leader of partitions that it follows, and what the answers are to do to its logs.

    follow, forget ─▶ request(now) ─▶ somebody sends it ─▶ answered(answer, now) ─▶ steps: somebody carries them out
                                                        └▶ unanswered(now)          and tells: stands, delay, give_up

Of one leader, whatever it leads here; many partitions go into one request, in an incremental session (KIP-227), so that
those without news cost nothing. Where histories part is said by the leader's answer to the epoch of the newest batch
(KIP-595), and `divergence` says what that means here. An answer counts for a partition that still stands where it was
asked for, in the same epoch; any other comes too late.

Source: AbstractFetcherThread, ReplicaFetcherThread, FetchSessionHandler of Kafka 4.1. Pure; one thread's.
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
"""One of both has not yet the newest metadata: no news for the log."""
EARLY_MAX: Final = 12
EARLY_S: Final = 0.02
"""Before such a one is asked for again, the first time; then twice as long each time, up to the back-off. An election
reaches the brokers at about the same time, and who writes with acks=all waits for the followers."""


class Place(NamedTuple):
    """Where a log stands."""

    end: int
    """The offset that is fetched next."""
    last_epoch: int
    """Of its newest batch; UNDEFINED where there is none."""
    start: int


class Append(NamedTuple):
    """Records of the leader's, maybe none, and what it says of the log besides."""

    key: Key
    leader_epoch: int
    records: bytes | memoryview
    high_watermark: int
    log_start: int


class OutOfRange(NamedTuple):
    """The leader's log neither has the log's end nor ends there: it is to be asked where it does."""

    key: Key
    leader_epoch: int


Step = Append | Diverged | OutOfRange


class Limits(NamedTuple):
    """Of requests."""

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
    """What the leader was told of partitions, and how the next request refers to that."""

    __slots__ = ("epoch", "id", "sent")

    def __init__(self) -> None:
        self.id = _NO_SESSION
        self.epoch = 0
        self.sent: dict[Key, tuple[int, Place]] = {}

    @property
    def full(self) -> bool:
        """Whether the next request has all partitions in it."""
        return self.epoch == 0

    def begin_again(self, *, known: bool) -> None:
        """The next request asks for a new one, in place of the present where the leader may know that."""
        if not known:
            self.id = _NO_SESSION
        self.epoch = 0

    def answered(self, session_id: int) -> None:
        """The last request was, with this one's id."""
        if session_id == _NO_SESSION or (self.epoch > 0 and session_id != self.id):
            self.begin_again(known=False)
            return
        self.id = session_id
        self.epoch = self.epoch + 1 if self.epoch < EPOCH_MAX else 1


class _Followed:
    """A partition."""

    __slots__ = ("due", "early", "fetched", "leader_epoch", "place")

    def __init__(self, leader_epoch: int, place: Place) -> None:
        self.leader_epoch = leader_epoch
        self.place = place
        self.fetched = True
        """Whether it is asked for now."""
        self.due = 0.0
        """When it is, if not; 0: when metadata says so."""
        self.early = 0
        """How often in a row one of both had not yet the newest metadata."""


class Follower:
    """See the module. `name` is for what is logged."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self.limits = limits
        self._followed: dict[Key, _Followed] = {}  # in the order in which they are asked for
        self._fetched_count = 0
        self._changed: dict[Key, None] = {}  # those of which the session may have to be told
        self._delayed: list[tuple[float, Key]] = []  # a heap; what is no longer true of one is passed over
        self._session = _Session()
        self._failures = 0  # answers in a row that were none
        self._troubles: dict[Key, object] = {}  # what was told last of partitions that cannot be copied now

    @property
    def given_up(self) -> int:
        """Partitions that are not asked for until metadata says something else of them. Any thread."""
        return sum(not each.fetched and not each.due for each in tuple(self._followed.values()))

    # --- what is followed ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, key: Key, leader_epoch: int, place: Place) -> None:
        """The leader leads this partition in this epoch; the log here stands there."""
        self._remove(key)
        self._followed[key] = _Followed(leader_epoch, place)
        self._fetched_count += 1
        self._changed[key] = None

    def forget(self, key: Key) -> None:
        """It leads it no longer, or it is not followed any more."""
        self._troubles.pop(key, None)
        self._remove(key)

    def _remove(self, key: Key) -> None:
        found = self._followed.pop(key, None)
        if found is not None:
            self._fetched_count -= found.fetched
            self._changed[key] = None

    def leader_epoch(self, key: Key) -> int:
        """With which a partition is asked for; UNDEFINED for one that is not."""
        found = self._followed.get(key)
        return UNDEFINED if found is None else found.leader_epoch

    def stands(self, key: Key, leader_epoch: int, place: Place) -> None:
        """The log of a partition that is asked for in this epoch stands there now."""
        found = self._present(key, leader_epoch)
        if found is not None and found.place != place:
            if found.place.end != place.end:  # others get their turn first, where not all fits into an answer
                self._followed[key] = self._followed.pop(key)
            found.place = place
            self._changed[key] = None

    def delay(self, key: Key, leader_epoch: int, now: float, delay_s: float | None = None) -> None:
        """It is asked for again a while later: after the back-off, unless a time is given."""
        found = self._present(key, leader_epoch)
        if found is not None:
            self._put_off(key, found)
            found.due = now + (self.limits.backoff_s if delay_s is None else delay_s)
            heapq.heappush(self._delayed, (found.due, key))

    def give_up(self, key: Key, leader_epoch: int) -> None:
        """It is not asked for until metadata says something else of it."""
        found = self._present(key, leader_epoch)
        if found is not None:
            self._put_off(key, found)
            found.due = 0.0

    def is_news(self, key: Key, trouble: object) -> bool:
        """Whether something else was the trouble with a partition before, or nothing: so that what lasts for hours is
        told once, in whatever epochs."""
        if self._troubles.get(key) == trouble:
            return False
        self._troubles[key] = trouble
        return True

    def goes_well(self, key: Key) -> None:
        """The next trouble is news."""
        self._troubles.pop(key, None)

    def _present(self, key: Key, leader_epoch: int) -> _Followed | None:
        found = self._followed.get(key)
        return found if found is not None and found.leader_epoch == leader_epoch else None

    def _put_off(self, key: Key, followed: _Followed) -> None:
        self._fetched_count -= followed.fetched
        followed.fetched = False
        self._changed[key] = None

    def asks_for(self, key: Key, leader_epoch: int) -> bool:
        """Whether the next request has this partition in it, or its session has."""
        found = self._present(key, leader_epoch)
        return found is not None and found.fetched

    def is_told(self, key: Key, place: Place) -> bool:
        """Whether the leader has heard that the log of a partition stands there, and has nothing to say against it."""
        found = self._followed.get(key)
        return found is not None and found.fetched and self._session.sent.get(key) == (found.leader_epoch, place)

    def take_up(self, now: float) -> None:
        """What has waited long enough is asked for again; a request begins with that."""
        while self._delayed and self._delayed[0][0] <= now:
            due, key = heapq.heappop(self._delayed)
            found = self._followed.get(key)
            if found is not None and not found.fetched and found.due == due:
                found.fetched = True
                self._fetched_count += 1
                self._changed[key] = None

    def wait(self, now: float) -> float | None:
        """The seconds until there is something to ask; None: when something is followed."""
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
        """What to send now, None for nothing. Who asks is for the sender to say."""
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
        """(what the session is to be told, which partitions it is to forget)"""
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

    # --- answers ------------------------------------------------------------------------------------------------------

    def unanswered(self, now: float) -> None:
        """No answer came: all wait a while, and the next one asks for all."""
        self._session.begin_again(known=True)
        self._delay_all(now)

    def _delay_all(self, now: float) -> None:
        for key, each in self._followed.items():
            if each.fetched:
                self.delay(key, each.leader_epoch, now)

    def answered(self, response: FetchResponse, now: float) -> list[Step]:
        """What the answer to the last request is to do to the logs, in this order."""
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

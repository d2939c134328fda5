"""What ports of other clients share: which partitions are theirs, and who is told when that changes.

Thread rule: one thread at a time, that of the runner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.read.marks import EpochHistory
from kafkalite.failures.events import Message
from kafkalite.failures.runner import CommitRefused, Fetch
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

FETCH_WAIT_MS: Final = 50
"""How long a broker may keep a fetch that finds nothing, unless the caller's configuration says otherwise.

confluent-kafka and aiokafka have one fetch at a broker at a time, so a partition that is resumed waits until the fetch
of the others has returned: with their own default, 500 ms, for up to half a second after each `ahead_max` records.
"""


class Listening(ABC):
    """See the module. Partitions are given up once, whoever says so first: the client, or `leave`."""

    reports_damage = False
    """These clients ask for a batch that a broker calls damaged again and again, and say nothing."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self._epochs: dict[TopicPartition, EpochHistory] = {}
        self._on_assigned: Callable[[list[TopicPartition]], None] | None = None
        self._on_revoked: Callable[[list[TopicPartition]], None] | None = None
        self._on_lost: Callable[[list[TopicPartition]], None] | None = None

    def listen(
        self,
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        """Who is to be told."""
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost

    def assigned(self, partitions: Iterable[Any]) -> None:
        """The client says that these came."""
        fresh = sorted({TopicPartition(one.topic, one.partition) for one in partitions} - self.owned)
        self.owned.update(fresh)
        if fresh and self._on_assigned is not None:
            self._on_assigned(fresh)

    def revoked(self, partitions: Iterable[Any]) -> None:
        """The client says that these are about to go."""
        going = sorted({TopicPartition(one.topic, one.partition) for one in partitions} & self.owned)
        if going and self._on_revoked is not None:
            self._on_revoked(going)
        self._let_go(going)

    def lost(self, partitions: Iterable[Any]) -> None:
        """The client says that these are gone."""
        gone = sorted({TopicPartition(one.topic, one.partition) for one in partitions} & self.owned)
        self._let_go(gone)
        if gone and self._on_lost is not None:
            self._on_lost(gone)

    def _let_go(self, partitions: list[TopicPartition]) -> None:
        self.owned.difference_update(partitions)
        for partition in partitions:
            self._epochs.pop(partition, None)

    def note_epoch(self, partition: TopicPartition, offset: int, epoch: int | None) -> None:
        """A record was read that has this leader epoch."""
        history = self._epochs.get(partition)
        if history is None:
            history = self._epochs[partition] = EpochHistory(offset)
        history.extend(((offset, -1 if epoch is None else epoch),), offset + 1)

    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """The leader epoch to commit with an offset: that of the record before it, -1 where it is not known (KIP-320).
        Any thread."""
        history = self._epochs.get(partition)
        return -1 if history is None else history.before(offset)

    def fetches(self, found: Mapping[Any, Sequence[Any]]) -> list[Fetch]:
        """What kafka-python and aiokafka read, both in the same shape, of the partitions that are still owned."""
        fetches = []
        for place, rows in found.items():
            partition = TopicPartition(place.topic, place.partition)
            for row in rows:
                self.note_epoch(partition, row.offset, getattr(row, "leader_epoch", None))  # aiokafka has none
            messages = [
                Message(
                    row.topic,
                    row.partition,
                    row.offset,
                    row.timestamp,
                    row.key,
                    row.value,
                    tuple(row.headers or ()),
                    row.timestamp_type or 0,
                )
                for row in rows
            ]
            fetches.append(Fetch(partition, messages, messages[-1].offset + 1))
        return [fetch for fetch in fetches if fetch.partition in self.owned]

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """CommitRefused."""

    def commit_soon(self, offsets: Mapping[TopicPartition, int], ended: Callable[[Exception | None], None]) -> None:
        """Waits, where a client has no better way."""
        try:
            self.commit(offsets)
        except CommitRefused as error:
            ended(error)
        else:
            ended(None)

    def settle(self) -> None:  # noqa: B027  # a port may have no commit under way, ever
        """Nothing is under way."""

    def leave(self) -> None:
        """All are given up, before the client is closed: some do not say so themselves."""
        self.revoked(set(self.owned))

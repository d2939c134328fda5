"""Base class of the adapters for other clients: tracks owned partitions, paused partitions and leader epochs.

Thread rule: one thread at a time, that of the runner, except for `epoch_before`.
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
"""How long a broker may hold an empty fetch, unless the configuration sets it.

confluent-kafka and aiokafka send one fetch per broker at a time, so a resumed partition waits until the fetch of the
others returns: with their default of 500 ms, for up to half a second after each `ahead_max` records.
"""


KEPT_MAX: Final = 1000
KEPT_BYTES_MAX: Final = 4 << 20
"""Records of a paused partition, and bytes of their values, at which the client is paused, too."""


class Listening(ABC):
    """Base of the adapters for confluent-kafka, kafka-python and aiokafka.

    Each partition is given up only once: by the client's callback or by `leave`.

    A paused partition is still read up to a limit, and its records are kept until it is resumed. Only at that limit is
    the client itself paused. The reason: some clients drop the fetched records of a paused partition, and some delay
    its next fetch after the resume.
    """

    reports_damage = False
    """`poll` does not raise DamagedBatch; the runner finds damaged batches."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self._epochs: dict[TopicPartition, EpochHistory] = {}
        self._paused: set[TopicPartition] = set()
        self._kept: dict[TopicPartition, list[Fetch]] = {}
        self._halted: set[TopicPartition] = set()
        """Partitions that are paused in the client."""
        self._on_assigned: Callable[[list[TopicPartition]], None] | None = None
        self._on_revoked: Callable[[list[TopicPartition]], None] | None = None
        self._on_lost: Callable[[list[TopicPartition]], None] | None = None

    def listen(
        self,
        on_assigned: Callable[[list[TopicPartition]], None],
        on_revoked: Callable[[list[TopicPartition]], None],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        """Set the callbacks for changes of the owned partitions."""
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost

    def assigned(self, partitions: Iterable[Any]) -> None:
        """Add partitions that were assigned to the client."""
        fresh = sorted({TopicPartition(one.topic, one.partition) for one in partitions} - self.owned)
        self.owned.update(fresh)
        if fresh and self._on_assigned is not None:
            self._on_assigned(fresh)

    def revoked(self, partitions: Iterable[Any]) -> None:
        """Give up partitions that the client must revoke."""
        going = sorted({TopicPartition(one.topic, one.partition) for one in partitions} & self.owned)
        if going and self._on_revoked is not None:
            self._on_revoked(going)
        self._let_go(going)

    def lost(self, partitions: Iterable[Any]) -> None:
        """Drop partitions that the client has lost."""
        gone = sorted({TopicPartition(one.topic, one.partition) for one in partitions} & self.owned)
        self._let_go(gone)
        if gone and self._on_lost is not None:
            self._on_lost(gone)

    def _let_go(self, partitions: list[TopicPartition]) -> None:
        self.owned.difference_update(partitions)
        for partition in partitions:
            self._epochs.pop(partition, None)
            self._kept.pop(partition, None)
        self._paused.difference_update(partitions)
        self._halted.difference_update(partitions)

    # --- reading ------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[Fetch]:
        ready = any(partition not in self._paused for partition in self._kept)
        read = self._read(0.0 if ready else timeout_s)
        # Only after _read, which may give up partitions together with their kept records.
        found = [
            fetch
            for partition in [one for one in self._kept if one not in self._paused]
            for fetch in self._kept.pop(partition)
        ]
        for fetch in read:
            if fetch.partition in self._paused:
                self._keep(fetch)
            else:
                found.append(fetch)
        return found

    def _keep(self, fetch: Fetch) -> None:
        partition = fetch.partition
        kept = self._kept.setdefault(partition, [])
        kept.append(fetch)
        sizes = [len(message.value or b"") for one in kept for message in one.messages]
        if partition not in self._halted and (len(sizes) >= KEPT_MAX or sum(sizes) >= KEPT_BYTES_MAX):
            self._halted.add(partition)
            self._halt(partition)

    def pause(self, partition: TopicPartition) -> None:
        self._paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self._paused.discard(partition)
        if partition in self._halted:
            self._halted.discard(partition)
            self._unhalt(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._kept.pop(partition, None)
        self._seek(partition, offset)

    def position(self, partition: TopicPartition) -> int:
        kept = self._kept.get(partition)
        return kept[0].messages[0].offset if kept else self._position(partition)

    @abstractmethod
    def _read(self, timeout_s: float) -> list[Fetch]:
        """Poll the client and return what it fetched, without empty fetches."""

    @abstractmethod
    def _halt(self, partition: TopicPartition) -> None:
        """Pause the partition in the client."""

    @abstractmethod
    def _unhalt(self, partition: TopicPartition) -> None:
        """Resume the partition in the client."""

    @abstractmethod
    def _seek(self, partition: TopicPartition, offset: int) -> None:
        """Make the client read from this offset."""

    @abstractmethod
    def _position(self, partition: TopicPartition) -> int:
        """Return the offset that the client reads next; -1 if it is not known."""

    # --- partitions ---------------------------------------------------------------------------------------------------

    def note_epochs(self, partition: TopicPartition, epochs: Sequence[tuple[int, int]]) -> None:
        """Store the leader epochs of records that were read; `epochs` are (offset, epoch) pairs, with epoch -1 if
        unknown.
        """
        history = self._epochs.get(partition)
        if history is None:
            history = self._epochs[partition] = EpochHistory(epochs[0][0])
        history.extend(epochs, epochs[-1][0] + 1)

    def epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch to commit with an offset (KIP-320).

        This is the epoch of the record before the offset; -1 if unknown. Any thread may call the method.
        """
        history = self._epochs.get(partition)
        return -1 if history is None else history.before(offset)

    def fetches(self, found: Mapping[Any, Sequence[Any]]) -> list[Fetch]:
        """Convert the records that kafka-python or aiokafka returned. Leave out partitions that are no longer owned."""
        fetches = []
        for place, rows in found.items():
            partition = TopicPartition(place.topic, place.partition)
            self.note_epochs(partition, [(row.offset, known(getattr(row, "leader_epoch", None))) for row in rows])
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
        """Commit offsets and wait. Raises CommitRefused."""

    def commit_soon(self, offsets: Mapping[TopicPartition, int], ended: Callable[[Exception | None], None]) -> None:
        """Commit offsets, wait, and call `ended` with the error or None.

        This method is for clients that can commit only synchronously.
        """
        try:
            self.commit(offsets)
        except CommitRefused as error:
            ended(error)
        else:
            ended(None)

    def settle(self) -> None:  # noqa: B027  # a port may never have a commit under way
        """Return at once: `commit_soon` has already waited for every commit."""

    def leave(self) -> None:
        """Give up all partitions before the client is closed: some clients call no callback when they close."""
        self.revoked(set(self.owned))


def known(epoch: int | None) -> int:
    """Return a leader epoch, or -1 if the client does not know it (aiokafka does not report it)."""
    return -1 if epoch is None else epoch

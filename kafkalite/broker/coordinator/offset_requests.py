"""Handle OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and transaction markers, for all groups.

    1  a commit is checked, then allowed or refused under the group's lock
    2  its offsets are written to `__consumer_offsets`
    3  when the records are durable, the offsets become visible
    4  offsets in a transaction instead become visible when the transaction's commit marker is durable

Each group keeps its offsets (`group_offsets.GroupOffsets`).

Source: OffsetMetadataManager of Kafka 4.1.

Thread rule: any thread may call anything; nothing here waits for a disk. The table's lock, a leaf, guards
`_in_transactions` and `_watches`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.base.deferred import Deferred, completed
from kafkalite.broker.coordinator.base import write_error
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.coordinator.group_offsets import UNSTABLE, Committed
from kafkalite.broker.coordinator.records import Record, offset_record
from kafkalite.broker.coordinator.shard_epoch import NO_EPOCH, ShardEpoch
from kafkalite.broker.coordinator.state_log import Watch
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalite.broker.coordinator.base import GroupBase
    from kafkalite.broker.coordinator.group_table import GroupTable
    from kafkalite.broker.coordinator.state_log import StateLog
    from kafkalite.broker.coordinator.timer_queue import Timer, TimerQueue
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.wire.record.batches import Producer


class Offset(NamedTuple):
    """An offset to commit, for one partition."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str


class CommittedOffsets:
    """Commits, fetches and deletes the offsets of this broker's groups."""

    def __init__(
        self, config: BrokerConfig, logs: LogManager, timers: TimerQueue, log: StateLog, table: GroupTable
    ) -> None:
        self._config = config
        self._logs = logs
        self._timers = timers
        self._log = log
        self._table = table
        self._in_transactions: dict[tuple[int, int], set[GroupBase]] = {}  # (partition, producer id), by table.lock
        self._watches: dict[tuple[int, int], list[Watch]] = {}  # (partition, producer id), guarded by table.lock

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Sequence[Offset],
        *,
        retention_ms: int = -1,
        version: int = 9,
        producer: Producer | None = None,
        watch: Watch | None = None,
        holder: Holder | None = None,
    ) -> Deferred[list[int]]:
        """Commit offsets. When the commit is durable, the Deferred gets a code for each of `offsets`, in their order.

        Partitions that do not exist are refused before the group is checked. `version` is the version of OffsetCommit.
        If the group is new, it is charged to `holder`.

        With `producer`, the offsets belong to the producer's transaction and take effect when it commits. In that case
        the caller has checked that the transaction is open, or was open when `watch` began.
        """
        codes = self._unknown(offsets)
        if all(codes):
            self.unwatch(watch)
            return completed(codes)
        code = self._table.error_of(group_id, may_be_empty=producer is None)
        group = None
        if not code and generation < 0:
            group, code = self._table.lookup_or_new(group_id, holder, Group)
        elif not code:
            group, code = self._table.lookup(group_id, may_be_empty=producer is None)
            if group is None and not code:
                code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
        answer: Deferred[list[int]] = Deferred()
        accepted: dict[TopicPartition, Committed] = {}
        if group is not None:
            # Before taking the lock that other members' heartbeats wait for. No checkpoint under a transaction's lock.
            wanted, refused = self._acceptable(offsets, codes, retention_ms, rests=producer is None)
            records = [
                offset_record(group_id, partition.topic, partition.partition, committed.stored())
                for partition, committed in (checkpointed(wanted.items()) if producer is None else wanted.items())
            ]
            with group.changing():
                code = group.commit_error_locked(
                    member_id, instance_id, generation, version, transactional=producer is not None
                )
                if watch is not None and watch.home != group.environment.home:
                    code = code or ErrorCode.NOT_COORDINATOR  # the watch has not seen all markers
                if not code:
                    codes = refused
                if not code and wanted:
                    group.offsets.order += 1
                    order = group.offsets.order
                    accepted = {partition: Committed(*made[:-1], order) for partition, made in wanted.items()}
                    self._write_commit(group, accepted, records, codes, answer, producer, watch)
        if not accepted:
            self.unwatch(watch)
            answer.complete(_filled(codes, code))
        return answer

    def _unknown(self, offsets: Sequence[Offset]) -> list[int]:
        """Return a code for each of `offsets`: UNKNOWN_TOPIC_OR_PARTITION if the partition does not exist, else 0."""
        topics = self._logs.topics
        codes = []
        for asked in offsets:
            topic = topics.get(asked.partition.topic)
            there = topic is not None and 0 <= asked.partition.partition < len(topic.partitions)
            codes.append(0 if there else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return codes

    def _acceptable(
        self, offsets: Sequence[Offset], codes: list[int], retention_ms: int, *, rests: bool
    ) -> tuple[dict[TopicPartition, Committed], list[int]]:
        """Return (the offsets that may be committed, without `order`; a code for each of `offsets`).

        With `rests`, other requests can run while a long list is checked.
        """
        now_ms = self._timers.clock.time_ms()
        expire_ms = -1 if retention_ms < 0 else now_ms + retention_ms
        topics = self._logs.topics
        accepted: dict[TopicPartition, Committed] = {}
        refused = codes.copy()
        for number, asked in enumerate(checkpointed(offsets) if rests else offsets):
            topic = topics.get(asked.partition.topic)
            if refused[number]:
                continue
            if topic is None:
                refused[number] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif len(asked.metadata.encode()) > self._config.offset_metadata_max_bytes:
                refused[number] = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                accepted[asked.partition] = Committed(
                    asked.offset, asked.leader_epoch, asked.metadata, now_ms, expire_ms, topic.id
                )
        return accepted, refused

    def _write_commit(
        self,
        group: GroupBase,
        accepted: dict[TopicPartition, Committed],
        records: list[Record],
        codes: list[int],
        answer: Deferred[list[int]],
        producer: Producer | None,
        watch: Watch | None,
    ) -> None:
        """Write a commit under the group's lock, so that commits are written in the order in which they were
        allowed.
        """
        overdue = self._answer_later(codes, answer) if self._log.waits_for_others(group.group_id) else None
        group.open_commits.update(accepted.keys())
        if producer is not None:
            group.offsets.open_transactional.update(accepted.keys())

        def stored(code: int) -> None:
            self.unwatch(watch)
            with group.changing():
                group.open_commits.subtract(accepted.keys())
                group.open_commits += Counter()  # drops what is at zero
                if producer is not None:
                    group.offsets.open_transactional.subtract(accepted.keys())
                    group.offsets.open_transactional += Counter()
                if code == 0:
                    for partition, committed in accepted.items():
                        if producer is None:
                            group.offsets.apply(partition, committed)
                        else:
                            group.offsets.put_pending(producer.producer_id, partition, committed)
                    if producer is not None:
                        self._note_transaction(group, producer.producer_id)
            if overdue is not None:
                overdue.cancel()
            answer.complete(_filled(codes, write_error(code)))

        group.environment.write(group.group_id, records, stored, producer, watch)

    def _answer_later(self, codes: list[int], answer: Deferred[list[int]]) -> Timer:
        """Start a timer that answers the commit with a retriable error if the other replicas take too long.

        The commit may still take effect. Source: offsets.commit.timeout.ms of Kafka 4.1 (GroupCoordinatorService).
        """
        timer = self._timers.timer(lambda: answer.complete(_filled(codes, ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        timer.set(self._config.offsets_commit_timeout_ms / 1000)
        return timer

    # --- transactions -------------------------------------------------------------------------------------------------

    def installed(self, group: GroupBase) -> None:
        """Note the open transactions of a group that was read from the log."""
        for producer_id in group.offsets.producers():
            self._note_transaction(group, producer_id)

    def succeed_locked(self, group: GroupBase, successor: GroupBase) -> None:
        """Let `successor` replace a group in its open transactions. The table's lock is held."""
        for groups in self._in_transactions.values():
            if group in groups:
                groups.remove(group)
                groups.add(successor)

    def drop_partition_locked(self, number: int) -> None:
        """Forget the open transactions of a partition of `__consumer_offsets` that was unloaded. The table's lock is
        held.
        """
        for key in [key for key in self._in_transactions if key[0] == number]:
            del self._in_transactions[key]

    def _note_transaction(self, group: GroupBase, producer_id: int) -> None:
        home = group.environment.home
        key = self._log.partition_of(group.group_id) if home is None else home.partition, producer_id
        with self._table.lock:
            present = self._table.groups.get(group.group_id)
            if present is not None and present.offsets is group.offsets:  # else it was dropped meanwhile
                self._in_transactions.setdefault(key, set()).add(present)

    def watch(self, partition: int, producer_id: int, ended_by: int) -> Watch:
        """Watch for a marker that ends a producer's transaction in a partition of `__consumer_offsets`. In a cluster
        only.

        Only a marker with producer epoch `ended_by` or later counts. The watch ends with the first commit that uses it,
        or with `unwatch`.
        """
        assert self._log.led is not None, "in a cluster alone"
        watch = Watch(self._log.led.home(partition), producer_id, ended_by)
        with self._table.lock:
            self._watches.setdefault((partition, producer_id), []).append(watch)
        return watch

    def unwatch(self, watch: Watch | None) -> None:
        """End a watch, if there is one."""
        if watch is None:
            return
        key = watch.home.partition, watch.producer_id
        with self._table.lock:
            watches = self._watches.get(key, [])
            if watch in watches:
                watches.remove(watch)
            if not watches:
                self._watches.pop(key, None)

    def write_marker(
        self,
        partition: int,
        append: Callable[[PartitionLog], int],
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        callback: Callable[[int], object],
    ) -> None:
        """End a producer's transaction in a partition of `__consumer_offsets`.

        `append` appends the marker, after all commits that are already queued. When the marker is durable, it commits
        or drops the pending offsets; then `callback` gets 0. If the partition is not served, `callback` gets
        NOT_LEADER_OR_FOLLOWER, because the marker would miss offsets that are still being read.
        """
        led = self._log.led
        home = ShardEpoch(partition, NO_EPOCH) if led is None else led.home(partition)
        if led is not None and home.epoch == NO_EPOCH:
            callback(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return

        def append_seen(log: PartitionLog) -> int:
            end_offset = append(log)
            with self._table.lock:
                for watch in self._watches.get((partition, producer_id), ()):
                    watch.ended = watch.ended or producer_epoch >= watch.ended_by
            return end_offset

        def stored(code: int) -> None:
            if code == 0:
                with self._table.lock:  # a later load has the marker, and perhaps the next transaction
                    now = led is None or led.epoch_of(partition) == home.epoch
                    groups = self._in_transactions.pop((partition, producer_id), set()) if now else set()
                for group in groups:
                    with group.changing():
                        group.offsets.end(producer_id, commit=commit)
            callback(code)

        self._log.append(home, append_seen, stored)

    # --- fetch and delete ---------------------------------------------------------------------------------------------

    def fetch_error(self, group_id: str, member_id: str | None, member_epoch: int) -> int:
        """Return the error code if this member may not fetch a group's offsets now, else 0."""
        group, code = self._table.lookup(group_id, may_be_empty=True)
        if group is None:
            return code
        with group.changing():
            return group.fetch_error_locked(member_id, member_epoch)

    def fetch(
        self, group_id: str, topic: str, partitions: Iterable[int], *, stable: bool = False
    ) -> list[Committed | None]:
        """Return a group's committed offsets for `partitions` of a topic, None for each without one. Check `error_of`
        first.

        With `stable`, an offset that an open transaction may replace is UNSTABLE (KIP-447).
        """
        group = self._table.get(group_id)
        if group is None:
            return [None for _ in partitions]
        known = self._logs.topics.get(topic)
        topic_id = None if known is None else known.id
        with group.changing():
            found = [
                UNSTABLE
                if stable and group.offsets.is_unstable(TopicPartition(topic, number))
                else group.offsets.get(topic, number)
                for number in partitions
            ]
        return [item if item is not None and item.belongs_to(topic_id) else None for item in found]

    def committed_partitions(self, group_id: str) -> dict[str, list[int]]:
        """Return topic → partitions that have committed offsets in a group."""
        group = self._table.get(group_id)
        if group is None:
            return {}
        with group.changing():
            return {topic: group.offsets.of_topic(topic) for topic in group.offsets.topics()}

    def delete(self, group_id: str, partitions: list[TopicPartition]) -> Deferred[tuple[int, dict[str, int]]]:
        """Handle OffsetDelete. The result is (code for the request, topic → code for each refused topic).

        Offsets of topics to which the group subscribes are not deleted; these topics get GROUP_SUBSCRIBED_TO_TOPIC.
        """
        group, code = self._table.lookup(group_id)
        if group is None:
            return completed((code or int(ErrorCode.GROUP_ID_NOT_FOUND), {}))
        answer: Deferred[tuple[int, dict[str, int]]] = Deferred()
        codes: dict[str, int] = {}
        with group.changing():
            code = group.offset_delete_error_locked()
            if group.dead:
                code = self._table.error_of(group_id) or code  # it was dropped meanwhile
            if not code:
                codes = {
                    topic: int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                    for topic in {partition.topic for partition in partitions}
                    if group.subscribes_locked(topic)
                }
            gone = [] if code else [partition for partition in partitions if partition.topic not in codes]
            gone = [p for p in gone if group.knows_offset_locked(p)]
            if gone:
                self.erase_locked(group, gone, lambda failure: answer.complete((failure, {} if failure else codes)))
        if not gone:
            answer.complete((code, codes))
        return answer

    def erase_locked(
        self, group: GroupBase, partitions: list[TopicPartition], callback: Callable[[int], object] | None = None
    ) -> None:
        """Write tombstones for offsets, and drop the offsets when the tombstones are durable.

        Then call callback(code), without the lock.
        """

        def erased(code: int) -> None:
            if code == 0:
                with group.changing():
                    group.offsets.remove(partitions)
            if callback is not None:
                callback(write_error(code))

        records = [offset_record(group.group_id, *p, None) for p in partitions]
        group.environment.write(group.group_id, records, erased)

    def topic_deleted(self, name: str) -> None:
        """Delete the offsets of a deleted topic."""
        for group in self._table.all():
            with group.changing():
                numbers = {*group.offsets.of_topic(name)}
                numbers |= {p.partition for p in (*group.open_commits, *group.offsets.pending()) if p.topic == name}
                if numbers:
                    self.erase_locked(group, [TopicPartition(name, number) for number in sorted(numbers)])

    def erase_foreign(self, group: GroupBase) -> None:
        """Delete offsets whose topic id is that of an earlier topic of the same name.

        Such offsets remain if a crash prevented the write of their tombstones.
        """
        topics = self._logs.topics
        with group.changing():
            foreign = [
                partition
                for partition, committed in group.offsets
                if partition.topic in topics and not committed.belongs_to(topics[partition.topic].id)
            ]
            if foreign:
                self.erase_locked(group, foreign)


def _filled(codes: list[int], code: int) -> list[int]:
    """Return the codes with each 0 replaced by `code`."""
    return [known or int(code) for known in codes]

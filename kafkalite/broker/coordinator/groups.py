"""Coordinate all consumer groups of this broker: dispatch requests, load and delete groups, expire offsets and groups.

    GroupCoordinator ─┬─▶ GroupTable         the groups
                      ├─▶ CommittedOffsets   their committed offsets
                      └─▶ Shards             the partitions that are served

If a partition of `__consumer_offsets` cannot be read, its groups are not served. An error is better than a response
that ignores committed offsets.

Thread rule: any thread may call anything; only loading (`read_log`) waits for a disk. `_lock` guards the issued member
ids. It is a leaf: it may be taken under a group's lock, never the other way round.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalite._native.wire.codec import CodecError
from kafkalite.base.deferred import Deferred, completed
from kafkalite.base.executors import THREADS
from kafkalite.base.logging import EVENT_LINES, RepeatLogger, fields
from kafkalite.broker.coordinator.base import CONSUMER_PROTOCOL, Environment, GroupBase, write_error
from kafkalite.broker.coordinator.consumer_environment import ConsumerEnvironment, Timing
from kafkalite.broker.coordinator.consumer_group import ConsumerGroup
from kafkalite.broker.coordinator.consumer_heartbeats import JOIN_EPOCH, HeartbeatCaller, refusal
from kafkalite.broker.coordinator.conversion import not_converted, upgraded
from kafkalite.broker.coordinator.group import Group
from kafkalite.broker.coordinator.group_replay import GroupReplay
from kafkalite.broker.coordinator.group_table import GroupTable
from kafkalite.broker.coordinator.metadata_hash import MetadataHashes, OwnRack
from kafkalite.broker.coordinator.offset_requests import CommittedOffsets
from kafkalite.broker.coordinator.records import GroupMetadataValue, Record, offset_record
from kafkalite.broker.coordinator.shards import Shards
from kafkalite.broker.coordinator.state_log import OFFSETS_TOPIC, StateLog
from kafkalite.broker.coordinator.timer_queue import TimerQueue
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import (
    ErrorCode,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    KafkaError,
    error_for,
)
from kafkalite.wire.protocol.messages.join_group import JoinGroupResponse
from kafkalite.wire.protocol.messages.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from kafkalite._native.serve.memory import MemoryCeiling
    from kafkalite.base.clock import Clock
    from kafkalite.base.executors import Executors
    from kafkalite.base.pool import IoPool
    from kafkalite.broker.coordinator.consumer_state import ConsumerState
    from kafkalite.broker.coordinator.members import Caller
    from kafkalite.broker.coordinator.shard_epoch import ShardEpoch
    from kafkalite.broker.limits.holder import Holder
    from kafkalite.broker.log.manager import LogManager
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.settings.broker import BrokerConfig
    from kafkalite.wire.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from kafkalite.wire.protocol.messages.join_group import JoinGroupRequest
    from kafkalite.wire.protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)
repeats = RepeatLogger(logger, lines=EVENT_LINES)

UPGRADING: Final = frozenset({"bidirectional", "upgrade"})
DOWNGRADING: Final = frozenset({"bidirectional", "downgrade"})
"""Values of group.consumer.migration.policy."""
MINUTE_MS: Final = 60_000
PROMISES_PRUNED_AT: Final = 64
"""Number of ids issued to one connection at which ids that are no longer pending are removed from the connection's
list."""


class GroupCoordinator:
    """All groups of this broker."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        pool: IoPool,
        clock: Clock,
        timers: TimerQueue | None = None,
        *,
        executors: Executors = THREADS,
        memory: MemoryCeiling | None = None,
    ) -> None:
        """Create the coordinator, which serves groups after `start`. `memory` limits the memory for members."""
        self._config = config
        self._logs = logs
        self._clock = clock
        self.timers = timers or TimerQueue(clock, executors=executors)
        self.log = StateLog(
            OFFSETS_TOPIC,
            logs,
            pool,
            clock,
            partition_count=config.offsets_topic_num_partitions,
            segment_bytes=config.offsets_topic_segment_bytes,
            in_sync=False,  # as Kafka's: a commit waits until there are enough
        )
        environment = Environment(
            clock=clock,
            timers=self.timers,
            write=self.log.write,
            initial_delay_ms=config.group_initial_rebalance_delay_ms,
            size_max=config.group_max_size,
            pending_max=config.group_max_pending_members,
            record_size_max=self.log.record_size_max,
            memory=memory,
        )
        self.hashes = MetadataHashes(OwnRack(config.broker_rack))
        self._consumers = ConsumerEnvironment(
            topics=lambda: logs.topics,
            hashes=self.hashes,
            run_soon=pool.submit,
            timing=self._timing,
            size_max=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            downgrades=config.group_consumer_migration_policy in DOWNGRADING,
            succeed=self._succeed_locked,
        )
        self._lock = threading.Lock()
        self._promised: dict[Hashable, list[tuple[Group, str]]] = {}  # connection → ids, guarded by _lock
        self.shards = Shards(self.log, self, executors)
        self.table = GroupTable(self.shards, environment, config.max_groups)
        self.offsets = CommittedOffsets(config, logs, self.timers, self.log, self.table)
        self._expiry = self.timers.timer(self._expire)

    # --- start and stop -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start loading; groups are served when loading is done."""
        self._logs.on_topic_deleted = self.offsets.topic_deleted
        self._logs.topic_listeners.append(self.topic_changed)
        self._expiry.set(self._config.offsets_retention_check_interval_ms / 1000)
        if not self.shards.start_empty():
            self.shards.start_loading("kafkalite-group-loader", self._load)

    def stop(self) -> None:
        """Refuse all waiting requests; nothing is served afterwards."""
        self.shards.stop()
        self._logs.on_topic_deleted = None
        if self.topic_changed in self._logs.topic_listeners:
            self._logs.topic_listeners.remove(self.topic_changed)
        for group in self.table.all():
            group.stop()
        self.timers.stop()

    def error_of(self, group_id: str, *, may_be_empty: bool = False) -> int:
        """Return the error code if a group cannot be served now, else 0."""
        return self.table.error_of(group_id, may_be_empty=may_be_empty)

    def lookup(self, group_id: str, *, may_be_empty: bool = False) -> tuple[GroupBase | None, int]:
        """Return (the group or None, the error code if the group cannot be served now, else 0)."""
        return self.table.lookup(group_id, may_be_empty=may_be_empty)

    # --- members ------------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, caller: Caller, connection: Hashable = None
    ) -> Deferred[JoinGroupResponse]:
        """Handle JoinGroup. If it issues a member id and the connection closes before the client joins, the id is
        dropped.
        """
        code = self.table.error_of(request.group_id)
        config = self._config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not code and not shortest <= request.session_timeout_ms <= longest:
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        if not code:
            code = self._size_error(request, caller)
        group: Group | ConsumerGroup | None = None
        if not code:
            group, code = self._to_join(request.group_id, caller.holder, may_be_new=not request.member_id)
        if group is None:
            return completed(JoinGroupResponse(error_code=code, member_id=request.member_id))
        if isinstance(group, ConsumerGroup):
            return group.join(request, caller, lambda: self.join(request, caller, connection))
        promised = None if connection is None else lambda member_id: self._promise(connection, group, member_id)
        return group.join(request, replace(caller, promised=promised))

    def _size_error(self, request: JoinGroupRequest, caller: Caller) -> int:
        """Return the error code if a member's metadata exceeds the log's maximum record size, else 0.

        Kafka returns this code only in response to the SyncGroup, and keeps the metadata until then.
        """
        size = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
        size_max = self.log.record_size_max()
        if size <= size_max:
            return 0
        repeats.warning(
            "refused a member from %s: its metadata (%d bytes) does not fit into a record of __consumer_offsets (%d)",
            caller.client_host,
            size,
            size_max,
            extra=fields(group=request.group_id),
        )
        return write_error(ErrorCode.MESSAGE_TOO_LARGE)

    def sync(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        """Handle SyncGroup. While the group is loading, members have to rejoin, as in Kafka until 3.9
        (GroupCoordinator.scala).

        In that case GroupCoordinatorService.syncGroup of Kafka 4.x returns COORDINATOR_LOAD_IN_PROGRESS instead.
        """
        group, code = self.table.lookup(request.group_id)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.REBALANCE_IN_PROGRESS  # clients do not expect the loading error here
        if isinstance(group, ConsumerGroup):
            return completed(group.sync(request))
        if not isinstance(group, Group):
            return completed(SyncGroupResponse(error_code=code or ErrorCode.UNKNOWN_MEMBER_ID))
        return group.sync(request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle Heartbeat. While the group is loading the code is 0 (Kafka's GroupCoordinatorService.heartbeat)."""
        group, code = self.table.lookup(group_id)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return 0  # clients do not expect the loading error here, and some end
        if code:
            return code
        if isinstance(group, ConsumerGroup):
            return group.classic_heartbeat(member_id, instance_id, generation)
        if not isinstance(group, Group):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return group.heartbeat(member_id, instance_id, generation)

    def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]]) -> Deferred[list[int]]:
        """Handle LeaveGroup of members by member id and instance id; return a code for each."""
        group, code = self.table.lookup(group_id)
        if isinstance(group, ConsumerGroup):
            return group.leave(leaving, lambda: self.leave(group_id, leaving))
        if isinstance(group, Group):
            return completed([group.leave(*names) for names in checkpointed(leaving)])
        return completed([int(code or ErrorCode.UNKNOWN_MEMBER_ID)] * len(leaving))

    def _timing(self, group_id: str) -> Timing:
        """Return a group's heartbeat interval and session timeout: the group's settings, or else the broker's."""
        own, config = self._logs.metadata.group_configs.get(group_id), self._config
        if own is not None:
            return Timing(own.consumer_heartbeat_interval_ms, own.consumer_session_timeout_ms)
        return Timing(config.group_consumer_heartbeat_interval_ms, config.group_consumer_session_timeout_ms)

    def _to_join(
        self, group_id: str, holder: Holder | None, *, may_be_new: bool
    ) -> tuple[Group | ConsumerGroup | None, int]:
        """Return (the group for a join with the classic protocol, 0), or (None, error code). An empty consumer group
        is replaced by a classic group.
        """
        group, code = self.table.lookup_or_new(group_id, holder, Group) if may_be_new else self.table.lookup(group_id)
        if group is None:
            return None, code or ErrorCode.UNKNOWN_MEMBER_ID
        if not isinstance(group, ConsumerGroup):
            assert isinstance(group, Group), "there are no other kinds"
            return group, 0
        with group.changing():
            if group.dead:
                return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
            if not group.empty:
                return group, 0
            if not may_be_new:
                return None, ErrorCode.UNKNOWN_MEMBER_ID
            records = group.tombstones_locked()
            successor = Group(group_id, group.environment, group)
            self._succeed_locked(group, successor)
            if records:
                group.environment.write(group_id, records, self._note_failure)
        return successor, 0

    def _succeed_locked(self, group: GroupBase, successor: GroupBase) -> None:
        """Let `successor` replace a group in the table and in its open transactions. Both groups have the same lock,
        which is held.
        """
        group.bury_locked()
        with self.table.lock:
            if self.table.groups.get(group.group_id) is not group:
                successor.bury_locked()  # it was dropped meanwhile
                return
            self.table.groups[group.group_id] = successor
            self.offsets.succeed_locked(group, successor)

    @staticmethod
    def _note_failure(code: int) -> None:
        if code:
            repeats.warning("could not write the tombstones of a converted group", extra=fields(error=code))

    # --- members of consumer groups -----------------------------------------------------------------------------------

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: HeartbeatCaller
    ) -> Deferred[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat (KIP-848), whose fields the handler has checked."""
        code = self.table.error_of(request.group_id)
        if code:
            return completed(refusal(code, "the coordinator cannot serve the group now"))
        try:
            group = self._to_consume(request, caller.holder)
        except KafkaError as error:
            return completed(refusal(error.code, str(error)))
        return group.heartbeat(request, caller, lambda: self.consumer_heartbeat(request, caller))

    def assigns_next(self, group_id: str) -> bool:
        """Return whether a group's next heartbeat computes an assignment, which may take long."""
        group = self.table.get(group_id)
        return isinstance(group, ConsumerGroup) and group.assigns_next

    def is_of_newer_protocol(self, group_id: str) -> bool:
        """Return whether the group uses the consumer protocol (KIP-848).

        In such a group, a join computes an assignment, which may take long.
        """
        return isinstance(self.table.get(group_id), ConsumerGroup)

    def _to_consume(self, request: ConsumerGroupHeartbeatRequest, holder: Holder | None) -> ConsumerGroup:
        """Return the consumer group for a heartbeat; KafkaError if there is none.

        For a join, a classic group that is empty or may be upgraded becomes a consumer group first.
        """
        group_id, may_be_new = request.group_id, request.member_epoch == JOIN_EPOCH
        if may_be_new:
            group, code = self.table.lookup_or_new(group_id, holder, self._new_consumers)
        else:
            group, code = self.table.lookup(group_id)
        if code == ErrorCode.GROUP_MAX_SIZE_REACHED:
            raise GroupMaxSizeReached(
                f"this client cannot create another group: max.groups is {self._config.max_groups}"
            )
        if code:
            raise error_for(code, "the coordinator cannot serve the group now")
        if isinstance(group, ConsumerGroup):
            return group
        if not isinstance(group, Group):
            raise GroupIdNotFound(f"there is no consumer group {group_id}")
        with group.changing():
            if group.dead:
                raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if not may_be_new:
                raise GroupIdNotFound(f"there is no consumer group {group_id}")
            if not group.empty:
                return self._upgrade_locked(group, request)
            preface = group.tombstones_locked()
            successor = ConsumerGroup(group_id, group.environment, self._consumers, group, preface)
            self._succeed_locked(group, successor)
        return successor

    def _upgrade_locked(self, group: Group, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
        """Convert a classic group with members to a consumer group, because a member joins with the consumer protocol
        (KIP-848).
        """
        size_max, count = self._consumers.size_max, len(group.members)
        policy = self._config.group_consumer_migration_policy
        if policy not in UPGRADING:
            raise not_converted(group, f"group.consumer.migration.policy={policy}")
        if group.protocol_type != CONSUMER_PROTOCOL:
            raise not_converted(group, "its members are not consumers")
        if count > size_max:
            raise not_converted(group, f"its {count} members exceed the maximum of {size_max}")
        if count == size_max and request.member_id not in group.members:
            raise GroupMaxSizeReached(f"group {group.group_id} already has its maximum of {count} members")
        if request.instance_id is None and request.member_id in group.members and group.generation > 0:
            raise FencedMemberEpoch(
                f"member {request.member_id} is a classic member: give up all partitions and rejoin"
            )
        state = upgraded(group, self._consumers.topics(), self.hashes)
        successor = ConsumerGroup(group.group_id, group.environment, self._consumers, group)
        successor.take_over_locked(group, state)
        group.hand_over_locked()
        self._succeed_locked(group, successor)
        repeats.info("classic group upgraded to a consumer group", extra=fields(group=group.group_id, members=count))
        return successor

    def _new_consumers(self, group_id: str, environment: Environment) -> GroupBase:
        return ConsumerGroup(group_id, environment, self._consumers)

    def topic_changed(self, name: str) -> None:
        """Handle a topic that was created or deleted, or that has more partitions or, in a cluster, other replicas."""
        self.hashes.forget(name)
        for group in self.table.all():
            if isinstance(group, ConsumerGroup):
                group.topic_changed(name)

    def connection_closed(self, connection: Hashable) -> None:
        """Drop the pending member ids that were issued on a connection that has closed."""
        if connection not in self._promised:
            return
        with self._lock:
            promised = self._promised.pop(connection, [])
        for group, member_id in promised:
            group.forget_pending(member_id)

    def _promise(self, connection: Hashable, group: Group, member_id: str) -> None:
        with self._lock:
            promised = self._promised.setdefault(connection, [])
            promised.append((group, member_id))
            if len(promised) >= PROMISES_PRUNED_AT:
                promised[:] = [(other, promise) for other, promise in promised if promise in other.pending]

    # --- groups -------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self.table.groups)

    def groups(self) -> list[GroupBase]:
        """Return every group, in no particular order."""
        return self.table.all()

    def find(self, group_id: str) -> GroupBase | None:
        """Return a group, or None."""
        return self.table.get(group_id)

    def delete(self, group_id: str) -> Deferred[int]:
        """Handle DeleteGroups for one group. The Deferred gets an error code, or 0 when the deletion is durable."""
        group, code = self.table.lookup(group_id, may_be_empty=True)
        if group is None:
            return completed(code or int(ErrorCode.GROUP_ID_NOT_FOUND))
        answer: Deferred[int] = Deferred()
        with group.changing():
            if group.dead:
                code = self.table.error_of(group_id, may_be_empty=True) or ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.empty:
                code = ErrorCode.NON_EMPTY_GROUP
            else:
                self._bury_locked(group, answer.complete)
        if code:
            answer.complete(code)
        return answer

    def _bury_locked(self, group: GroupBase, callback: Callable[[int], object]) -> None:
        """Delete an empty group with its offsets. It is Dead at once. It is removed from the table when the deletion is
        durable.
        """
        partitions = {partition for partition, _ in group.offsets} | group.open_commits.keys()
        partitions.update(group.offsets.pending())
        records: list[Record] = [offset_record(group.group_id, *partition, None) for partition in sorted(partitions)]
        records += group.tombstones_locked()
        group.bury_locked()

        def buried(code: int) -> None:
            if code == 0:
                self.table.forget(group)
            else:
                with group.changing():
                    group.exhume_locked()
            callback(write_error(code))

        if records:
            group.environment.write(group.group_id, records, buried)
            return
        self.table.forget(group)
        callback(0)

    # --- retention ----------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        if self.shards.stopped:
            return
        if self.shards.loaded.is_set():
            self.expire_now()
        self._expiry.set(self._config.offsets_retention_check_interval_ms / 1000)

    def expire_now(self) -> int:
        """Delete expired offsets and groups; return how many groups were affected.

        A group without members is deleted when its last offset expires or it has none.
        """
        now_ms = self._logs.expiry_time.time_ms()
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        count = 0
        for group in self.table.all():
            with group.changing():
                if group.dead or group.open_commits:
                    continue
                gone = group.offsets.expired(now_ms, retention_ms, group.kept_since_locked)
                if group.expendable and not group.offsets.pending() and len(gone) == len(group.offsets):
                    self._bury_locked(group, lambda _code: None)
                elif gone:
                    self.offsets.erase_locked(group, gone)
                else:
                    continue
                count += 1
        return count

    # --- loading ------------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        began = self._clock.monotonic()
        if not self.shards.load_all(_tell_unreadable):
            return
        for group in self.table.all():
            group.wake()
            self.offsets.erase_foreign(group)
        self.shards.loaded.set()
        logger.info(
            "groups loaded",
            extra=fields(groups=len(self.table.groups), seconds=round(self._clock.monotonic() - began, 3)),
        )

    def read_log(self, log: PartitionLog, home: ShardEpoch | None) -> Callable[[], object]:
        """Replay a partition of `__consumer_offsets`; return a function that puts its groups into the table. May
        block.
        """
        groups = self._read(log, self.table.environment_in(home))
        return lambda: self._install(groups)

    def begin_partition(self, number: int) -> None:
        """Start the sessions of a partition's groups, and delete their offsets of deleted topics. In a cluster only."""
        with self.table.lock:
            begun = self.table.of_partition_locked(number)
        for group in begun:
            group.wake()
            self.offsets.erase_foreign(group)

    def drop_partition(self, number: int) -> None:
        """Forget the groups of a partition, and refuse their waiting requests. In a cluster only."""
        with self.table.lock:
            dropped = self.table.of_partition_locked(number)
            for group in dropped:
                self.table.remove_locked(group)
            self.offsets.drop_partition_locked(number)
        for group in dropped:
            group.stop()

    def _read(self, log: PartitionLog, environment: Environment) -> list[GroupBase]:
        """Replay the records of a partition; return its groups."""
        loading = GroupReplay()
        try:
            for entry in self.log.entries(log):
                if self.shards.stopped:
                    return []
                loading.take(entry)
            loading.settle()
        except CodecError as error:
            raise ValueError(f"{log.name} has an invalid group record: {error}") from error
        if loading.skipped:
            logger.warning(
                "skipped group records of an unknown type", extra=fields(log=log.name, records=loading.skipped)
            )
        consumer_states = loading.consumers.finish()
        groups = []
        for group_id in loading.group_ids() | consumer_states.keys():
            group = self._loaded_group(
                group_id, environment, loading.values.get(group_id), consumer_states.get(group_id)
            )
            group.offsets = loading.offsets.get(group_id, group.offsets)
            group.offsets.order = loading.end_offset
            groups.append(group)
        return groups

    def _install(self, groups: Iterable[GroupBase]) -> None:
        """Add groups to the table, after their whole partition was read."""
        for group in groups:
            early = self.table.put(group)
            if early is not None:
                early.stop()  # of a request that was allowed before the partition was dropped and read again
            self.offsets.installed(group)

    def _loaded_group(
        self, group_id: str, environment: Environment, value: GroupMetadataValue | None, state: ConsumerState | None
    ) -> GroupBase:
        if state is not None:
            consumer_group = ConsumerGroup(group_id, environment, self._consumers)
            consumer_group.restore(state)
            return consumer_group
        group = Group(group_id, environment)
        if value is not None:
            group.restore(value)
        return group


def _tell_unreadable(number: int, error: Exception) -> None:
    logger.error(
        "could not load groups; they are unavailable until the broker restarts",
        exc_info=error,
        extra=fields(partition=number),
    )

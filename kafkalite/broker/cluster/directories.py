"""Report to the controllers in which directory each replica of this broker is (KIP-858).

A replica is *fit* while it has lost no record and can be written. An unfit replica is reported in the directory LOST.
There it can neither be elected nor join the ISR.

A damaged replica is repaired in these steps:

    1  the replica is not fit, and other replicas are in sync: AssignReplicasToDirs reports LOST
    2  the controllers remove it from the ISR, and elect another leader if it was the leader
    3  the fetcher truncates the log at the damage, and copies the later records again
    4  the replica is fit: AssignReplicasToDirs reports this broker's directory
    5  the leader proposes to add the replica to the ISR

Source: AssignmentsManager of Kafka 4.1, ReplicationControlManager.handleAssignReplicasToDirs.

Thread rule: the metadata thread calls `replicas_changed` and `use_features`. Any thread may call `fitness_changed` and
`families`. Everything else runs on the worker thread; answers are queued for it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.executors import THREADS
from kafkalite.base.logging import fields
from kafkalite.base.metric_families import Family
from kafkalite.broker.log.assignment import LOST, NO_LEADER
from kafkalite.broker.log.replica_log import ReplicaLog
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalite.base.clock import Clock
    from kafkalite.base.deferred import Deferred
    from kafkalite.base.executors import Executors
    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.log.partition_log import PartitionLog
    from kafkalite.broker.log.replica_log import ReplicaChange

logger = logging.getLogger("kafkalite.broker.cluster")

ASSIGNMENTS_MAX: Final = 2250
"""The most assignments that controllers accept in one request."""
RETRY_S: Final = 0.5
"""Delay in seconds before a refused or unanswered assignment is sent again; doubles with each failure, up to
RETRY_S_MAX."""
RETRY_S_MAX: Final = 10.0
"""Maximum delay in seconds before an assignment is sent again."""
ROOM_S: Final = 5.0
"""Interval in seconds of the checks whether a full disk has room again."""
SINCE: Final = 17
"""The metadata.version (3.7-IV2) from which on controllers support directories."""


class _Asked(NamedTuple):
    """A replica's assignment to a directory, as sent to the controllers."""

    directory: bytes
    partition_epoch: int
    """The partition epoch known at that time."""


class DirectoryAssignments:
    """Reports the directories of this broker's replicas to the controllers.

    `ask` sends a request of this broker to the controllers. `epoch` returns the broker epoch, and `level` the cluster's
    metadata.version. `recheck` makes a log's fetcher truncate the damage. `has_room` returns whether the disk accepts
    records.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        epoch: Callable[[], int],
        level: Callable[[], int],
        ask: Callable[[int, object], Deferred[Any]],
        clock: Clock,
        *,
        recheck: Callable[[ReplicaLog], None],
        has_room: Callable[[], bool],
        executors: Executors = THREADS,
    ) -> None:
        self.given_up = 0
        """The number of replicas taken out of service since the start."""
        self._node_id = node_id
        self._own = directory_id
        self._epoch = epoch
        self._level = level
        self._ask = ask
        self._clock = clock
        self._recheck = recheck
        self._has_room = has_room
        self._worker = executors.worker("kafkalite-directories", self._turn)
        self._due: dict[ReplicaLog, None] = {}  # guarded by the worker's lock, as the next two
        self._answered: list[tuple[dict[ReplicaLog, _Asked], Any]] = []
        self._stopping = False
        self._watched: dict[ReplicaLog, None] = {}  # unfit or in another directory; the worker's, as the next
        self._asked: dict[ReplicaLog, _Asked] = {}  # in flight
        self._taken: dict[ReplicaLog, _Asked] = {}  # accepted; metadata will show the result
        self._given_up: set[ReplicaLog] = set()  # assigned to LOST, and not back yet
        self._send_from = 0.0
        self._refusals = 0  # in a row
        self._look_at = 0.0

    def start(self) -> None:
        """Start the worker."""
        self._worker.start()

    def stop(self) -> None:
        """Stop reporting."""
        with self._worker.lock:
            self._stopping = True
        self._worker.stop()

    # --- what may have to change --------------------------------------------------------------------------------------

    def replicas_changed(self, changes: Sequence[ReplicaChange]) -> None:
        """Check the replicas that have changed. A listener of the logs."""
        known = self._watched
        due = [
            change.log
            for change in changes
            if change.log in known or (change.now.held and (change.now.directory != self._own or not change.log.fit))
        ]
        if due:
            self._call(due)

    def fitness_changed(self, log: PartitionLog) -> None:
        """Check a replica that has become unfit, or fit again."""
        if isinstance(log, ReplicaLog):
            self._call([log])

    def use_features(self, before: Image, now: Image) -> None:
        """Check again whether the controllers support directories. A listener of the member."""
        if now.features is not before.features:
            self._call(())

    def _call(self, due: Sequence[ReplicaLog]) -> None:
        with self._worker.lock:
            self._due.update(dict.fromkeys(due))
            self._worker.call_locked()

    # --- turns --------------------------------------------------------------------------------------------------------

    def _turn(self) -> float | None:
        with self._worker.lock:
            if self._stopping:
                return None
            due, self._due = self._due, {}
            answered, self._answered = self._answered, []
        now = self._clock.monotonic()
        self._watched.update(due)
        try:
            return self._go_on(answered, now)
        except Exception:  # the worker must live
            logger.exception("reporting replica directories failed; retrying")
            self._send_from = now + RETRY_S
            return RETRY_S

    def _go_on(self, answered: Sequence[tuple[dict[ReplicaLog, _Asked], Any]], now: float) -> float | None:
        for asked, answer in answered:
            self._take_in(asked, answer, now)
        self._look_for_room(now)
        wanted = {log: wish for log in tuple(self._watched) if (wish := self._to_ask(log)) is not None}
        if self._level() < SINCE:
            wanted = {}
        if wanted and not self._asked and now >= self._send_from:
            self._send(dict(list(wanted.items())[:ASSIGNMENTS_MAX]))
        waits = []
        if any(log.core.storage_full for log in self._watched):
            waits.append(self._look_at - now)
        if wanted and not self._asked:
            waits.append(self._send_from - now)
        return max(0.0, min(waits)) if waits else None

    def _to_ask(self, log: ReplicaLog) -> _Asked | None:
        directory = self._review(log)
        if directory is None:
            self._taken.pop(log, None)
            return None
        asked = _Asked(directory, log.assignment.partition_epoch)
        return None if self._taken.get(log) == asked else asked

    def _review(self, log: ReplicaLog) -> bytes | None:
        """Return the directory to report for a replica now; None if nothing has to be reported.

        While no other replica is in sync, an unfit replica that was not truncated stays in this broker's directory. It
        leads with the records that it has. Damaged records are not served, and no offset is assigned twice.

        A truncated replica in the ISR or ELR stays in LOST even if no other replica is left: only an unclean election
        may give up acknowledged records. The controllers keep a replica eligible (KIP-966) while fewer than
        min.insync.replicas are in sync, so they may consider it complete. A leader that runs Apache Kafka may add it to
        the ISR before the truncation, because of its log end offset.

        If the last other replica fails at the moment of the report, the partition has no leader. Then the directory
        that the controllers already have is reported, and they elect a leader.
        """
        assignment = log.assignment
        if log.deleted or not assignment.held:
            self._watched.pop(log, None)
            self._given_up.discard(log)
            return None
        others_in_sync = any(each != self._node_id for each in assignment.isr)
        lost = assignment.directory == LOST
        counted_on = self._node_id in assignment.isr or self._node_id in assignment.elr
        was_cut = log.behind and log.damage_start is None
        if not log.fit and (others_in_sync or (lost and (assignment.others_whole or (was_cut and counted_on)))):
            if lost and log.damage_start is not None and not assignment.leads:
                self._recheck(log)
            joined = others_in_sync and self._node_id in assignment.isr  # by its earlier log end offset
            return LOST if joined or not lost else None
        if assignment.directory != self._own:
            return self._own
        if log in self._given_up and assignment.leader_id == NO_LEADER:
            return self._own  # the controllers then elect a leader
        self._given_up.discard(log)
        if log.fit:
            self._watched.pop(log, None)
        return None

    def _look_for_room(self, now: float) -> None:
        """Mark replicas as writable if their disk has room again. Without writes, a replica cannot notice this
        itself.
        """
        full = [log for log in self._watched if log.core.storage_full]
        if not full or now < self._look_at:
            return
        self._look_at = now + ROOM_S
        if self._has_room():
            for log in full:
                log.core.storage_full = False

    # --- requests and answers -----------------------------------------------------------------------------------------

    def _send(self, wanted: dict[ReplicaLog, _Asked]) -> None:
        by_directory: dict[bytes, dict[bytes, list[int]]] = defaultdict(lambda: defaultdict(list))
        for log, (directory, _) in wanted.items():
            by_directory[directory][log.topic_id].append(log.partition)
            if directory == LOST:
                self.given_up += log not in self._given_up
                self._given_up.add(log)
                logger.error(
                    "a replica is damaged, offline or on a full disk; asking the controllers to elect another "
                    "leader and to remove it from the ISR",
                    extra=fields(
                        log=log.name, damaged_from=log.damage_start, offline=log.offline, end=log.log_end_offset
                    ),
                )
        self._asked = wanted
        request = AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._epoch(),
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id_=directory,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(partition_index=number) for number in numbers
                            ],
                        )
                        for topic_id, numbers in topics.items()
                    ],
                )
                for directory, topics in by_directory.items()
            ],
        )
        try:
            answer = self._ask(api.ASSIGN_REPLICAS_TO_DIRS, request)
        except BaseException:
            self._asked = {}
            raise
        answer.then(lambda response: self._on_answer(wanted, response))

    def _on_answer(self, asked: dict[ReplicaLog, _Asked], answer: Any) -> None:
        """Handle an AssignReplicasToDirsResponse, or None if no controller answered. Any thread."""
        with self._worker.lock:
            self._answered.append((asked, answer))
            self._worker.call_locked()

    def _take_in(self, asked: dict[ReplicaLog, _Asked], answer: Any, now: float) -> None:
        """Note the assignments that the controllers accepted. The refused ones are sent again after a delay."""
        self._asked = {}
        code = None if answer is None else answer.error_code
        if code != 0:
            self._back_off(now)
            logger.info(
                "the controllers did not accept AssignReplicasToDirs", extra=fields(code=code, count=len(asked))
            )
            return
        refused = {
            (topic.topic_id, row.partition_index): row.error_code
            for directory in answer.directories
            for topic in directory.topics
            for row in topic.partitions
            if row.error_code
        }
        if refused:
            self._back_off(now)
        else:
            self._refusals = 0
        for log, each in asked.items():
            found = refused.get((log.topic_id, log.partition))
            if found is None:
                self._taken[log] = each
            else:
                logger.info(
                    "the controllers did not accept the directory of a replica", extra=fields(log=log.name, code=found)
                )

    def _back_off(self, now: float) -> None:
        self._send_from = now + min(RETRY_S_MAX, RETRY_S * 2**self._refusals)
        self._refusals = min(self._refusals + 1, 16)

    # --- metrics, on any thread ---------------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        """Yield metrics: the counts of unfit replicas."""
        unfit = sum(not log.fit for log in tuple(self._watched))
        yield Family(
            "kafkalite_replicas_unfit",
            "gauge",
            "Replicas that are damaged, offline or on a full disk, and not yet copied again from their leader.",
            [("", unfit)],
        )
        yield Family(
            "kafkalite_replicas_given_up",
            "counter",
            "Replicas that this broker took out of service because they were damaged, offline or on a full disk.",
            [("", self.given_up)],
        )

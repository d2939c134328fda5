"""The followers of what this broker leads: who is in sync is proposed to the controllers, and what they say is gone by.

    a follower's fetch ─▶ it may join ───┐
    every half replica.lag.time.max.ms ──┴─▶ review ─▶ proposals ─▶ AlterPartition ─▶ answers ─▶ high watermarks
    metadata ─▶ lead_locked ─▶ Followers of the log

One AlterPartition is under way at a time, with all partitions that wait; a proposal that gets no answer goes again,
until it is answered or metadata overtakes it. The broker epochs of a proposal are those of the followers' fetches when
it was made, so that one that has been away since is refused (KIP-903). One in no directory (KIP-858) is not proposed,
whatever it has: Kafka's controllers would take it, and nobody could be elected of those.

Source: DefaultAlterPartitionManager and Partition of Kafka 4.1. Thread rule: `lead_locked` is called with the log's
lock, `joinable` by network workers; all else belongs to the worker's turns and to the metadata thread. What is known of
one partition is guarded by its log's lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite._native.log.followers import BrokerEpochs, Followers
from kafkalite._native.log.leading import settle_low_waits
from kafkalite.base.dataclass import dataclass
from kafkalite.base.executors import THREADS
from kafkalite.base.logging import fields
from kafkalite.base.metric_families import Family, labels
from kafkalite.broker.cluster.in_sync import Answer, InSync, Proposal, Verdict
from kafkalite.broker.cluster.replication_limits import is_limited
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalite.base.clock import Clock
    from kafkalite.base.deferred import Deferred
    from kafkalite.base.executors import Executors
    from kafkalite.broker.cluster.image import Image
    from kafkalite.broker.log.assignment import Assignment
    from kafkalite.broker.log.replica_log import ReplicaChange, ReplicaLog

logger = logging.getLogger("kafkalite.broker.cluster")

RETRY_S: Final = 0.05
"""Before what got no answer, or one that says nothing, is sent again."""
FAILED_S: Final = 1.0
"""Before what failed here is tried again."""
ROWS_MAX: Final = 10_000
"""Partitions whose followers metrics tell of."""
_RECOVERED: Final = 0


class _Led(NamedTuple):
    """A log with followers that is led here."""

    in_sync: InSync
    followers: Followers


class _Item(NamedTuple):
    """A proposal on its way."""

    log: ReplicaLog
    led: _Led
    proposal: Proposal
    epochs: Mapping[int, int]
    """Broker epochs of those in it, without this broker."""


@dataclass(slots=True)
class Changes:
    """What has become of proposals, since the start."""

    shrinks: int = 0
    expands: int = 0
    failed: int = 0


class InSyncReplicas:
    """See the module. `ask` sends the controllers a request of the broker's; `epoch` gives its own broker epoch. With
    `flush` (flush.on.acks.all) what others have acknowledged is on the disk here before nobody else counts, or soon
    after where it was not this leader who asked for that."""

    def __init__(
        self,
        node_id: int,
        epoch: Callable[[], int],
        ask: Callable[[int, object], Deferred[Any]],
        clock: Clock,
        *,
        lag_s_max: float,
        flush: bool = True,
        executors: Executors = THREADS,
    ) -> None:
        self.changes = Changes()
        self._node_id = node_id
        self._epoch = epoch
        self._ask = ask
        self._clock = clock
        self._lag_s_max = lag_s_max
        self._flush = flush
        self._brokers = BrokerEpochs()
        self._led: dict[ReplicaLog, _Led] = {}
        self._worker = executors.worker("kafkalite-in-sync", self._turn)
        self._due: dict[ReplicaLog, None] = {}  # guarded by the worker's lock, as the next four
        self._answered: tuple[Sequence[_Item], Any] | None = None
        self._flushed: list[tuple[_Item, int]] = []
        """Proposals that waited for the disk, with an error code of Kafka's."""
        self._under_way = False
        self._stopping = False
        self._waiting: list[_Item] = []  # the worker's, as the next two
        self._send_from = 0.0
        self._check_at = clock.monotonic() + lag_s_max / 2

    def start(self) -> None:
        """Begins to look for followers that lag."""
        self._worker.start()

    def stop(self) -> None:
        """Proposes nothing any more."""
        with self._worker.lock:
            self._stopping = True
        self._worker.stop()

    # --- metadata, on its thread --------------------------------------------------------------------------------------

    def use_brokers(self, before: Image, now: Image) -> None:
        """Which brokers there are; a listener of the member's, called before the logs go by the image."""
        if now.brokers is before.brokers:
            return
        self._brokers.use(
            (each.node_id, each.epoch, not each.fenced, not each.fenced and not each.stopping)
            for each in now.brokers.values()
        )
        at = self._clock.monotonic()
        for log in tuple(self._led):
            log.core.advance(at)  # one that was only about to join may not be waited for any more
            settle_low_waits(log.core)

    def lead_locked(self, log: ReplicaLog, wanted: Assignment, *, elected: bool) -> Followers:
        """This broker leads a log that has other replicas, from a new epoch on or as before; who follows it. The log's
        lock is held."""
        now = self._clock.monotonic()
        others = [replica for replica in wanted.replicas if replica != self._node_id]
        led = None if elected else self._led.get(log)
        if led is None:
            led = _Led(InSync(), Followers(self._brokers, self._lag_s_max, self.joinable))
            led.in_sync.told(wanted.leader_epoch, wanted.partition_epoch, wanted.isr)
            led.followers.begin(others, wanted.isr, log.epochs.entries[-1][1], now)
            self._led[log] = led
        elif self._told(led.in_sync, wanted) or others != [state[0] for state in led.followers.states()]:
            led.followers.set_replicas(others)
            led.followers.set_in_sync(led.in_sync.isr)
            if led.in_sync.pending is not None:
                led.followers.propose(led.in_sync.pending.isr)
        self.configure(log, led.followers)
        return led.followers

    def configure(self, log: ReplicaLog, followers: Followers) -> None:
        """The topic's settings count for who follows."""
        followers.use_min(log.config.min_insync_replicas)
        throttled = log.config.leader_replication_throttled_replicas
        followers.use_limit(is_limited(throttled, log.partition, self._node_id))

    def _told(self, in_sync: InSync, wanted: Assignment) -> bool:
        """Takes in metadata; where it is what was proposed, and comes before the answer, that counts here."""
        before, pending = in_sync.isr, in_sync.pending
        news = in_sync.told(wanted.leader_epoch, wanted.partition_epoch, wanted.isr)
        if news and pending is not None and {*pending.isr} == {*wanted.isr}:
            self._count(before, wanted.isr)
        return news

    def _count(self, before: Sequence[int], after: Sequence[int]) -> None:
        self.changes.expands += len(after) > len(before)
        self.changes.shrinks += len(after) < len(before)

    def replicas_changed(self, changes: Iterable[ReplicaChange]) -> None:
        """A listener of the logs': what is led elsewhere, or gone, is forgotten."""
        for change in changes:
            if not change.now.leads or change.now.alone:
                self._led.pop(change.log, None)
            elif self._flush and change.now.isr == (self._node_id,) != change.before.isr:
                self._keep(change.log)

    @staticmethod
    def _keep(log: ReplicaLog) -> None:
        """The controllers have left nobody else in sync: what others have acknowledged goes on the disk here."""
        end = log.log_end_offset
        if log.flushed_offset < end:
            log.flush_due(end)

    # --- metrics, on any thread ---------------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        """What became of proposals, and how far followers are behind: a source of metrics."""
        changes = self.changes
        for name, count, text in (
            ("isrshrinks", changes.shrinks, "In-sync replica sets that this leader shrank."),
            ("isrexpands", changes.expands, "In-sync replica sets that this leader expanded."),
            (
                "failedisrupdates",
                changes.failed,
                "In-sync replica changes that the controllers refused or did not answer.",
            ),
        ):
            yield Family(f"kafka_server_replicamanager_{name}", "counter", text, [("", count)])
        rows = [
            (
                labels(topic=log.topic, partition=log.partition, replica=state[0]),
                log.log_end_offset - state[1] if state[1] >= 0 else log.log_end_offset - log.log_start_offset,
            )
            for log, led in tuple(self._led.items())[:ROWS_MAX]
            for state in led.followers.states()
        ]
        yield Family(
            "kafkalite_follower_lag_records",
            "gauge",
            "Records of a partition led here that the follower has not fetched yet.",
            rows,
        )

    # --- what may have to change --------------------------------------------------------------------------------------

    def joinable(self, log: ReplicaLog) -> None:
        """A follower of this log may have become in sync. Any thread, never blocks."""
        with self._worker.lock:
            self._due[log] = None
            self._worker.call_locked()

    def _turn(self) -> float | None:
        """Proposes what is due, sends what waits, takes in what was answered; the seconds until the next turn."""
        now = self._clock.monotonic()
        with self._worker.lock:
            if self._stopping:
                return None
            due, self._due = self._due, {}
            flushed, self._flushed = self._flushed, []
            answered, self._answered = self._answered, None
            if answered is not None:
                self._under_way = False
        try:
            return self._go_on(now, due, flushed, answered)
        except Exception:  # the worker must live: who lags would stay in sync for ever, and who caught up out of it
            logger.exception("handling in-sync replica changes failed; retrying")
            for item, error in flushed:
                self._take_up(item, error)
            for item in () if answered is None else answered[0]:
                self._take_up(item, 0)
            self._waiting = list({id(item): item for item in self._waiting}.values())  # some may have been before
            with self._worker.lock:
                self._due = {**due, **self._due}
            self._send_from = now + FAILED_S
            return FAILED_S

    def _go_on(
        self,
        now: float,
        due: Iterable[ReplicaLog],
        flushed: Iterable[tuple[_Item, int]],
        answered: tuple[Sequence[_Item], Any] | None,
    ) -> float:
        if answered is not None:
            self._take_in(*answered, now)
        for item, error in flushed:
            self._take_up(item, error)
        check = now >= self._check_at
        if check:
            self._check_at = now + self._lag_s_max / 2
        for log in tuple(self._led) if check else due:
            try:
                self._review(log, now, check=check)
                if check:
                    log.core.advance(now)  # one that is not in sync has been away for so long that it does not count
            except Exception:  # the others are looked at all the same
                logger.exception("could not check the in-sync replicas of a partition", extra=fields(log=log.name))
                self._check_at = min(self._check_at, now + FAILED_S)
        self._send(now)
        wait_s = self._check_at - now
        return max(0.0, min(wait_s, self._send_from - now) if self._waiting and not self._under_way else wait_s)

    def _review(self, log: ReplicaLog, now: float, *, check: bool) -> None:
        with log.core.locked():
            led = self._led.get(log)
            if led is None or not log.led or log.offline or led.in_sync.pending is not None:
                return
            lost = log.assignment.lost
            joining = [each for each in led.followers.joinable(log.high_watermark, now) if each not in lost]
            leaving = led.followers.lagging(log.log_end_offset, now) if check and not joining else []
            proposal = led.in_sync.propose(joining, leaving)
            if proposal is None:
                return
            led.followers.propose(proposal.isr)
            epochs = led.followers.epochs_of(replica for replica in proposal.isr if replica != self._node_id)
            item = _Item(log, led, proposal, epochs)
            end = log.log_end_offset
        told = fields(log=log.name, isr=led.in_sync.isr, proposed=proposal.isr, epoch=proposal.partition_epoch)
        if leaving and not joining:
            logger.info("followers lag; asking the controllers to shrink the ISR", extra=told)
        else:
            logger.info("followers have caught up; asking the controllers to expand the ISR", extra=told)
        if self._flush and proposal.isr == (self._node_id,):
            log.flush_async(end, lambda error: self._on_flushed(item, error))  # others do not wait for this disk
        else:
            self._take_up(item, 0)

    def _take_up(self, item: _Item, error: int) -> None:
        """It is to be sent, or, with the error of its flush, not to be made after all."""
        if error:
            self._withdraw(item, error)
        else:
            self._waiting.append(item)

    def _on_flushed(self, item: _Item, error: int) -> None:
        """What a proposal had to wait for is on the disk, or never will be. Any thread."""
        with self._worker.lock:
            self._flushed.append((item, error))
            self._worker.call_locked()

    def _withdraw(self, item: _Item, error: int) -> None:
        """It is not proposed: the log is offline, or deleted, or cannot be written now."""
        with item.log.core.locked():
            if item.led.in_sync.withdraw(item.proposal):
                item.led.followers.set_in_sync(item.led.in_sync.isr)
        logger.warning(
            "the ISR is not shrunk, because the log could not be flushed",
            extra=fields(log=item.log.name, proposed=item.proposal.isr, code=error),
        )

    # --- requests and answers, on the worker --------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        """One request with all that waits, if none is under way."""
        if self._under_way or now < self._send_from:
            return
        items = self._waiting = [each for each in self._waiting if self._is_wanted(each)]
        if not items:
            return
        topics: dict[bytes, list[AlterPartitionRequestPartitionData]] = {}
        for each in items:
            topics.setdefault(each.log.topic_id, []).append(self._partition(each))
        request = AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._epoch(),
            topics=[AlterPartitionRequestTopicData(topic_id=key, partitions=rows) for key, rows in topics.items()],
        )
        self._under_way = True
        try:
            answer = self._ask(api.ALTER_PARTITION, request)
        except BaseException:
            self._under_way = False
            raise
        self._waiting = []
        answer.then(lambda response: self._on_answer(items, response))

    def _is_wanted(self, item: _Item) -> bool:
        return self._led.get(item.log) is item.led and item.led.in_sync.pending is item.proposal

    def _partition(self, item: _Item) -> AlterPartitionRequestPartitionData:
        isr = item.proposal.isr
        epochs = {**item.epochs, self._node_id: self._epoch()}
        return AlterPartitionRequestPartitionData(
            partition_index=item.log.partition,
            leader_epoch=item.proposal.leader_epoch,
            new_isr=list(isr),
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in isr],
            leader_recovery_state=_RECOVERED,
            partition_epoch=item.proposal.partition_epoch,
        )

    def _on_answer(self, items: Sequence[_Item], answer: Any) -> None:
        """An AlterPartitionResponse, or None where there was no controller to give one. Any thread."""
        with self._worker.lock:
            self._answered = (items, answer)
            self._worker.call_locked()

    def _take_in(self, items: Sequence[_Item], answer: Any, now: float) -> None:
        if answer is None or answer.error_code:
            if answer is not None:
                logger.warning(
                    "the controllers refused an AlterPartition request", extra=fields(code=answer.error_code)
                )
            self.changes.failed += len(items)
            self._send_again(items, now)
            return
        found = {
            (topic.topic_id, row.partition_index): Answer(
                row.error_code, row.leader_epoch, row.partition_epoch, tuple(row.isr)
            )
            for topic in answer.topics
            for row in topic.partitions
        }
        again = [each for each in items if self._settle(each, found.get((each.log.topic_id, each.log.partition)), now)]
        if again:
            self._send_again(again, now)

    def _send_again(self, items: Sequence[_Item], now: float) -> None:
        self._waiting += items
        self._send_from = now + RETRY_S

    def _settle(self, item: _Item, answer: Answer | None, now: float) -> bool:
        """Goes by the answer for one partition; whether it has to be sent again."""
        log, led, proposal, _ = item
        with log.core.locked():
            before = led.in_sync.isr
            verdict = Verdict.AGAIN if answer is None else led.in_sync.answered(proposal, answer)
            if verdict in (Verdict.TAKEN, Verdict.DROPPED):
                led.followers.set_in_sync(led.in_sync.isr)
        if verdict is Verdict.TAKEN:
            self._count(before, led.in_sync.isr)
            log.core.advance(now)
        elif verdict is not Verdict.STALE:
            self.changes.failed += 1
            code = None if answer is None else answer.error_code
            told = fields(log=log.name, code=code, proposed=proposal.isr, then=verdict.value)
            logger.info("the controllers did not change the ISR", extra=told)
        return verdict is Verdict.AGAIN

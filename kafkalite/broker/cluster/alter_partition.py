"""Propose changes of the in-sync replicas (ISR) of led partitions to the controllers, and apply their answers.

    1  when this broker is elected, `lead_locked` creates the `Followers` of the log
    2  a partition is reviewed when a follower has caught up; all are reviewed every half replica.lag.time.max.ms
    3  if the ISR should change, an AlterPartition request proposes the change
    4  the controllers' answer changes the ISR; then the high watermark may rise

Source: DefaultAlterPartitionManager and Partition of Kafka 4.1.

Thread rule: `lead_locked` is called with the log's lock. Any thread may call `joinable` and `families`. The rest runs
on the worker thread and the metadata thread; callbacks only queue results. The log's lock guards its partition's state.
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
"""Delay in seconds before a proposal is sent again if it got no answer or an inconclusive answer."""
FAILED_S: Final = 1.0
"""Delay in seconds before a failed turn is retried."""
ROWS_MAX: Final = 10_000
"""The number of partitions whose followers appear in the metrics."""
_RECOVERED: Final = 0


class _Led(NamedTuple):
    """The ISR and the followers of a log that this broker leads."""

    in_sync: InSync
    followers: Followers


class _Item(NamedTuple):
    """A proposal that waits to be sent, or is in flight."""

    log: ReplicaLog
    led: _Led
    proposal: Proposal
    epochs: Mapping[int, int]
    """Broker epochs of the proposed followers, by node id."""


@dataclass(slots=True)
class Changes:
    """Counts of proposals since the start."""

    shrinks: int = 0
    expands: int = 0
    failed: int = 0


class InSyncReplicas:
    """Manages the in-sync replicas of the partitions that this broker leads.

    `ask` sends a request of this broker to the controllers; `epoch` returns the broker epoch.

    With `flush` (flush.on.acks.all), acknowledged records are flushed before a proposal leaves this broker as the only
    in-sync replica. If the controllers shrink the ISR to this broker without a proposal, the records are flushed soon
    after.
    """

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
        """Proposals whose flush has ended, with its Kafka error code, 0 for success."""
        self._under_way = False
        self._stopping = False
        self._waiting: list[_Item] = []  # the worker's, as the next two
        self._send_from = 0.0
        self._check_at = clock.monotonic() + lag_s_max / 2

    def start(self) -> None:
        """Start checking for lagging followers."""
        self._worker.start()

    def stop(self) -> None:
        """Stop proposing."""
        with self._worker.lock:
            self._stopping = True
        self._worker.stop()

    # --- metadata, on its thread --------------------------------------------------------------------------------------

    def use_brokers(self, before: Image, now: Image) -> None:
        """Use the brokers of the new image. The member calls this as a listener, before the logs apply the image."""
        if now.brokers is before.brokers:
            return
        self._brokers.use(
            (each.node_id, each.epoch, not each.fenced, not each.fenced and not each.stopping)
            for each in now.brokers.values()
        )
        at = self._clock.monotonic()
        for log in tuple(self._led):
            log.core.advance(at)  # a joining follower may no longer hold back the high watermark
            settle_low_waits(log.core)

    def lead_locked(self, log: ReplicaLog, wanted: Assignment, *, elected: bool) -> Followers:
        """Return the followers of a log that this broker leads.

        `elected`: whether a new leader epoch begins; False for the current one. The log's lock is held.
        """
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
        """Apply the topic's settings to the tracking of the log's followers."""
        followers.use_min(log.config.min_insync_replicas)
        throttled = log.config.leader_replication_throttled_replicas
        followers.use_limit(is_limited(throttled, log.partition, self._node_id))

    def _told(self, in_sync: InSync, wanted: Assignment) -> bool:
        """Apply metadata; return whether it is new.

        If the metadata contains the pending proposal, it arrived before the controllers' answer. The change is then
        counted here.
        """
        before, pending = in_sync.isr, in_sync.pending
        news = in_sync.told(wanted.leader_epoch, wanted.partition_epoch, wanted.isr)
        if news and pending is not None and {*pending.isr} == {*wanted.isr}:
            self._count(before, wanted.isr)
        return news

    def _count(self, before: Sequence[int], after: Sequence[int]) -> None:
        self.changes.expands += len(after) > len(before)
        self.changes.shrinks += len(after) < len(before)

    def replicas_changed(self, changes: Iterable[ReplicaChange]) -> None:
        """Forget the logs that this broker no longer leads; flush those whose ISR is now this broker alone. A listener
        of the logs.
        """
        for change in changes:
            if not change.now.leads or change.now.alone:
                self._led.pop(change.log, None)
            elif self._flush and change.now.isr == (self._node_id,) != change.before.isr:
                self._keep(change.log)

    @staticmethod
    def _keep(log: ReplicaLog) -> None:
        """Flush the acknowledged records of a log, because the controllers have removed all other replicas from the
        ISR.
        """
        end = log.log_end_offset
        if log.flushed_offset < end:
            log.flush_due(end)

    # --- metrics, on any thread ---------------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        """Yield metrics: the counts of proposals and the lag of followers."""
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
        """Schedule a review of this log, because a follower may have caught up. Any thread; never blocks."""
        with self._worker.lock:
            self._due[log] = None
            self._worker.call_locked()

    def _turn(self) -> float | None:
        """Review due partitions, handle answers and send waiting proposals; return the seconds until the next run."""
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
        except Exception:  # if the worker died, the ISR would never change again
            logger.exception("handling in-sync replica changes failed; retrying")
            for item, error in flushed:
                self._take_up(item, error)
            for item in () if answered is None else answered[0]:
                self._take_up(item, 0)
            self._waiting = list({id(item): item for item in self._waiting}.values())  # some may have waited already
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
                    log.core.advance(now)  # a follower out of sync that has not fetched for too long no longer counts
            except Exception:  # the other partitions are reviewed all the same
                logger.exception("could not check the in-sync replicas of a partition", extra=fields(log=log.name))
                self._check_at = min(self._check_at, now + FAILED_S)
        self._send(now)
        wait_s = self._check_at - now
        return max(0.0, min(wait_s, self._send_from - now) if self._waiting and not self._under_way else wait_s)

    def _review(self, log: ReplicaLog, now: float, *, check: bool) -> None:
        """Propose a change of a log's ISR, if it needs one.

        A follower whose directory is lost (KIP-858) is not proposed: Kafka's controllers would accept it, but could not
        elect it.
        """
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
        named = fields(log=log.name, isr=led.in_sync.isr, proposed=proposal.isr, epoch=proposal.partition_epoch)
        if leaving and not joining:
            logger.info("followers lag; asking the controllers to shrink the ISR", extra=named)
        else:
            logger.info("followers have caught up; asking the controllers to expand the ISR", extra=named)
        if self._flush and proposal.isr == (self._node_id,):
            log.flush_async(end, lambda error: self._on_flushed(item, error))  # others need not wait for it
        else:
            self._take_up(item, 0)

    def _take_up(self, item: _Item, error: int) -> None:
        """Queue a proposal to be sent; if its flush failed, withdraw it."""
        if error:
            self._withdraw(item, error)
        else:
            self._waiting.append(item)

    def _on_flushed(self, item: _Item, error: int) -> None:
        """Note that the flush for a proposal ended, with its error code. Any thread."""
        with self._worker.lock:
            self._flushed.append((item, error))
            self._worker.call_locked()

    def _withdraw(self, item: _Item, error: int) -> None:
        """Withdraw a proposal, because the log is offline, deleted or cannot be written now."""
        with item.log.core.locked():
            if item.led.in_sync.withdraw(item.proposal):
                item.led.followers.set_in_sync(item.led.in_sync.isr)
        logger.warning(
            "the ISR is not shrunk, because the log could not be flushed",
            extra=fields(log=item.log.name, proposed=item.proposal.isr, code=error),
        )

    # --- requests and answers, on the worker --------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        """Send one request with all waiting proposals, unless one is in flight.

        A proposal without an answer is sent again, until it is answered or newer metadata replaces it.
        """
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
        """Return a proposal's part of the request.

        It contains the broker epoch with which each follower last fetched. So the controllers refuse a follower that
        has restarted since (KIP-903).
        """
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
        """Handle an AlterPartitionResponse, or None if no controller answered. Any thread."""
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
        """Apply the answer for one partition; return whether to send the proposal again."""
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
            named = fields(log=log.name, code=code, proposed=proposal.isr, then=verdict.value)
            logger.info("the controllers did not change the ISR", extra=named)
        return verdict is Verdict.AGAIN

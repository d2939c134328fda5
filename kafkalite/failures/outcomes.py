"""Turn the outcome of a record into its next step: done, retry in place, retry topic or dead letter.

    success                 the record is done, or a transaction writes its row and the handler's output
    failure                 the policy's step: retry in place, retry topic, dead letter, ignore, or stop the member
    outage, many failures   the circuit breaker opens

Thread rule: one thread at a time, that of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.failures.events import Alarm, FailureKind, Goal, Letter, Outcome, Put, Withdraw
from kafkalite.failures.lanes import ItemState, Verdict, key_digest
from kafkalite.failures.names import origin_text
from kafkalite.failures.retry_strategies import Ignore, RetryForever, StepKind
from kafkalite.failures.rows import Row, State
from kafkalite.failures.times import milliseconds

if TYPE_CHECKING:
    from kafkalite.failures.events import Failure, Finished, FinishedTogether, RunEnded
    from kafkalite.failures.lanes import Item, PartitionLane
    from kafkalite.failures.retry_strategies import Step
    from kafkalite.failures.state import SessionState


class Outcomes:
    """Processes the outcomes of records; see the module."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._policy = state.policy
        self._member = state.member
        self._draw = state.draw
        self._holds = state.holds
        self._rotates = state.rotates
        self._lanes = state.lanes
        self._breaker = state.breaker
        self._losses = state.losses
        self._moves = state.moves
        self._actions = state.actions
        self._counts = state.counts

    def finished(self, event: Finished) -> None:
        """Process the outcome of a record."""
        lane = self._lanes.get(event.partition)
        item = None if lane is None or lane.run != event.run else lane.by_offset.get(event.offset)
        if lane is None or item is None or item.state is not ItemState.RUNNING or lane.follows_given_back(item):
            return
        lane.careful = max(lane.careful - 1, 0)
        lane.clear(item)
        if event.outcome.failure is None:
            self._succeeded(lane, item, event.outcome)
        else:
            self._failed(lane, item, event.outcome.failure)

    def finished_together(self, event: FinishedTogether) -> None:
        """Process a successful call that handled several records, and the output records of the call."""
        lane = self._lanes.get(event.partition)
        if lane is None or lane.run != event.run:
            return
        items = [lane.by_offset[offset] for offset in event.offsets]
        if any(lane.follows_given_back(item) for item in items):
            return
        for place, item in enumerate(items):
            lane.careful = max(lane.careful - 1, 0)
            lane.clear(item)
            self._succeeded(lane, item, Outcome(outputs=event.outputs if place == 0 else ()), is_bundled=True)
        for item in items:
            item.bundle = items

    def run_ended(self, event: RunEnded) -> None:
        """Process the end of a run. Records that were not handled become ready again."""
        lane = self._lanes.get(event.partition)
        if lane is None or lane.run != event.run:
            return
        for item in lane.running:
            if item.state is ItemState.RUNNING:
                if item.noted:
                    lane.unnote(item)
                else:
                    lane.push(item)
        lane.run, lane.running = None, []
        lane.batch.ended(self._state.now.ms, event.each_ms)
        if self._breaker.probing and not lane.is_dead:
            self._breaker.probe_failed(self._state.now.ms)  # the probe was not tried

    def _succeeded(self, lane: PartitionLane, item: Item, outcome: Outcome, *, is_bundled: bool = False) -> None:
        if lane.is_dead:  # commit at once, not with the next plain commit, because the handler may notify people
            self._counts["dead_calls", "succeeded"] += 1
            lane.move(item, Verdict(outputs=outcome.outputs, writes_row=item.row is not None))
            return
        self._counts["processed", lane.origin.topic] += 1
        self._actions += self._losses.succeeded(self._state.now.ms)
        if self._breaker.is_open and self._breaker.probing:
            self._breaker.close()
            self._actions.append(Alarm("breaker", "the breaker is closed: processing resumes", {"open": False}))
        elif not self._breaker.is_open:
            self._breaker.note(self._state.now.ms, failed=False)
        if lane.is_retry or item.row is not None:
            lane.move(item, Verdict(row=None, outputs=outcome.outputs))
            if lane.is_retry and lane.chains is not None and not item.held:
                following = lane.chains.passed(item)
                if following is not None:
                    lane.push(following)
        elif outcome.outputs or is_bundled:
            lane.move(item, Verdict(outputs=outcome.outputs, writes_row=False))
        else:
            lane.finish(item)

    def _failed(self, lane: PartitionLane, item: Item, failure: Failure) -> None:
        if lane.is_dead:
            self._call_failed(lane, item, failure)
            return
        self.count_failure(item, failure)
        if self._breaker.is_open:
            probing, self._breaker.probing = self._breaker.probing, False
            if probing:
                self._breaker.probe_failed(self._state.now.ms)
            if not probing or self._rotates or failure.kind is FailureKind.OUTAGE:
                item.probes += 1
                item.counted = False
                self._again(lane, item)
                return
        elif failure.kind is FailureKind.OUTAGE:
            self._open_breaker(f"{failure.name} means an outage")
            self._again(lane, item)
            return
        elif not item.counted:
            item.counted = True
            if self._breaker.note(self._state.now.ms, failed=True):
                self._open_breaker("the failure limit is exceeded")
                self._again(lane, item)
                return
        item.attempt += 1
        item.first = item.first or self._state.now.wall_ms
        if failure.kind is FailureKind.FATAL and self._policy.writes_letters:
            self.die(lane, item)
        else:
            self._take_step(lane, item, failure, self._policy.step(failure.rule, item.attempt))

    def _call_failed(self, lane: PartitionLane, item: Item, failure: Failure) -> None:
        """Call the dead-letter handler again later, unless its failure is fatal. The partition's later letters wait."""
        self._counts["dead_calls", "failed"] += 1
        item.failure = failure
        item.attempt += 1
        if failure.kind is FailureKind.FATAL:
            self.give_up_call(lane, item, failure)
            return
        where = origin_text(item.origin, item.origin_offset)
        if not item.old:
            item.old = True
            text = f"the dead-letter handler failed for {where} and will be called again: {self._described(failure)}"
            self._actions.append(Alarm("dead-handler", text, {"letter": where, "exception": failure.name}))
        step = self._policy.dead_backoff.step(item.attempt)
        item.due = self._state.now.ms + step.delay_ms
        self._again(lane, item)

    def give_up_call(self, lane: PartitionLane, item: Item, failure: Failure) -> None:
        """Stop calling the dead-letter handler for this letter. The letter stays in its topic."""
        self._counts["dead_calls", "given_up"] += 1
        where = origin_text(item.origin, item.origin_offset)
        text = f"the dead-letter handler is not called again for {where}: {self._described(failure)}"
        self._actions.append(Alarm("dead-handler", text, {"letter": where, "exception": failure.name}))
        row = Row(
            State.SKIPPED,
            attempt=item.attempt,
            exception=failure.name,
            reason=self._policy.reason(failure.text),
            last=self._state.now.wall_ms,
            member=self._member,
        )
        lane.move(item, Verdict(row=row))

    @staticmethod
    def _again(lane: PartitionLane, item: Item) -> None:
        """Make a record ready to be tried again in place.

        Its in-hand note is cleared, because the process survived the record.
        """
        if item.noted and item.row is not None:
            item.noted, item.row = False, item.row._replace(tries=0, among=0)
            lane.move(item, Verdict(row=item.row, stays=True))
        else:
            lane.push(item)

    def count_failure(self, item: Item, failure: Failure) -> None:
        """Store the failure with the record, and count it by exception class."""
        item.failure = failure
        self._counts["failed", failure.name] += 1

    def _described(self, failure: Failure) -> str:
        """Return the failure's class and text, for alarms and the reason of a stop."""
        return f"{failure.name}: {self._policy.scrubbed(failure.text)}"

    def _take_step(self, lane: PartitionLane, item: Item, failure: Failure, step: Step) -> None:
        delay_ms = step.delay_ms * (1.0 + step.jitter * self._draw()) if step.delay_ms else 0.0
        match step.kind:
            case StepKind.HERE:
                self._look_at_age(item, failure)
                item.due = self._state.now.ms + delay_ms
                self._again(lane, item)
            case StepKind.TOPIC:
                self._retry(lane, item, step.delay_ms, round(delay_ms))
            case StepKind.DEAD:
                self.die(lane, item)
            case StepKind.IGNORE:
                self._ignore(lane, item, failure)
            case StepKind.STOP:
                where = origin_text(item.origin, item.origin_offset)
                self._state.stop(f"{where} failed and the policy stops the member: {self._described(failure)}")
                lane.push(item)

    def _look_at_age(self, item: Item, failure: Failure) -> None:
        """Raise an alarm, once, for a record that has been failing for too long."""
        strategy = self._policy.last_strategies[failure.rule + 1]
        age_ms = self._state.now.wall_ms - item.first
        if isinstance(strategy, RetryForever) and not item.old and age_ms >= milliseconds(strategy.alarm_after):
            item.old = True
            where = origin_text(item.origin, item.origin_offset)
            text = f"{where} has been failing for {age_ms // 1000} s: {self._described(failure)}"
            self._actions.append(Alarm("age", text, {"record": where, "age_ms": age_ms}))

    def _retry(self, lane: PartitionLane, item: Item, topic_ms: int, delay_ms: int) -> None:
        """Schedule the write of a record to the retry topic for the delay `topic_ms`.

        With order by key, a letter stays in its topic.
        """
        self._counts["moved", "retry"] += 1
        now = self._state.now
        due = now.wall_ms + 1 + delay_ms  # the clock truncates to ms, and a retry must not be early
        topic = self._policy.layout.retry(lane.origin.topic, topic_ms)
        stays = lane.is_retry and self._policy.layout.by_key
        if not stays:
            item.id = self._state.letter_id(item)
        assert item.failure is not None, "it has failed"
        row = Row(
            State.RETRYING,
            item.id,
            topic,
            lane.origin.partition,
            item.attempt,
            due,
            item.failure.name,
            first=item.first,
            last=now.wall_ms,
            member=self._member,
            rounds=item.rounds,
            held=item.held,
        )
        if stays:
            item.row, item.due, item.noted = row, now.ms + delay_ms, False
            lane.move(item, Verdict(row=row, stays=True))
            return
        if lane.chains is not None:
            lane.chains.send(item.key, item.id)
        letter = Letter(
            item.id, self._policy.group, item.origin, item.origin_offset, item.attempt, due, item.first, item.rounds
        )
        put = Put(Goal.RETRY, topic, lane.origin.partition, item.message, letter, item.failure, now.wall_ms)
        lane.move(item, Verdict(put, row))

    def die(self, lane: PartitionLane, item: Item, state: State = State.DEAD) -> None:
        """Schedule the write of a record to its dead-letter topic."""
        assert item.failure is not None, "it has failed"
        self._counts["moved", "dead"] += 1
        now = self._state.now.wall_ms
        item.first = item.first or now
        item.id = self._state.letter_id(item)
        if self._holds and lane.chains is not None and item.key is not None:
            item.held = item.held or key_digest(item.key)
            lane.chains.hold(item.held, item.origin_offset)
        topic = self._policy.layout.dead(lane.origin.topic, item.failure.dead)
        row = Row(
            state,
            item.id,
            topic,
            lane.origin.partition,
            item.attempt,
            exception=item.failure.name,
            reason=self._policy.reason(item.failure.text),
            first=item.first,
            last=now,
            member=self._member,
            rounds=item.rounds,
            held=item.held,
        )
        letter = Letter(
            item.id, self._policy.group, item.origin, item.origin_offset, item.attempt, 0, item.first, item.rounds
        )
        put = Put(Goal.DEAD, topic, lane.origin.partition, item.message, letter, item.failure, now)
        lane.move(item, Verdict(put, row))

    def _ignore(self, lane: PartitionLane, item: Item, failure: Failure) -> None:
        place = failure.rule + 1
        strategy = self._policy.last_strategies[place]
        alarms, then = self._losses.lost(place, failure, self._state.now.ms)
        self._actions += alarms
        if then == "stop":
            self._state.stop("too many records were lost and the policy stops the member")
            lane.push(item)
            return
        if then == "dead letter":
            self.die(lane, item)
            return
        self._counts["ignored", lane.origin.topic] += 1
        row = None
        if isinstance(strategy, Ignore) and strategy.record:
            last = self._state.now.wall_ms
            row = Row(State.IGNORED, attempt=item.attempt, exception=failure.name, last=last, member=self._member)
        if row is not None or lane.is_retry or item.row is not None:
            lane.move(item, Verdict(row=row))
        else:
            lane.finish(item)

    def _open_breaker(self, why: str) -> None:
        """Open the breaker. Failed records that are not written yet become ready again."""
        self._breaker.open(self._state.now.ms)
        self._actions.append(Alarm("breaker", f"the breaker is open: {why}", {"open": True}))
        for lane in self._lanes.values():
            if lane.run is not None:
                self._actions.append(Withdraw(lane.partition))
            for item in list(lane.moving.values()):
                put = None if item.verdict is None else item.verdict.put
                if put is not None and put.goal in {Goal.RETRY, Goal.DEAD} and not self._moves.is_in_flight(lane, item):
                    self._recall(lane, item, put)

    def _recall(self, lane: PartitionLane, item: Item, put: Put) -> None:
        del lane.moving[item.offset]
        item.attempt -= 1
        item.counted = False
        self._counts["moved", put.goal.value] -= 1
        if lane.chains is not None and not lane.is_retry and put.goal is Goal.RETRY:
            assert put.letter is not None, "what is retried is a letter"
            lane.chains.take_back(item.key, put.letter.id)
        lane.push(item)

"""Run a continuous audit: count new records in rounds, judge closed time windows, and report later changes.

    1. counts    reads counts and consumers' reports; if they are unreadable, the round ends here
    2. stages    each stage reads its new records; an unreadable stage is judged once it is readable again
    3. verdicts  judges the closed windows, and reports changes
    4. forget    drops old windows
    5. save      after a round with events, at intervals, and at the end

A window is judged in a stage after its grace period, once the counts and the stage have been read again. If records or
counts arrive later, but within `keep_s`, the changed result is reported.

Thread rule: `run` belongs to one thread; any thread may call `families`, `not_alive` and `not_ready`.
"""

from __future__ import annotations

import time
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.audit.counts import RANGES_MAX
from kafkalite.audit.events import increment_of
from kafkalite.audit.following_stages import BrokerStage, ConsumerStage, LoadedStage, MirrorStage, Stage
from kafkalite.audit.histories import Histories
from kafkalite.audit.judge import Difference, Selection, judge_stage
from kafkalite.audit.lasting import AHEAD_MS, LastingReported
from kafkalite.audit.stages import NothingToCompare, committed, topics_of_counts
from kafkalite.audit.taken import Taken
from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
from kafkalite.base.dataclass import dataclass
from kafkalite.base.metric_families import Family, labels
from kafkalite.client.errors import ClientError, LogTruncated
from kafkalite.errors import KafkaError
from kafkalite.model import OFFSET_EARLIEST, OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from threading import Event

    from kafkalite.audit.run import Plan
    from kafkalite.client import Client

    Told = Callable[["Event_"], None]

INTERVAL_S: Final = 5.0
KEEP_S: Final = 3600.0
STUCK_S: Final = 300.0
"""A round without progress for this long is stuck."""
AWAY: Final = (KafkaError, ClientError, RegistryUnreachable, RegistryRefused, OSError, NothingToCompare)
"""Errors that mean that a stage cannot be read now."""
SAVE_S: Final = 10.0


class WindowName(NamedTuple):
    """A window of a topic."""

    topic: str
    start_ms: int
    length_ms: int


class Wrong(NamedTuple):
    """An event: a stage has new or changed faults. `before` is what was reported earlier, or None."""

    difference: Difference
    before: tuple[int, int, int] | None
    """Missing, duplicated, unreported."""
    missing: list[tuple[int, int]]
    """Missing ranges [first, end), at most RANGES_MAX, of spans that reach into the window."""
    duplicated: list[int]


class Closed(NamedTuple):
    """An event: a window has been judged in every stage, or a later change made it complete or incomplete."""

    window: WindowName
    expected: int
    stages: list[str]
    """Stages that have every message of the window once."""
    wrong: list[str]


class Away(NamedTuple):
    """An event: a stage, or the counts, became unreadable. Without a reason, it became readable again."""

    stage: str
    reason: str | None


Event_ = Wrong | Closed | Away
COUNTS: Final = "counts"


@dataclass(slots=True)
class Numbers:
    """The values on the metrics page; each round replaces them together."""

    up: dict[str, bool] = field(default_factory=dict)
    read_at_ms: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    untracked: dict[str, int] = field(default_factory=dict)
    unmarked: dict[str, int] = field(default_factory=dict)
    wrong: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """(stage, topic) → missing, duplicated, unreported in kept windows."""
    open_count: int = 0
    kept_count: int = 0
    rounds: int = 0


class Follower:
    """A continuous audit; see the module.

    `plan`        what to compare; its times are ignored, and its grace is the default of stages
    `tell`        called with each event, in order
    `graces_s`    grace by stage name
    `interval_s`  the time between rounds
    `keep_s`      how long windows are kept after their end
    `recounts`    count a stage again if its log was restored; otherwise `run` raises LogTruncated
    """

    def __init__(
        self,
        plan: Plan,
        tell: Told,
        *,
        graces_s: Mapping[str, float] | None = None,
        interval_s: float = INTERVAL_S,
        keep_s: float = KEEP_S,
        recounts: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._plan = plan
        self._tell = tell
        self._interval_s = interval_s
        self.recounts = recounts
        self._keep_ms = round(keep_s * 1000)
        self._now_ms = now_ms
        self.horizon_ms = now_ms() - self._keep_ms
        self.first_ms = self.horizon_ms
        """Windows that begin earlier are not judged, since they were not read completely."""
        self.reported = LastingReported()
        self.taken = Taken(plan.consumers)
        self.positions: dict[str, dict[TopicPartition, int]] = {}
        """Next offsets of the topics of counts, by cluster (live, offline)."""
        self.histories: dict[str, Histories] = {}
        """Log histories of the topics of counts, by cluster."""
        self.stages: dict[str, Stage] = {stage.name: stage for stage in stages_of(plan, self)}
        graces = graces_s or {}
        self._graces_ms = {name: round(1000 * graces.get(name, plan.grace_s)) for name in self.stages}
        self.told: dict[tuple[str, WindowName, str], tuple[int, int, int]] = {}
        """(stage, window, server) → the faults as they were reported."""
        self.closed: dict[WindowName, bool] = {}
        """Windows reported as a whole → whether they were complete."""
        self.totals = {"complete": 0, "different": 0}
        self._counts_read_ms = 0
        self._away: dict[str, str] = {}
        self._beat = time.monotonic()
        self._numbers = Numbers()
        self.changed = False
        """Whether an event was reported since this was set to False."""

    # --- rounds -------------------------------------------------------------------------------------------------------

    def run(self, stop: Event, save: Callable[[], object] | None = None) -> None:
        """Run rounds until `stop`. `save` is called after a round with events, every SAVE_S, and at the end."""
        saved_at = float("-inf")
        while not stop.is_set():
            self.round(stop)
            if save is not None and not stop.is_set() and (self.changed or time.monotonic() - saved_at > SAVE_S):
                save()
                self.changed, saved_at = False, time.monotonic()
            stop.wait(self._interval_s)
        if save is not None:
            save()

    def round(self, stop: Event) -> None:
        """Count new records and report the results. If `stop` interrupts a round, the next call resumes it."""
        self.beat()
        if self._try(COUNTS, self._read_counts, stop):
            topics = sorted(topic for topic in self.reported.topics if self._plan.topics.fullmatch(topic))
            for name, stage in self.stages.items():
                began = self._now_ms()
                stage.count.look_ahead(began)
                if self._try(name, lambda stage=stage: stage.read(topics, stop), stop):
                    stage.read_at_ms = min(began, self._counts_read_ms)
            if not stop.is_set():
                self._judge(topics)
                self._forget()
        self._note()

    def beat(self) -> None:
        """Store the time of progress in a round. Without progress, the audit is reported as stuck."""
        self._beat = time.monotonic()

    def _try(self, name: str, attempt: Callable[..., object], stop: Event) -> bool:
        """Run a step of the round. Return whether it completed. A failure is reported once while it lasts."""
        try:
            attempt()
        except LogTruncated:
            raise
        except AWAY as error:
            reason = f"{error} ({error.name})" if isinstance(error, KafkaError) else str(error)
            if name not in self._away and not stop.is_set():
                self._emit(Away(name, reason))
            self._away[name] = reason
            return False
        if self._away.pop(name, None) is not None:
            self._emit(Away(name, None))
        return not stop.is_set()

    def _emit(self, event: Event_) -> None:
        self.changed = True
        self._tell(event)

    def _read_counts(self) -> None:
        plan = self._plan
        began = self._now_ms()
        if not self._read_reports("live", plan.live):
            raise NothingToCompare(f"topic {plan.counts}, which should hold the producers' counts, does not exist")
        if plan.offline is not None and plan.consumers:
            self._read_reports("offline", plan.offline)
        self._counts_read_ms = began

    def _read_reports(self, whose: str, client: Client) -> bool:
        """Read the topics of counts in one cluster. Return whether there are any."""
        there = topics_of_counts(client, self._plan.counts)
        known = self.positions.setdefault(whose, {})
        keys = [TopicPartition(name, partition) for name in there for partition in client.partitions(name)]
        starts = client.list_offsets(dict.fromkeys(keys, OFFSET_EARLIEST), isolation=1)
        ends = client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST), isolation=1)
        histories = self.histories.setdefault(whose, Histories())
        moved = {key: known[key] for key in keys if known.get(key, 0) not in {0, ends[key].offset}}
        for divergence in histories.parted(client, moved):
            del known[divergence.partition]  # known reports are skipped when they are read again
        ranges = {}
        for key in keys:
            end = ends[key].offset
            start = max(starts[key].offset, known.get(key, 0))
            known[key] = start
            if start < end:
                ranges[key] = (start, end)
        if ranges:
            with committed(client, ranges, ["values"]) as reader:
                for chunk in reader:
                    self.beat()
                    for value in chunk.columns.values:
                        if not self.taken.add_message(value, client.cluster_id) and whose == "live":
                            self._take(value)
                    known[chunk.partition] = chunk.next_offset
                    histories.note(reader, chunk)
        return bool(there)

    def _take(self, value: bytes | None) -> None:
        try:
            increment = increment_of(value)
        except ValueError:
            self.reported.unreadable += 1
            return
        if self.reported.take(increment, self.horizon_ms, self._now_ms() + AHEAD_MS):
            for stage in self.stages.values():
                stage.count.claim([increment])

    # --- verdicts -----------------------------------------------------------------------------------------------------

    def _judge(self, topics: list[str]) -> None:
        wrong: dict[tuple[str, str], list[int]] = {}
        reached: dict[WindowName, list[str]] = {}
        expected: dict[WindowName, int] = {}
        waiting: set[WindowName] = set()
        bad: dict[WindowName, set[str]] = {}
        for name, stage in self.stages.items():
            closed_ms = stage.read_at_ms - self._graces_ms[name]
            stage.count.settle(closed_ms)
            judged = judge_stage(
                self.reported, stage.count, Selection(frozenset(topics), closed_ms, since_ms=self.first_ms)
            )
            waiting |= {WindowName(*row) for row in judged.still_open}
            for row in judged.closed:
                reached.setdefault(WindowName(*row), []).append(name)
            sums: dict[WindowName, int] = {}
            for (topic, start, length, server), (wanted, *rest) in sorted(judged.groups.items()):
                window = WindowName(topic, start, length)
                sums[window] = sums.get(window, 0) + wanted
                found = (rest[0], rest[1], rest[2])
                self._tell_wrong(name, window, server, wanted, found)
                if any(found):
                    bad.setdefault(window, set()).add(name)
                    total = wrong.setdefault((name, topic), [0, 0, 0])
                    for at, value in enumerate(found):
                        total[at] += value
            expected = sums | expected
        for window in sorted(reached.keys() - waiting, key=lambda one: (one.start_ms, one)):
            self._tell_closed(window, expected.get(window, 0), reached[window], bad.get(window, set()))
        numbers = self._numbers = Numbers(rounds=self._numbers.rounds + 1)
        numbers.wrong = {key: (row[0], row[1], row[2]) for key, row in wrong.items()}
        numbers.open_count, numbers.kept_count = len(waiting), len(reached.keys() - waiting)

    def _tell_wrong(
        self, stage: str, window: WindowName, server: str, wanted: int, found: tuple[int, int, int]
    ) -> None:
        key = (stage, window, server)
        before = self.told.get(key)
        if found == (before or (0, 0, 0)):
            return
        self.told[key] = found
        missing, duplicated = self._numbers_of(stage, window, server, found)
        self._emit(Wrong(Difference(stage, *window, server, wanted, *found), before, missing, duplicated))

    def _numbers_of(
        self, stage: str, window: WindowName, server: str, found: tuple[int, int, int]
    ) -> tuple[list[tuple[int, int]], list[int]]:
        """Return the missing ranges and the duplicated sequences of a window.

        They are taken from all spans of increments that reach into the window.
        """
        count = self.stages[stage].count
        missing: list[tuple[int, int]] = []
        duplicated: list[int] = []
        for topic, run in self.reported.expected:
            if topic != window.topic or self.reported.servers.get(run) != server:
                continue
            spans = self.reported.spans_of(topic, run, window.start_ms)
            if found[0]:
                for gap in count.missing_ranges(topic, run, spans):
                    if len(missing) == RANGES_MAX:
                        break
                    missing.append(gap)
            if found[1]:
                twice = count.duplicated_sequences(topic, run)
                duplicated += [one for one in twice if any(first <= one < end for first, end in spans)]
        return missing, duplicated[:RANGES_MAX]

    def _tell_closed(self, window: WindowName, expected: int, stages: list[str], bad: set[str]) -> None:
        complete = not bad
        if self.closed.get(window) is complete:
            return
        if window in self.closed:
            self.totals["different" if complete else "complete"] -= 1
        self.totals["complete" if complete else "different"] += 1
        self.closed[window] = complete
        whole = [name for name in stages if name not in bad]
        self._emit(Closed(window, expected, whole, [name for name in stages if name in bad]))

    def _forget(self) -> None:
        self.horizon_ms = max(self.horizon_ms, self._now_ms() - self._keep_ms)
        self.reported.forget(self.horizon_ms)
        for stage in self.stages.values():
            stage.count.forget(self.horizon_ms)
        for key in [key for key in self.told if key[1].start_ms + key[1].length_ms <= self.horizon_ms]:
            del self.told[key]
        for window in [one for one in self.closed if one.start_ms + one.length_ms <= self.horizon_ms]:
            del self.closed[window]

    # --- metrics and health -------------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Update the values for the metrics page."""
        numbers, stages = self._numbers, self.stages
        numbers.up = {COUNTS: COUNTS not in self._away, **{name: name not in self._away for name in stages}}
        numbers.read_at_ms = {name: stage.read_at_ms for name, stage in stages.items()}
        numbers.records = {name: stage.count.record_count for name, stage in stages.items()}
        numbers.late = {name: stage.count.late for name, stage in stages.items()}
        numbers.untracked = {name: stage.count.untracked for name, stage in stages.items()}
        numbers.unmarked = {name: sum(stage.count.unmarked.values()) for name, stage in stages.items()}

    def not_alive(self) -> list[str]:
        """Return reasons why the audit is stuck, if it is."""
        stuck_s = time.monotonic() - self._beat
        return [f"no progress for {stuck_s:.0f} s"] if stuck_s > max(STUCK_S, 3 * self._interval_s) else []

    def not_ready(self) -> list[str]:
        """Return the stages that cannot be read. If all can be read, return the stages that were not read yet."""
        away = [f"{name}: {reason}" for name, reason in sorted(self._away.copy().items())]
        return away or [f"{name} was not read yet" for name, stage in self.stages.items() if not stage.read_at_ms]

    def families(self) -> Iterator[Family]:
        """Yield the audit's metrics."""
        numbers = self._numbers

        def by_stage(name: str, kind: Any, text: str, values: Mapping[str, float]) -> Family:
            return Family(f"kafkalite_audit_{name}", kind, text, [(labels(stage=key), v) for key, v in values.items()])

        up = {name: int(value) for name, value in numbers.up.items()}
        yield by_stage("stage_up", "gauge", "1 if the last round could read the stage, else 0.", up)
        read_at = {name: moment / 1000 for name, moment in numbers.read_at_ms.items()}
        yield by_stage(
            "stage_read_seconds",
            "gauge",
            "Timestamp up to which a stage has been read, in seconds since 1970.",
            read_at,
        )
        yield by_stage("records", "counter", "Records read from a stage.", numbers.records)
        yield by_stage("unmarked_records", "counter", "Records without a mark.", numbers.unmarked)
        yield by_stage("late_records", "counter", "Records of windows that are no longer kept.", numbers.late)
        yield by_stage(
            "untracked_records",
            "counter",
            "Records ignored because there was no space or their time was implausible.",
            numbers.untracked,
        )
        for at, name in enumerate(("missing", "duplicated", "unreported")):
            rows = [(labels(stage=stage, topic=topic), row[at]) for (stage, topic), row in numbers.wrong.items()]
            yield Family(
                f"kafkalite_audit_{name}_messages", "gauge", f"Number of {name} messages in the windows kept.", rows
            )
        verdicts: Iterable[tuple[str, float]] = [(labels(verdict=name), n) for name, n in self.totals.items()]
        yield Family("kafkalite_audit_windows", "gauge", "Windows compared in every stage, by result.", verdicts)
        yield Family(
            "kafkalite_audit_open_windows",
            "gauge",
            "Windows not yet compared in every stage.",
            [("", numbers.open_count)],
        )
        yield Family("kafkalite_audit_rounds", "counter", "Rounds that compared windows.", [("", numbers.rounds)])


def stages_of(plan: Plan, follower: Follower) -> list[Stage]:
    """Return the stages in the order in which they are read and reported."""
    make: dict[str, Any] = {
        "reported": follower.reported,
        "horizon_ms": follower.horizon_ms,
        "beat": follower.beat,
        "recounts": follower.recounts,
    }
    found: list[Stage] = [BrokerStage("live", plan.live, fields=plan.fields, **make)]
    if plan.offline is not None and plan.mirror is not None:
        found.append(MirrorStage("mirror", plan.live, plan.offline, plan.mirror, fields=plan.fields, **make))
    clients = [plan.live] if plan.offline is None else [plan.live, plan.offline]
    found += [ConsumerStage(name, clients, follower.taken, fields=plan.fields, **make) for name in plan.consumers]
    if plan.offline is not None:
        found.append(BrokerStage("offline", plan.offline, fields=plan.fields, **make))
    return found + [LoadedStage(name, folder, fields=plan.fields, **make) for name, folder in plan.loaded.items()]

"""Run one audit: read all stages in an order that causes no false alarms, and compare them with the producers' counts.

The audit calls the producers' broker `live`, and the mirror's target `offline`.

    1. reports     the counts of producers, from live, and the reports of consumers, from both brokers
    2. progress    the mirror's progress, from offline
    3. live        the records, read once for the stages live, mirror and consumers
    4. offline     the records, read once for the stages offline and consumers
    5. loaded      the files that `kafkalite load` has published

Since the reports are read first, each message that a producer has counted exists when a stage is read.

Thread rule: one thread at a time, that of the Clients.
"""

from __future__ import annotations

import functools
import re
import time
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite.audit.counts import RANGES_MAX, Count
from kafkalite.audit.events import AUDIT_TOPIC, Reported
from kafkalite.audit.judge import Selection, Verdict, judge
from kafkalite.audit.stages import (
    NothingToCompare,
    View,
    copied_below,
    count_broker,
    count_loaded,
    loaded_files,
    mirror_progress,
    present,
    read_reports,
    taken_in,
)
from kafkalite.audit.taken import Taken
from kafkalite.base.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalite.audit.fields import MarkFields
    from kafkalite.client import Client
    from kafkalite.model import TopicPartition

GRACE_S: Final = 60.0
LOADED_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What to compare. `live` is the producers' broker, `offline` the mirror's target.

    `mirror`                  the mirror's name; its progress is in `offline`
    `counts`                  the topic of producers' counts in `live`, and of consumers' reports in both. The topic
                              with the suffix `.classic` is read, too
    `consumers`               stages of consumers
    `fields`                  the payload fields that contain marks
    `topics`                  pattern for whole topic names
    `loaded`                  directories of `kafkalite load`, by stage name
    `since_ms`, `until_ms`    the windows to compare
    `grace_s`                 how long a window stays open after its end
    """

    live: Client
    offline: Client | None = None
    mirror: str | None = None
    loaded: Mapping[str, str] = field(default_factory=dict)
    counts: str = AUDIT_TOPIC
    consumers: tuple[str, ...] = ()
    fields: MarkFields | None = None
    topics: re.Pattern[str] = field(default=re.compile(".*"))
    since_ms: int | None = None
    until_ms: int | None = None
    grace_s: float = GRACE_S


class NamedMessages(NamedTuple):
    """Sequences of one run that a stage lacks or has more than once; at most RANGES_MAX of each."""

    stage: str
    topic: str
    server: str
    run: int
    missing: list[tuple[int, int]]
    """[first, end)"""
    duplicated: dict[int, int]
    """sequence → number of further records"""


@dataclass(slots=True)
class Report:
    """The result of an audit."""

    verdict: Verdict
    stages: dict[str, Count]
    named: list[NamedMessages]
    notes: list[str]


def run_audit(plan: Plan, on_progress: Callable[[str, int], None] | None = None) -> Report:
    """Read the stages and compare them. `on_progress` is called with a stage and the number of its records read so far.

    Raises NothingToCompare if there is no topic of counts, no topic that matches, no progress of the mirror, no report
    of a consumer, or no loaded file.
    """
    closed_ms = round((time.time() - plan.grace_s) * 1000)
    reported, taken = Reported(), Taken(plan.consumers)
    read_reports(plan.live, plan.counts, reported, taken)
    if plan.offline is not None and plan.consumers and present(plan.offline, [plan.counts]):
        read_reports(plan.offline, plan.counts, Reported(), taken)
    topics = sorted(topic for topic in reported.topics if plan.topics.fullmatch(topic))
    if not topics:
        raise NothingToCompare(f"no producer has reported counts for a topic that matches {plan.topics.pattern}")
    copied = None
    if plan.offline is not None and plan.mirror is not None:
        copied = mirror_progress(plan.live, plan.offline, plan.mirror)
    stages: dict[str, Count] = {}
    notes: list[str] = []
    if reported.unreadable:
        notes.append(f"{reported.unreadable} messages of {plan.counts} are not producer counts and were ignored")

    def new_count() -> Count:
        return Count(reported, since_ms=plan.since_ms)

    def read_broker(stage: str, client: Client, progress: dict[TopicPartition, int] | None) -> None:
        counted = stages[stage] = new_count()
        views = []
        if progress is not None:
            stages["mirror"] = new_count()
            views.append(View(stages["mirror"], copied_below(progress)))
        for name in plan.consumers:
            spans = taken.of(name, client.cluster_id)
            if spans and name not in stages:
                stages[name] = new_count()
                stages[name].topics = frozenset(key.topic for key in spans)
                views.append(View(stages[name], taken_in(spans)))
        found = count_broker(
            client,
            topics,
            counted,
            since_ms=plan.since_ms,
            views=views,
            fields=plan.fields,
            on_progress=None if on_progress is None else functools.partial(on_progress, stage),
        )
        notes.extend(f"{stage}: {text}" for text in found)

    read_broker("live", plan.live, copied)
    if plan.offline is not None:
        read_broker("offline", plan.offline, None)
    silent = [name for name in plan.consumers if name not in stages]
    if silent:
        raise NothingToCompare(f"no consumer of stage {silent[0]} has reported anything yet")
    for stage, folder in plan.loaded.items():
        heard = None if on_progress is None else functools.partial(on_progress, stage)
        stages[stage] = read_loaded(folder, topics, new_count, heard, plan.fields)
    for stage, count in stages.items():
        notes += [
            f"{stage}: {rows} records of {topic} have no audit mark" for topic, rows in sorted(count.unmarked.items())
        ]
    verdict = judge(reported, stages, Selection(frozenset(topics), closed_ms, plan.since_ms, plan.until_ms))
    return Report(verdict, stages, named_messages(verdict, reported, stages), notes)


def read_loaded(
    folder: str,
    topics: list[str],
    new_count: Callable[[], Count],
    on_progress: Callable[[int], None] | None,
    fields: MarkFields | None,
) -> Count:
    """Count loaded files. If compaction replaces a file meanwhile, start again."""
    for _ in range(LOADED_ATTEMPTS):
        count = new_count()
        try:
            count_loaded(folder, loaded_files(folder), topics, count, fields=fields, on_progress=on_progress)
        except FileNotFoundError:
            continue
        return count
    raise NothingToCompare(f"the files in {folder} kept being replaced while they were read; try again")


def named_messages(verdict: Verdict, reported: Reported, stages: dict[str, Count]) -> list[NamedMessages]:
    """Return the missing and duplicated sequences, for each run that has any.

    The sequences of a run are not separated by window, so the result may include windows that are not judged.
    """
    wanted = {(row.stage, row.topic, row.server) for row in verdict.differences if row.missing or row.duplicated}
    found = []
    for topic, run in sorted(reported.expected):
        for stage, count in stages.items():
            if (stage, topic, count.servers[run]) not in wanted:
                continue
            missing = []
            for gap in count.missing_ranges(topic, run):
                missing.append(gap)
                if len(missing) == RANGES_MAX:
                    break
            twice = count.duplicated_sequences(topic, run)
            if missing or twice:
                found.append(NamedMessages(stage, topic, count.servers[run], run, missing, twice))
    return found

"""Run a load: read records, write files and commit, in rounds, until all records are loaded.

    corrections   starts of new partitions, and new positions where records no longer exist; committed before the round
    round         the engine writes the records of the round to files in the staging folder
    commit        publishes files, positions and dead letters together; then the next round begins

An engine is a function that writes the records of one round into files. It returns the rows of
`kafkalite.load.parquet.write`, which describe the files, and publishes nothing. There is a Spark engine and a native
engine.

Thread rule: one thread at a time, the thread of the plan's Client.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from kafkalite.base.dataclass import dataclass
from kafkalite.client.history import marks_at
from kafkalite.load.columns import Columns, from_json, merged, to_json
from kafkalite.load.layout import HOUR, Layout, require_few
from kafkalite.load.letters import LetterTopic, deliver, prepare, publish_with
from kafkalite.load.manifest import Change, DataFile
from kafkalite.load.parquet import CODECS
from kafkalite.load.storage import LoadError
from kafkalite.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalite.client import Client
    from kafkalite.load.manifest import LoadState, Target
    from kafkalite.load.plan import LoadPlan, LoadRound

    Engine = Callable[[LoadRound, str, dict[str, Layout]], Iterable[str]]
    """(round, staging folder, layouts by topic) → rows of `kafkalite.load.parquet.write`."""

COMMIT_SIZE: Final = 1024 * 1024 * 1024
"""Approximate bytes on the wire that a load publishes at a time."""
LOSSES: Final = ("fail", "skip")


@dataclass(frozen=True)
class Published:
    """A commit of a load: the number of its manifest, and what it adds."""

    number: int
    files: Sequence[DataFile]
    positions: Mapping[TopicPartition, int]
    letters: Mapping[str, int] = field(default_factory=dict)
    """Topic → number of its records that went to the dead-letter topic."""

    @property
    def rows(self) -> int:
        """The number of records in the files."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """The size of the files in bytes."""
        return sum(file.size for file in self.files)


@dataclass
class Summary:
    """The result of a load. `lag` is the number of offsets that were appended after the load had determined its end."""

    topics: list[str]
    rows: int = 0
    size: int = 0
    files: int = 0
    commits: int = 0
    seconds: float = 0.0
    lag: int = 0
    lags: dict[str, int] = field(default_factory=dict)
    """Lag by topic."""
    letters: int = 0
    """Records that went to the dead-letter topic."""
    losses: list[str] = field(default_factory=list)
    """One sentence for each loss that was skipped (on_data_loss="skip")."""

    def add(self, published: Published) -> None:
        """Add the numbers of a commit."""
        self.rows += published.rows
        self.size += published.size
        self.files += len(published.files)
        self.commits += 1
        self.letters += sum(published.letters.values())


def run(
    target: Target,
    plan: LoadPlan,
    engine: Engine,
    *,
    letters: LetterTopic | None = None,
    on_commit: Callable[[Published], None] | None = None,
    partition_by: str | None = None,
    flatten: str | None = None,
) -> Summary:
    """Load all records of the plan that the target lacks, with one commit per round. Return a summary.

    Raises LoadError, OptionError and KafkaError.
    """
    began = time.monotonic()
    summary = Summary(plan.topics, losses=plan.losses)
    if letters is not None:
        prepare(plan.client, letters)
    while True:
        with target.writing() as staging:
            deliver(target.storage, plan.client)
            corrections = plan.corrections(target.state)
            if corrections is not None:
                target.commit(corrections, {})
            part = plan.following(target.state)
            if part is None:
                break
            topics = sorted({key.topic for key in part.ends})
            layouts = layouts_of(target.state, topics, partition_by, flatten, target.location)
            change = Change("load", positions=part.ends, layouts=new_layouts(target, layouts))
            rows = engine(part, staging, layouts)
            to = None if letters is None else (plan.client, letters)
            published = publish_rows(target, rows, change, to, plan.client)
        summary.add(published)
        if on_commit is not None:
            on_commit(published)
    summary.lags = plan.lags(target.state.positions)
    summary.lag = sum(summary.lags.values())
    summary.seconds = time.monotonic() - began
    return summary


def layouts_of(
    state: LoadState, topics: Iterable[str], partition_by: str | None, flatten: str | None, location: str
) -> dict[str, Layout]:
    """Return the layout of each topic: the one of its first load, or else the one that the options select.

    LoadError if the options contradict the layout of the first load.
    """
    found = {}
    loaded = {file.topic for file in state.files.values()} | state.schemas.keys()
    for topic in topics:
        known = state.layouts.get(topic, Layout() if topic in loaded else None)
        if known is None:
            found[topic] = Layout(partition_by or HOUR, flatten or "")
            continue
        if partition_by not in {None, known.by}:
            raise LoadError(
                f"topic {topic} in {location} is partitioned by {known.by}, not by {partition_by}; omit the option, or "
                "load into another directory"
            )
        if flatten not in {None, known.flatten}:
            how = f"flattened with {known.flatten!r}" if known.flatten else "not flattened"
            raise LoadError(f"topic {topic} in {location} is {how}; omit the option, or load into another directory")
        found[topic] = known
    return found


def new_layouts(target: Target, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """Return the layouts to publish with a commit: those of new topics that are not laid out by hour."""
    known = target.state.layouts
    return {topic: layout for topic, layout in layouts.items() if topic not in known and layout != Layout()}


def publish_rows(
    target: Target,
    rows: Iterable[str],
    change: Change,
    letters: tuple[Client, LetterTopic] | None = None,
    source: Client | None = None,
) -> Published:
    """Commit the files that an engine wrote, and send the dead letters. The caller has the target's lock.

    `rows` are the rows that `kafkalite.load.parquet.write` returned. `source` is a client of the
    records' cluster. It reads the leader epoch and batch at each position, which later show whether the log was
    truncated.
    """
    added, staged, bad = [], {}, []
    tables: dict[str, Columns] = {}
    for row in rows:
        value = json.loads(row)
        if "schemas" in value:
            for topic, columns in value["schemas"].items():
                known = tables.get(topic) or from_json(target.state.schemas.get(topic, ()))
                tables[topic] = joined(topic, known, from_json(columns))
            continue
        if "letters" in value:
            bad.append(value)
            continue
        file = DataFile.from_json(value)
        name = f"{file.folder}/{file.path.rpartition('/')[2]}"
        staged[name] = file.path
        added.append(file._replace(path=name))
    added.sort(key=lambda file: (file.folder, min(file.partitions.items())))
    for topic, layout in {**target.state.layouts, **change.layouts}.items():
        require_few(layout, topic, len({file.place for file in added if file.topic == topic}))
    reached = dict(change.positions)
    for file in added:
        for partition, share in file.partitions.items():
            key = TopicPartition(file.topic, partition)
            reached[key] = max(reached.get(key, 0), share.last + 1)
    counts: Counter[str] = Counter()
    for topic, partition, end, count in (row for value in bad for row in value["ends"]):
        key = TopicPartition(topic, partition)
        reached[key] = max(reached.get(key, 0), end)
        counts[topic] += count
    marks = {} if source is None else marks_at(source, reached)
    schemas = {topic: to_json(columns) for topic, columns in tables.items()}
    schemas = {topic: rows for topic, rows in schemas.items() if target.state.schemas.get(topic) != rows}
    change = replace(change, added=added, positions=reached, marks=marks, schemas=schemas)
    if not bad or letters is None:
        return Published(target.commit(change, staged), added, reached)
    client, topic_of_letters = letters
    folder, files = publish_with(target.storage, client, topic_of_letters, [value["letters"] for value in bad])
    number = target.commit(replace(change, letters=folder), staged, files)
    deliver(target.storage, client, fresh=folder)
    return Published(number, added, reached, counts)


def joined(topic: str, one: Columns, other: Columns) -> Columns:
    """Merge the columns that a task wrote into the columns of the topic. LoadError if they conflict."""
    columns, conflicts = merged(one, other)
    if conflicts:
        raise LoadError(f"the columns of {topic} conflict: {conflicts[0]}")
    return columns


def prefix_of(target: Target) -> str:
    """Return the prefix of new file names. It contains the number of the commit that publishes them."""
    return f"part-{target.state.number + 1:08d}"


def require_settings(codec: str, file_size: int) -> None:
    """Raise ValueError for an unknown codec or an invalid file size."""
    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    if file_size < 1:
        raise ValueError(f"file_size must be at least 1 byte, not {file_size}")


def require_load(on_data_loss: str, commit_size: int) -> None:
    """Raise ValueError for an invalid `on_data_loss` or `commit_size`."""
    if on_data_loss not in LOSSES or commit_size < 1:
        raise ValueError(
            f"on_data_loss must be {' or '.join(LOSSES)} (not {on_data_loss!r}), and commit_size above 0 "
            f"(not {commit_size})"
        )

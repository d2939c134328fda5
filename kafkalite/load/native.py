"""Load topics into Parquet files in this process, without Spark and a JVM (the native engine).

    LoadRound ─▶ ColumnReader, a partition at a time ─▶ [decode values] ─▶ kafkalite.load.parquet.write

The native engine uses the same directories and manifests as the Spark engine. Each can continue a load of the other.

Thread rule: one thread at a time, the thread of the Client.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalite.client import Client, ColumnReader
from kafkalite.errors import InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from kafkalite.load.layout import require_layout
from kafkalite.load.leftovers import what_is_left
from kafkalite.load.letters import LetterTopic
from kafkalite.load.loading import COMMIT_SIZE, Published, Summary, prefix_of, require_load, require_settings, run
from kafkalite.load.manifest import Target
from kafkalite.load.parquet import FILE_SIZE, Writing, write
from kafkalite.load.plan import REMEDY, LoadPlan, LoadRound, LoadSource, starting_bound
from kafkalite.load.selection import OptionError, Subscription, require_topic
from kafkalite.load.storage import LoadError
from kafkalite.load.table_schema import tables
from kafkalite.model import uuid_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalite.load.columns import Aliases
    from kafkalite.load.layout import Layout
    from kafkalite.load.storage import Storage
    from kafkalite.model import TopicPartition

ROWS_MAX: Final = 100_000
SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a batch between client and files: fewer, larger batches cost less per record."""


class Values(Protocol):
    """A decoder of the values in record batches."""

    aside: Mapping[str, str]
    """Column → exception: a row with a value in this column is a dead letter (kafkalite.load.letters)."""
    aliases: Aliases
    """Older names of the decoded columns."""
    errors: str
    """The column with the reason why a value is bad; "" if a bad value ends the load."""

    def decoded(self, batch: Any) -> Any:
        """Return the batch with columns of its decoded values. LoadError for a bad value that ends the load."""


def load(
    path: str | os.PathLike[str] | Storage | Target,
    *,
    bootstrap_servers: str | None = None,
    client: Client | None = None,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    starting: str | int = "earliest",
    isolation_level: str = "read_committed",
    on_data_loss: str = "fail",
    values: Values | None = None,
    dead_letters: str | LetterTopic | None = None,
    codec: str = "zstd",
    file_size: int = FILE_SIZE,
    commit_size: int = COMMIT_SIZE,
    on_commit: Callable[[Published], None] | None = None,
    partition_by: str | None = None,
    flatten: str | None = None,
) -> Summary:
    """Load the records of topics that are not yet in `path`, up to the current ends. Return a Summary.

    `bootstrap_servers`, or `client`     the cluster; set exactly one of them
    `topics`, or `pattern`               the names of topics, or a regular expression that matches whole names
    `starting`                           where to start in partitions that were never loaded: "earliest", "latest",
                                         offsets as in Spark's startingOffsets, or a number: the first record with at
                                         least this timestamp, in ms since 1970
    `commit_size`                        approximate bytes per commit
    `values`                             a decoder of the records' values
    `dead_letters`                       the topic for records that `values` cannot decode; they are written there
                                         exactly once, and not to the files
    `on_data_loss`                       if records no longer exist: "fail", or "skip" to continue without them
    `partition_by`                       "hour" (default), "day" or a column of decoded values
    `flatten`                            "." or "_": fields of decoded values become columns user.name or user_name

    A topic keeps the options `partition_by` and `flatten` of its first load.

    Raises LoadError if the load cannot continue, ValueError or OptionError for invalid arguments, KafkaError and
    ClientError.
    """
    require_settings(codec, file_size)
    require_load(on_data_loss, commit_size)
    require_layout(partition_by, flatten)
    source = LoadSource(
        subscription_of(topics, pattern), starting_bound(starting), isolation_level, on_data_loss == "fail"
    )
    letters = LetterTopic(dead_letters) if isinstance(dead_letters, str) else dead_letters
    if letters is not None and (values is None or not values.aside):
        raise ValueError('dead_letters needs values: AvroValues or JsonValues with mode "dlq"')
    if (client is None) == (bootstrap_servers is None):
        raise ValueError("pass either client or bootstrap_servers")
    target = path if isinstance(path, Target) else Target(path)
    own = Client(bootstrap_servers) if bootstrap_servers is not None else None
    try:
        plan = LoadPlan(own or _given(client), source, commit_size=commit_size)
        aside = {} if letters is None or values is None else values.aside

        def engine(part: LoadRound, staging: str, layouts: Mapping[str, Layout]) -> list[str]:
            known = tables(target.storage, target.state, strict=False)
            writing = Writing(staging, prefix_of(target), codec, file_size, {}, False, aside, known, layouts=layouts)
            if values is not None:
                writing = writing._replace(aliases=values.aliases, errors=values.errors, drops_values=True)
            return written(plan, part, writing, values)

        return run(
            target, plan, engine, letters=letters, on_commit=on_commit, partition_by=partition_by, flatten=flatten
        )
    finally:
        if own is not None:
            own.close()


def _given(client: Client | None) -> Client:
    assert client is not None, "one of both was checked"
    return client


def subscription_of(topics: Sequence[str], pattern: str | None) -> Subscription:
    """Return the subscription for topic names or a pattern.

    ValueError unless exactly one of them is set. OptionError for an invalid name or pattern.
    """
    if bool(topics) == (pattern is not None):
        raise ValueError("set either topics or pattern")
    if pattern is None:
        for topic in topics:
            require_topic("topics", topic)
        return Subscription(topics=tuple(sorted(set(topics))))
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"option pattern is not a regular expression: {error}") from None
    return Subscription(pattern=pattern, whole_name=True)


def written(plan: LoadPlan, part: LoadRound, writing: Writing, values: Values | None) -> list[str]:
    """Write the records of a round into files in the staging folder.

    Return the rows of `kafkalite.load.parquet.write`.
    """
    batches = records_of(plan, part)
    if values is not None:
        batches = map(values.decoded, batches)
    rows = write(writing, batches)
    return [text for row in rows for text in row.column(0).to_pylist()]


def records_of(plan: LoadPlan, part: LoadRound) -> Iterator[Any]:
    """Yield the records of a round as Arrow record batches, one partition at a time.

    The columns are those of Spark's `format("kafkalite")`. If records are missing, this raises LoadError. With
    on_data_loss="skip", it adds a sentence to the plan's `losses` instead.
    """
    reader = ColumnReader(
        plan.client, isolation_level=plan.source.isolation_level, rows_max=ROWS_MAX, size_max=SIZE_MAX
    )
    for key in sorted(part.ends):
        start, end = part.starts[key], part.ends[key]
        text = plan.topic_ids.get(key.topic)
        topic_id = None if text is None else uuid_bytes(text)
        if plan.source.fail_on_data_loss:
            yield from whole(reader, key, start, end, topic_id)
        else:
            yield from what_is_left(reader, key, start, end, topic_id, plan.losses.append)


def whole(reader: ColumnReader, key: TopicPartition, start: int, end: int, topic_id: bytes | None) -> Iterator[Any]:
    """Yield the records of a range as record batches. LoadError if a part of the range is missing."""
    try:
        yield from reader.read(key.topic, key.partition, start, end, topic_id=topic_id)
    except (OffsetOutOfRange, InconsistentTopicId, UnknownTopicOrPartition) as error:
        raise LoadError(f"offsets {start} to {end} of {key} cannot be read any more ({error}); {REMEDY}") from error

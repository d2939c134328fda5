"""Load topics, or the output of a streaming query, with Spark into the files and manifests of `kafkalite.load`.

Thread rule: loads, streams and compactions of one directory take turns, also in different processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from kafkalite.errors import KafkaError
from kafkalite.load import avro_values
from kafkalite.load.columns import merged, of_arrow
from kafkalite.load.contents import paths
from kafkalite.load.layout import Layout, require_layout
from kafkalite.load.letters import LetterTopic, deliver, prepare
from kafkalite.load.loading import (
    COMMIT_SIZE,
    Published,
    Summary,
    prefix_of,
    publish_rows,
    require_load,
    require_settings,
    run,
)
from kafkalite.load.manifest import Change, Target
from kafkalite.load.parquet import FILE_SIZE, NEEDED, RESULT, Writing
from kafkalite.load.places import storage_of
from kafkalite.load.plan import LoadPlan, LoadSource, starting_bound
from kafkalite.load.positions import to_json
from kafkalite.load.reading import dataset, is_rewritten
from kafkalite.load.selection import OptionError
from kafkalite.load.storage import LoadError
from kafkalite.load.table_schema import tables
from kafkalite.spark.load.arrow_batches import bounded_by_rows, measured, record_size_of, write_measured
from kafkalite.spark.load.direct import results_of
from kafkalite.spark.options import SourceOptions, log_without_effect
from kafkalite.spark.sentences import sentence_of
from kafkalite.spark.source.plan import client_for, client_of
from kafkalite.spark.streams import start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kafkalite.load.columns import Aliases
    from kafkalite.load.plan import LoadRound

OWN_OPTIONS: Final = ("subscribe", "assign", "starting", "ending", "failondataloss", "kafka.bootstrap.servers")
"""Prefixes of source options that a load sets itself."""
NO_WEBHDFS: Final = "jersey.internal.RuntimeDelegateImpl"
"""A class that Hadoop's WebHDFS client needs and that the client jar of Hadoop 3.5 lacks."""
RANGE: Final = 10_000
TRIGGER_S: Final = 2.0
CHECKPOINT: Final = "_checkpoint"
UNREAD: Final = "unread"
"""A placeholder topic for options that only name a cluster."""
OVERLAPS: Final = ("error", "skip", "load")
BAD: Final = {avro_values.ERROR: avro_values.EXCEPTION, "json_error": "json.JSONDecodeError"}
"""Column with the reason why a row is bad → exception class in its dead letter."""


NO_MARKS: Final = f"dead_letters needs a transform that marks bad rows in column {' or '.join(BAD)}"


_cores: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()
"""Parallelism of Spark Connect servers, by session."""


# --- loading ----------------------------------------------------------------------------------------------------------


def load(
    spark: SparkSession,
    path: str | os.PathLike[str] | Target,
    *,
    bootstrap_servers: str,
    topics: Sequence[str] = (),
    pattern: str | None = None,
    starting: str | int = "earliest",
    options: Mapping[str, str] | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    on_data_loss: str = "fail",
    codec: str = "zstd",
    file_size: int = FILE_SIZE,
    commit_size: int = COMMIT_SIZE,
    on_commit: Callable[[Published], None] | None = None,
    dead_letters: str | LetterTopic | None = None,
    aliases: Aliases | None = None,
    keep_values: bool = True,
    mark_misfits: bool = False,
    partition_by: str | None = None,
    flatten: str | None = None,
) -> Summary:
    """Load the records that the topics have now and `path` lacks. Return a Summary.

    `topics`       topic names; or `pattern`, a regular expression for whole names
    `starting`     where partitions start that were never loaded: "earliest", "latest", offsets as in startingOffsets,
                   or a number: the first record with at least this timestamp (ms since 1970), or the end
    `options`      further options of the source
    `transform`    function that changes the frame: it may decode Avro or leave out rows and columns, but must not
                   change topic, partition, offset or timestamp
    `on_data_loss` "fail", or "skip" to continue if records to load no longer exist
    `commit_size`  approximate bytes to publish at a time
    `dead_letters` topic for rows that `decode_avro` (mode dlq) or `decode_json` marked as bad. They are written to the
                   topic exactly once, and not to the files
    `aliases`      older names of columns by path, such as those from kafkalite.load.avro_values.aliases_of
    `keep_values`  whether files contain the bytes of decoded values; the bytes of bad values are always kept
    `mark_misfits` what to do with a decoded value that does not fit into the columns of the topic's table. True: load
                   it as null, with the reason in the error column of `transform`. False: end the load. With
                   `dead_letters`, the value always becomes a dead letter
    `partition_by`, `flatten`   as for kafkalite.load.native.load

    Raises LoadError if the load cannot continue, OptionError and KafkaError.
    """
    require_settings(codec, file_size)
    require_load(on_data_loss, commit_size)
    require_layout(partition_by, flatten)
    if transform is None and dead_letters is not None:
        raise ValueError(NO_MARKS)
    given, parsed = parsed_options(source_options(bootstrap_servers, topics, pattern, on_data_loss, options))
    source = LoadSource(
        replace(parsed.subscription, whole_name=True),
        starting_bound(starting),
        parsed.client.isolation_level,
        parsed.fail_on_data_loss,
    )
    plan = LoadPlan(client_for(parsed.client), source, commit_size=commit_size)
    target = path if isinstance(path, Target) else Target(path)
    topic = LetterTopic(dead_letters) if isinstance(dead_letters, str) else dead_letters

    def engine(part: LoadRound, staging: str, layouts: Mapping[str, Layout]) -> list[str]:
        known = tables(target.storage, target.state, strict=False)
        writing = Writing(staging, prefix_of(target), codec, file_size, {}, False, {}, known, aliases or {})
        writing = writing._replace(layouts=layouts)
        if transform is None:
            return written_directly(spark, given, part, writing)
        frame = transform(frame_of(spark, given, part, file_size))
        frame, writing = with_bad_values(frame, writing, topic, keep_values=keep_values, mark_misfits=mark_misfits)
        return written(frame, writing, record_size_of(plan, part))[0]

    return run(target, plan, engine, letters=topic, on_commit=on_commit, partition_by=partition_by, flatten=flatten)


def source_options(
    bootstrap_servers: str,
    topics: Sequence[str],
    pattern: str | None,
    on_data_loss: str,
    options: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the source's options without offsets. Raises ValueError unless exactly one of topics and pattern
    is given.
    """
    if bool(topics) == (pattern is not None):
        raise ValueError("set either topics or pattern")
    for name in options or {}:
        if name.lower().startswith(OWN_OPTIONS):
            raise ValueError(f"option {name} cannot be set: the load sets it itself")
    subscription = {"subscribe": ",".join(topics)} if pattern is None else {"subscribePattern": pattern}
    return {
        "includeHeaders": "true",
        **(options or {}),
        **subscription,
        "kafka.bootstrap.servers": bootstrap_servers,
        "failOnDataLoss": "true" if on_data_loss == "fail" else "false",
    }


def parsed_options(given: dict[str, str]) -> tuple[dict[str, str], SourceOptions]:
    """Return the source's options and their parsed form. Options that have no effect are logged and left out."""
    parsed = SourceOptions.parse({**given, "startingOffsets": "earliest"})
    log_without_effect(parsed.without_effect)
    ignored = {*map(str.lower, parsed.without_effect)}
    return {name: text for name, text in given.items() if name.lower() not in ignored}, parsed


def frame_of(spark: SparkSession, given: Mapping[str, str], part: LoadRound, file_size: int) -> DataFrame:
    """Return the records of one round."""
    frame = spark.read.format("kafkalite").options(**reading_of(given, part)).load()
    return frame.coalesce(task_count(spark, part, file_size))


def task_count(spark: SparkSession, part: LoadRound, file_size: int) -> int:
    """Return the number of tasks for a round: one per `file_size` bytes, but at least Spark's parallelism."""
    return max(parallelism(spark), math.ceil(part.size / file_size))


def reading_of(given: Mapping[str, str], part: LoadRound) -> dict[str, str]:
    """Return the source's options for one round."""
    named = {name: text for name, text in given.items() if not name.startswith("subscribe")}
    return {**named, **options_of(part)}


def options_of(part: LoadRound) -> dict[str, str]:
    """Return the options for `format("kafkalite")`."""
    topics: dict[str, list[int]] = {}
    for key in sorted(part.ends):
        topics.setdefault(key.topic, []).append(key.partition)
    return {
        "assign": json.dumps(topics),
        "startingOffsets": json.dumps(to_json(part.starts)),
        "endingOffsets": json.dumps(to_json(part.ends)),
    }


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that Spark runs at a time. With Spark Connect, count the partitions of a range."""
    if not is_connected(spark):
        return int(spark.sparkContext.defaultParallelism)
    found = _cores.get(spark)
    if found is None:
        from pyspark.sql import functions as sql

        found = _cores[spark] = spark.range(RANGE).select(sql.spark_partition_id()).distinct().count()
    return found


def is_connected(spark: SparkSession) -> bool:
    """Return whether the session uses Spark Connect, which has no sparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def with_bad_values(
    frame: DataFrame, writing: Writing, topic: LetterTopic | None, *, keep_values: bool, mark_misfits: bool
) -> tuple[DataFrame, Writing]:
    """Return the frame and the settings of its tasks, for values that are bad or do not fit into their table.

    Raises ValueError if there is a topic for dead letters but no column that marks them.
    """
    from pyspark.sql import functions as sql

    marks = [name for name in frame.columns if name in BAD]
    if topic is not None:
        if not marks:
            raise ValueError(NO_MARKS)
        writing = writing._replace(aside={name: BAD[name] for name in marks})
    if marks and (topic is not None or mark_misfits):
        writing = writing._replace(errors=marks[0])
    if not keep_values and marks:
        if writing.errors and any_misfit(frame, writing):  # the tasks need the bytes of the values that do not fit
            writing = writing._replace(drops_values=True)
        else:
            frame = frame.withColumn("value", sql.when(sql.col(marks[0]).isNotNull(), sql.col("value")))
    return frame, writing


def any_misfit(frame: DataFrame, writing: Writing) -> bool:
    """Return whether a column of a frame has a type that a table cannot hold."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except TypeError:  # older PySpark: UTC unless another is asked for
        schema = to_arrow_schema(frame.schema)
    found = of_arrow(schema, writing.aliases)
    return any(merged(table, found)[1] for table in writing.tables.values())


def written_directly(spark: SparkSession, given: Mapping[str, str], part: LoadRound, writing: Writing) -> list[str]:
    """Load a round whose records are not transformed. Return the rows of `write`. Raises LoadError."""
    with sentences():
        found = results_of(spark, reading_of(given, part), writing, task_count(spark, part, writing.file_size))
    return [row.file for row in found]


def written(frame: DataFrame, writing: Writing, record_size: float | None) -> tuple[list[str], float | None]:
    """Run the tasks that write a frame. Return the rows of `write` and the record size that the tasks measured.

    `record_size` is the expected mean size of records in bytes. Raises LoadError with the reason of a task that cannot
    continue.
    """
    missing = [name for name in NEEDED if name not in frame.columns]
    if missing:
        raise LoadError(f"the rows lack column {', '.join(missing)}, which an exactly-once load needs")
    with sentences(), bounded_by_rows(frame.sparkSession, record_size):
        rows = frame.mapInArrow(functools.partial(write_measured, writing), RESULT).collect()
    return measured([row.file for row in rows])


@contextlib.contextmanager
def sentences() -> Iterator[None]:
    """Raise a LoadError with the task's message if a task fails in the `with` block.

    Errors of kafkalite itself, and Spark's errors that contain no such message, are raised unchanged.
    """
    try:
        yield
    except (LoadError, OptionError, KafkaError):
        raise
    except Exception as error:
        reason = sentence_of(error)
        if reason is None:
            raise
        raise LoadError(reason) from error


# --- as a stream ------------------------------------------------------------------------------------------------------


def stream_to(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    trigger_s: float = TRIGGER_S,
    available_now: bool = False,
    name: str | None = None,
    on_overlap: str = "error",
    codec: str = "zstd",
    file_size: int = FILE_SIZE,
    on_commit: Callable[[Published], None] | None = None,
    dead_letters: str | LetterTopic | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that loads a streaming frame, with one change of the directory per batch. Return the query once
    its sources are connected (see `streams.start`).

    The frame needs topic, partition, offset and timestamp, and the columns to load. Offsets of a partition must ascend.

    `checkpoint`      the query's own checkpoint directory; default: in `path`
    `available_now`   end the query after the records that exist now
    `on_overlap`, `dead_letters`, `options`   as for `publisher`
    """
    checkpoint = checkpoint or storage_of(path).place(CHECKPOINT)
    publish_batch = publisher(
        path,
        on_overlap=on_overlap,
        codec=codec,
        file_size=file_size,
        on_commit=on_commit,
        dead_letters=dead_letters,
        options=options,
        name=os.fspath(checkpoint),
    )
    writer = frame.writeStream.foreachBatch(publish_batch)
    writer = writer.option("checkpointLocation", os.fspath(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if available_now:
        return start(writer.trigger(availableNow=True))
    return start(writer.trigger(processingTime=f"{max(1, round(trigger_s * 1000))} milliseconds"))


def publisher(
    path: str | os.PathLike[str],
    *,
    on_overlap: str = "error",
    codec: str = "zstd",
    file_size: int = FILE_SIZE,
    on_commit: Callable[[Published], None] | None = None,
    dead_letters: str | LetterTopic | None = None,
    options: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for foreachBatch that loads each batch once. It finds a repeated batch by its number in the
    manifests.

    A batch may contain records below the loaded offsets. The reason is a lost checkpoint, a recreated topic, or a log
    that was restored while the source has failOnDataLoss=false.

    `on_overlap`   what to do with such records: "error", "skip" them, or "load" them in addition
    `options`      kafka.bootstrap.servers and other client options of the source. The topic of `dead_letters` (as for
                   `load`) is in this cluster. From there, each batch also stores leader epochs, by which a later
                   `load` into the directory detects a restored log
    `name`         identifies the query with Spark Connect, which does not report the query's id to the function
    """
    require_settings(codec, file_size)
    if on_overlap not in OVERLAPS:
        raise ValueError(f"on_overlap must be {' or '.join(OVERLAPS)}, not {on_overlap!r}")
    topic = LetterTopic(dead_letters) if isinstance(dead_letters, str) else dead_letters
    wanted = topic is not None or options is not None
    settings = SourceOptions.parse({**(options or {}), "subscribe": UNREAD}).client if wanted else None
    target = Target(path)
    record_size: float | None = None
    """The record size of the last batch, the only estimate for the next one."""

    def publish_batch(batch: DataFrame, number: int) -> None:
        nonlocal record_size
        spark = batch.sparkSession
        known = None if is_connected(spark) else spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        query = known or name
        if query is None:
            raise LoadError("the query needs a name: Spark Connect does not report the query's id to its batches")
        # A client per batch: Spark calls this in changing threads, and ends them at any time.
        with contextlib.ExitStack() as stack:
            staging = stack.enter_context(target.writing())
            client = None if settings is None else stack.enter_context(client_of(settings))
            if client is not None and topic is not None:
                prepare(client, topic)
                deliver(target.storage, client)
            state = target.state
            again = number <= state.streams.get(query, -1)
            if again and known:
                return  # published, but not yet in the checkpoint
            # A batch number repeated under a name may be from an older query, so compare its offsets.
            positions = state.positions if again or on_overlap != "load" else {}
            loaded = {(key.topic, key.partition): offset for key, offset in positions.items()}
            skips = again or on_overlap == "skip"
            known = tables(target.storage, state, strict=False)
            writing = Writing(staging, prefix_of(target), codec, file_size, loaded, skips, {}, known)
            writing = writing._replace(layouts=state.layouts)
            frame = batch.coalesce(parallelism(spark))
            frame, writing = with_bad_values(frame, writing, topic, keep_values=True, mark_misfits=False)
            letters = None if client is None or topic is None else (client, topic)
            rows, record_size = written(frame, writing, record_size)
            published = publish_rows(target, rows, Change("load", stream=(query, number)), letters, client)
        if on_commit is not None:
            on_commit(published)

    return publish_batch


# --- what is loaded ---------------------------------------------------------------------------------------------------


def read(
    spark: SparkSession, path: str | os.PathLike[str], topic: str | None = None, *, spark_path: str | None = None
) -> DataFrame:
    """Return the loaded data as a DataFrame in the schema of its files, with topic, date and hour as columns.

    `spark_path` is Spark's name for the directory if it differs. An example is hdfs://namenode:8020/data/loaded for
    webhdfs://namenode:9870/data/loaded, because the Hadoop 3.5 client of Spark 4.3 lacks what WebHDFS needs.

    Raises LoadError if nothing is loaded, or if Spark cannot read files in this schema before a compaction rewrites
    them.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    loaded = dataset(path, topic)
    if is_rewritten(loaded):
        raise LoadError(
            f"files in {path} are older than a rename or a wider type; run `kafkalite load --to {path} --compact`, or "
            "read them with kafkalite.load.read"
        )
    base = storage_of(path).place("")
    found = paths(path, topic)
    if spark_path is not None:
        found = [f"{spark_path.rstrip('/')}{name.removeprefix(base)}" for name in found]
        base = spark_path
    try:
        return spark.read.option("basePath", base).schema(from_arrow_schema(loaded.schema)).parquet(*found)
    except Exception as error:
        if NO_WEBHDFS not in str(error):
            raise
        raise LoadError(f"{base}: Spark's Hadoop client does not support WebHDFS; set spark_path='hdfs://…'") from error

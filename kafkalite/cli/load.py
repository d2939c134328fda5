"""Load topics into Parquet files by topic and hour, each record exactly once, from where the last load ended.

  kafkalite load -t clicks -t orders --to /data/loaded
  kafkalite load --topics 'clicks|orders' --to webhdfs://namenode:9870/data/loaded
  kafkalite load -t clicks --to /data/loaded --follow 2 --from -1d
  kafkalite load -t orders --to /data/loaded --avro http://127.0.0.1:8081 --dead-letters orders-bad
  kafkalite load -t orders --to /data/loaded --json-schema 'id INT, country STRING' --flatten _ --partition-by country
  kafkalite load --to /data/loaded --compact
  kafkalite load status /data/loaded --json
  kafkalite load schema /data/loaded

Files are at topic=T/date=YYYY-MM-DD/hour=HH below the target, by the records' timestamps in UTC. --partition-by chooses
other folders. Files are published together with the offsets up to which they were loaded. So a load that is killed at
any time and run again loses no record and duplicates none.

With --follow S it loads a batch every S seconds until Ctrl-C or SIGTERM. --compact merges small files, and rewrites
files with older columns; it needs no Spark. If a topic cannot be loaded, the others are still loaded.

Exit status 2: a topic could not be loaded, or the load could not begin. 1: Spark failed while it ran, or a disk was
full or failed. Files that were already published remain.

Only committed records are loaded: no record of an aborted transaction, and none after the start of an open one.
--isolation read_uncommitted loads those too. In partitions that were never loaded, --from TIME starts at the first
record at or after TIME. A TIME is an ISO 8601 time (UTC by default), a time before now such as -1h (units: ms, s, m, h,
d, w), or ms since 1970. A number of ten digits is seconds since 1970.

The native engine loads in this process and needs pyarrow (the extra `arrow`). The Spark engine needs PySpark (the extra
`spark`) and Java 17. Only the Spark engine supports Spark's options and all of Spark's column types for JSON. Each
engine can continue a directory that the other wrote. Both work with kafkalite and Apache Kafka.

The columns of a topic may change between loads: docs/load.md.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.base.ending import ended_at_once, on_ending, until_stdin_ends
from kafkalite.cli import EXIT_FAILURE, EXIT_USAGE, CommandError, UsageError
from kafkalite.cli.common import Progress, add_client_arguments, count, open_client, quantity, seconds
from kafkalite.cli.load_engines import add_engine_arguments, engine_for
from kafkalite.cli.load_reports import add_report_arguments, run_report
from kafkalite.cli.metrics_page import add_metrics_arguments, metrics_page
from kafkalite.cli.output import note, print_json, print_table, say
from kafkalite.cli.times import moment

if TYPE_CHECKING:
    from kafkalite.cli.load_engines import Engine
    from kafkalite.load.loading import Published

FILE_SIZE_DEFAULT: Final = 128 * 1024 * 1024
COMMIT_SIZE_DEFAULT: Final = 1024 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument(
        "--to",
        dest="target",
        metavar="DIR",
        help="directory for the files; for HDFS, webhdfs://NAMENODE:9870/DIR",
    )
    parser.add_argument(
        "-t",
        "--topic",
        dest="names",
        metavar="NAME",
        action="append",
        default=[],
        help="topic to load; can be repeated",
    )
    parser.add_argument("--topics", metavar="REGEX", help="topics to load; REGEX must match the whole name")
    parser.add_argument("--exclude", metavar="REGEX", help="topics to leave out; REGEX must match the whole name")
    parser.add_argument(
        "--from",
        dest="starting",
        metavar="WHERE",
        type=where,
        default="earliest",
        help=(
            "where to start in partitions that were never loaded: earliest, latest, a TIME, or offsets as JSON "
            "(default: earliest)"
        ),
    )
    parser.add_argument("--follow", metavar="S", type=seconds, help="keep running, and load a batch every S seconds")
    parser.add_argument("--compact", action="store_true", help="merge small files instead of loading")
    parser.add_argument(
        "--grace",
        metavar="S",
        type=duration,
        default=0.0,
        help="with --compact: keep replaced files for S seconds, for readers that still use them (default: 0)",
    )
    parser.add_argument(
        "--on-data-loss",
        choices=("fail", "skip"),
        default="fail",
        help="what to do if records were deleted before they were loaded (default: fail)",
    )
    add_isolation_arguments(parser)
    add_file_arguments(parser)
    add_layout_arguments(parser)
    add_decoding_arguments(parser)
    add_engine_arguments(parser)
    add_metrics_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument("--until-stdin-ends", action="store_true", help=argparse.SUPPRESS)
    add_report_arguments(parser)


def add_isolation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --isolation and --read-committed."""
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        help="read_uncommitted includes records of aborted and open transactions (default: read_committed)",
    )
    parser.add_argument("--read-committed", action="store_true", help="the same as --isolation read_committed")


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the codec and sizes of files."""
    parser.add_argument(
        "--codec",
        choices=("zstd", "snappy", "gzip", "lz4", "none"),
        default="zstd",
        help="compression codec (default: zstd)",
    )
    parser.add_argument(
        "--file-size",
        metavar="BYTES",
        type=count,
        default=FILE_SIZE_DEFAULT,
        help="maximum size of a file in bytes (default: 128 MiB)",
    )
    parser.add_argument(
        "--commit-size",
        metavar="BYTES",
        type=count,
        default=COMMIT_SIZE_DEFAULT,
        help="maximum number of bytes in one commit (default: 1 GiB)",
    )


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for folders and columns. A topic keeps their values from its first load."""
    parser.add_argument(
        "--partition-by",
        metavar="COLUMN",
        type=partition_column,
        help="hour, day or a decoded column: each value gets its own folder (default: as in the first load, else hour)",
    )
    parser.add_argument(
        "--flatten",
        choices=(".", "_"),
        help="store each nested field of decoded values as its own column, and join the names by this character, as in "
        "user.name (default: as in the first load, else keep fields nested)",
    )


def partition_column(text: str) -> str:
    """Check a value of --partition-by (hour, day or a column) and return it, for argparse."""
    from kafkalite.load.layout import require_layout

    try:
        require_layout(text, None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("partition_by ")) from error
    return text


def add_decoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags for values in Avro or JSON."""
    parser.add_argument("--avro", metavar="URL", help="decode Avro values with this schema registry")
    parser.add_argument("--subject", help="subject whose latest schema defines the columns (default: TOPIC-value)")
    parser.add_argument(
        "--json-schema",
        metavar="COLUMNS",
        help="decode JSON values into these columns, such as 'id BIGINT, name STRING'",
    )
    parser.add_argument(
        "--bad",
        "--avro-mode",
        dest="mode",
        choices=("failfast", "permissive"),
        help="what to do with values that cannot be decoded (default: failfast)",
    )
    parser.add_argument(
        "--dead-letters", metavar="TOPIC", help="topic for records that cannot be decoded; see `kafkalite letters`"
    )


def where(text: str) -> str | int:
    """Parse the start of a load, for argparse: earliest, latest, a TIME, or offsets as JSON, which are checked
    later."""
    if text.strip().lower() in {"earliest", "latest"} or text.lstrip().startswith("{"):
        return text
    return moment(text)


def isolation_of(arguments: argparse.Namespace) -> str:
    """Return the isolation level that the flags select, such as "read_committed"."""
    level: str = arguments.isolation or "read_committed"
    return level


def duration(text: str) -> float:
    """Parse a number of seconds of at least 0, for argparse."""
    return 0.0 if text.strip() == "0" else seconds(text)


def run(arguments: argparse.Namespace) -> int:
    check(arguments)
    try:
        if arguments.action is not None:
            return run_report(arguments)
        if arguments.compact:
            return run_compaction(arguments)
        with until_stdin_ends(wanted=arguments.until_stdin_ends):
            return run_load(arguments)
    except Exception as error:
        sentence = told(error)
        if sentence is None:
            raise
        from kafkalite.spark.sentences import is_sparks

        late = is_sparks(error) or is_about_a_disk(sentence)
        raise CommandError(sentence, EXIT_FAILURE if late else EXIT_USAGE) from error


def told(error: Exception) -> str | None:
    """Describe a failed load in one sentence, without Spark's stack trace. Return None for an unexpected exception."""
    from kafkalite.avro.client import RegistryRefused, RegistryUnreachable
    from kafkalite.avro.schema import SchemaError
    from kafkalite.client import ClientError
    from kafkalite.errors import KafkaError
    from kafkalite.load.selection import OptionError
    from kafkalite.load.storage import LoadError
    from kafkalite.spark.sentences import any_sentence_of, is_sparks

    if isinstance(error, KafkaError):
        return f"{error} ({error.name})"
    if isinstance(error, RegistryRefused | RegistryUnreachable | SchemaError):
        return f"the schema registry: {error}"
    if isinstance(error, ClientError | LoadError | OptionError):
        return str(error)
    return any_sentence_of(error) if is_sparks(error) else None


def is_about_a_disk(sentence: str) -> bool:
    """Return whether a load failed because of a full or failing disk, here or on a Spark worker."""
    return any(os.strerror(number) in sentence for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO))


def check(arguments: argparse.Namespace) -> None:
    """Raise UsageError for flags that conflict, or that require another flag."""
    if arguments.target is None:
        raise UsageError("--to DIR is required: the directory for the Parquet files (see kafkalite load --help)")
    check_target("DIR" if arguments.action else "--to", arguments.target)
    if arguments.action is not None:
        return
    if arguments.compact:
        if arguments.follow is not None:
            raise UsageError("--follow cannot be used with --compact, which loads nothing")
        return
    if arguments.read_committed and arguments.isolation == "read_uncommitted":
        raise UsageError("--read-committed and --isolation read_uncommitted contradict each other")
    if arguments.topics is None and not arguments.names:
        raise UsageError("no topic given; use --topic or --topics")
    check_decoding(arguments)
    if arguments.master is not None and arguments.remote is not None:
        raise UsageError("--master cannot be used with --remote: the Spark Connect server has its master already")
    check_pattern("--topics", arguments.topics)
    check_pattern("--exclude", arguments.exclude)
    check_not_a_file("--to", arguments.target)


def check_target(flag: str, target: str) -> None:
    """Raise UsageError if the target is a URL that loads do not support; the message names `flag`."""
    from kafkalite.load.places import refuse_url
    from kafkalite.load.storage import LoadError

    try:
        refuse_url(target)
    except LoadError as error:
        raise UsageError(f"{flag} {error}") from error


def check_not_a_file(flag: str, target: str) -> None:
    """Raise UsageError if the target is a file and not a directory; the message names `flag`."""
    from kafkalite.load.webhdfs import is_webhdfs

    if not is_webhdfs(target) and Path(target).is_file():
        raise UsageError(f"{flag} {target}: not a directory")


def check_pattern(flag: str, pattern: str | None) -> None:
    """Raise UsageError if the regular expression is invalid; the message names `flag`."""
    from kafkalite.mirror.topics import compiled

    try:
        if pattern is not None:
            compiled(pattern)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def check_decoding(arguments: argparse.Namespace) -> None:
    """Raise UsageError for decoding flags that conflict, or that require another flag."""
    decodes = arguments.avro is not None or arguments.json_schema is not None
    if arguments.avro is not None and arguments.json_schema is not None:
        raise UsageError("--avro and --json-schema cannot be used together")
    if arguments.subject is not None and arguments.avro is None:
        raise UsageError("--subject requires --avro")
    if arguments.flatten is not None and not decodes:
        raise UsageError("--flatten requires --avro or --json-schema, which decode values into columns")
    if arguments.dead_letters is not None and not decodes:
        raise UsageError("--dead-letters requires --avro or --json-schema, which find bad records")
    if arguments.dead_letters is not None and arguments.mode is not None:
        raise UsageError("--bad cannot be used with --dead-letters, which sends bad records to a topic")
    if arguments.dead_letters in arguments.names:
        raise UsageError(f"--dead-letters {arguments.dead_letters}: this topic is loaded too; use another one")


def run_compaction(arguments: argparse.Namespace) -> int:
    from kafkalite.load.compaction import compact

    done = compact(arguments.target, file_size=arguments.file_size, grace_s=arguments.grace, codec=arguments.codec)
    if arguments.json:
        print_json(vars(done))
    else:
        size = quantity(done.size, "B")
        say(
            f"merged {done.files_before} files into {done.files_after}: {done.rows} records, {size}, "
            f"{done.seconds:.1f} s"
        )
    return 0


def run_load(arguments: argparse.Namespace) -> int:
    engine = engine_for(arguments)
    topics = topics_of(arguments)
    if not topics and arguments.follow is None:
        raise UsageError(f"no topic matches {arguments.topics}")
    require_any(arguments, topics)
    if not arguments.quiet:
        note(f"kafkalite: {engine.why}")
    runs = LoadRuns(arguments, engine)
    page = metrics_page(arguments, [runs.status.families], ready=runs.status.not_ready)
    # Published files remain. The next writer removes unpublished ones.
    with page, ended_at_once(runs.finish), engine.running():
        try:
            if arguments.follow is None:
                runs.load(topics)
            else:
                follow(arguments, runs)
        finally:
            runs.finish()
    runs.report()
    if not runs.took_topics:
        note(f"kafkalite: no topic matched {arguments.topics}: nothing was loaded")
    return runs.exit_status()


def require_any(arguments: argparse.Namespace, topics: list[str]) -> None:
    """Raise UnknownTopicOrPartition if none of these topics exists. Called before Java is started."""
    if not topics:
        return
    with open_client(arguments) as client:
        if not client.described(topics):
            client.topic(topics[0])


def topics_of(arguments: argparse.Namespace) -> list[str]:
    """Return the topics that -t names, and the existing topics that match --topics."""
    from kafkalite.mirror import TopicFilter

    found = set(arguments.names)
    if arguments.topics is not None:
        wanted = TopicFilter(arguments.topics, arguments.exclude)
        with open_client(arguments) as client:
            found |= {name for name, topic in client.topics().items() if wanted.takes(topic)}
    return sorted(found - {arguments.dead_letters})


def topic_named(sentence: str, topics: list[str]) -> str | None:
    """Return the topic that a failure message names, alone or with a partition. The longest matching name wins."""
    for topic in sorted(topics, key=len, reverse=True):
        if re.search(rf"(?<![\w.-]){re.escape(topic)}(?:-[0-9]+)?(?![\w-]|[.][\w-])", sentence):
            return topic
    return None


class TopicRun:
    """What this command loaded from one topic. `error` is the reason if the last load failed, or ""."""

    def __init__(self) -> None:
        self.rows = self.size = self.files = self.letters = 0
        self.lag: int | None = 0
        """Records after the loaded end offsets; None if the last load failed."""
        self.error = ""

    def described(self) -> dict[str, object]:
        """Return the row for --json."""
        return {
            "records": self.rows,
            "bytes": self.size,
            "files": self.files,
            "letters": self.letters,
            "lag": self.lag,
            "status": "failed" if self.error else "loaded",
            "error": self.error,
        }


class Stopped(Exception):
    """Raised after a commit when a signal asked the command to stop."""


class LoadRuns:
    """Runs the loads of this command, and sums up their results.

    Once `stopping` is set, a load ends with its next commit.
    """

    def __init__(self, arguments: argparse.Namespace, engine: Engine) -> None:
        from kafkalite.load.manifest import Target
        from kafkalite.load.status import LoadStatus

        self.status = LoadStatus(arguments.follow)
        self.stopping = threading.Event()
        self._arguments = arguments
        self._engine = engine
        self._target = Target(arguments.target)
        self._progress = Progress("loaded", shown=False if arguments.quiet else None)
        self._began = time.monotonic()
        self._topics: dict[str, TopicRun] = {}
        self._rows = self._size = self._files = self._commits = 0
        self._losses: list[str] = []

    @property
    def took_topics(self) -> bool:
        """Whether any load of this command had a topic to load."""
        return bool(self._topics)

    def load(self, topics: list[str]) -> None:
        """Load the records that these topics contain now. If a topic fails, report it and load the others.

        Raises UsageError if the only topic fails. Raises an error that does not concern a single topic. Raises Stopped
        if `stopping` ended the load.
        """
        decodes = self._arguments.avro is not None or self._arguments.json_schema is not None
        failing = [topic for topic in topics if self._topics.setdefault(topic, TopicRun()).error]
        well = [topic for topic in topics if topic not in failing]
        try:
            for group in [[topic] for topic in topics] if decodes else [well, *([topic] for topic in failing)]:
                self._load_group(group)
        except Stopped:
            raise
        except Exception as error:
            self.status.failed(error)
            raise
        errors = [self._topics[topic].error for topic in topics]
        if any(errors):
            self.status.failed("; ".join(filter(None, errors)))
        else:
            self.status.finished(sum(self._topics[topic].lag or 0 for topic in topics))
        if len(topics) == 1 and errors[0]:
            raise UsageError(errors[0])

    def _load_group(self, topics: list[str]) -> None:
        """Load the topics together. If one of them fails, load the others again without it."""
        from kafkalite.avro.client import RegistryRefused
        from kafkalite.avro.schema import SchemaError

        left = list(topics)
        while left:
            try:
                self._load(left)
            except Exception as error:
                sentence = told(error)
                of_none = sentence is None or is_about_a_disk(sentence)
                topic = None if sentence is None or of_none else topic_named(sentence, left)
                if topic is None and isinstance(error, RegistryRefused | SchemaError):
                    topic = left[0]  # decoded topics are loaded one by one, so this is the topic of the subject
                if topic is None or sentence is None:
                    raise
                self._fail(topic, sentence)
                left.remove(topic)
            else:
                return

    def _fail(self, topic: str, sentence: str) -> None:
        """Record the failure of a topic. If the command loads several topics, report each new failure."""
        run = self._topics[topic]
        if run.error != sentence and len(self._topics) > 1:
            note(f"kafkalite: could not load {topic}: {sentence}")
        run.error = sentence
        run.lag = None

    def _load(self, topics: list[str]) -> None:
        given = self._arguments
        summary = self._engine.load(
            self._target,
            topics,
            starting=given.starting,
            isolation_level=isolation_of(given),
            partition_by=given.partition_by,
            flatten=given.flatten,
            on_data_loss=given.on_data_loss,
            codec=given.codec,
            file_size=given.file_size,
            commit_size=given.commit_size,
            on_commit=self._count,
            dead_letters=given.dead_letters,
        )
        for topic, lag in summary.lags.items():
            self._topics[topic].lag = lag
            self._topics[topic].error = ""
        for loss in summary.losses:
            self._losses.append(loss)
            note(f"kafkalite: {loss}; the remaining records are loaded")

    def _count(self, published: Published) -> None:
        self._rows += published.rows
        self._size += published.size
        self._files += len(published.files)
        self._commits += 1
        self.status.published(published.rows, published.size, len(published.files))
        for file in published.files:
            run = self._topics[file.topic]
            run.rows += file.rows
            run.size += file.size
            run.files += 1
        for topic, letters in published.letters.items():
            self._topics[topic].letters += letters
        self._progress.update(self._rows, self._size)
        if self.stopping.is_set():
            raise Stopped

    def finish(self) -> None:
        """Write the last progress line."""
        self._progress.finish(self._rows, self._size)

    def exit_status(self) -> int:
        """Return 0 if every topic was loaded. Otherwise raise UsageError, with the names of the topics that failed."""
        failed = sorted(topic for topic, run in self._topics.items() if run.error)
        if not failed:
            return 0
        raise UsageError(f"{len(failed)} of {len(self._topics)} topics were not loaded completely: {', '.join(failed)}")

    def report(self) -> None:
        """Print the summary."""
        elapsed = time.monotonic() - self._began
        lag = sum(run.lag or 0 for run in self._topics.values())
        letters = sum(run.letters for run in self._topics.values())
        if self._arguments.json:
            print_json(
                {
                    "engine": self._engine.name,
                    "topics": sorted(self._topics),
                    "records": self._rows,
                    "letters": letters,
                    "bytes": self._size,
                    "files": self._files,
                    "commits": self._commits,
                    "seconds": round(elapsed, 3),
                    "lag": lag,
                    "losses": self._losses,
                    "isolation_level": isolation_of(self._arguments),
                    "by_topic": {topic: run.described() for topic, run in sorted(self._topics.items())},
                }
            )
            return
        if len(self._topics) > 1:
            titles = ("TOPIC", "RECORDS", "DEAD LETTERS", "LAG", "STATUS")
            rows = [(topic, *run.described().values()) for topic, run in sorted(self._topics.items())]
            shown = [
                (name, rows, bad, "-" if lag is None else lag, status) for name, rows, _, _, bad, lag, status, _ in rows
            ]
            print_table(titles, shown)
        bad = f"; {letters} bad records were sent to {self._arguments.dead_letters}" if letters else ""
        say(
            f"{self._rows} records in {self._files} files of {quantity(self._size, 'B')}, published in "
            f"{self._commits} commits, in {elapsed:.1f} s; {lag} more offsets arrived in the meantime{bad}"
        )
        say(f"isolation level {isolation_of(self._arguments)}")


def follow(arguments: argparse.Namespace, runs: LoadRuns) -> None:
    """Load repeatedly until a signal comes. Each load includes new topics.

    A commit in progress is finished first. A second signal ends it.
    """
    stop = runs.stopping
    with on_ending(stop.set), contextlib.suppress(Stopped):
        while not stop.is_set():
            due = time.monotonic() + arguments.follow
            topics = topics_of(arguments)
            if topics:
                runs.load(topics)
            stop.wait(max(0.0, due - time.monotonic()))

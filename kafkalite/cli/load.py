"""Load topics into Parquet files by topic and hour, each record exactly once, from where the last load ended.

  kafkalite load --topics 'clicks|orders' --to /data/loaded
  kafkalite load --topics clicks --to /data/loaded --follow 2 --from -1d
  kafkalite load --topics orders --to /data/loaded --avro http://127.0.0.1:8081
  kafkalite load --to /data/loaded --compact

Files are at topic=T/date=YYYY-MM-DD/hour=HH below the target, by the records' timestamps in UTC. They and the offsets
that they mean become visible together, so a load that is killed at any moment, and run again, has neither lost nor
doubled a record. With --follow it goes on until Ctrl-C or SIGTERM, a batch every so many seconds. --compact puts small
files together, and needs no Spark. A TIME is ISO 8601 (UTC unless it says), -1h (ms, s, m, h, d, w before now), or ms
since 1970.

Needs PySpark and Java 17 (`pip install 'kafkalite[spark]'`), and works against kafkalite and Apache Kafka alike.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.cli import CommandError, UsageError
from kafkalite.cli.common import (
    Progress,
    add_client_arguments,
    assignments,
    count,
    open_client,
    print_json,
    quantity,
    seconds,
)
from kafkalite.cli.ending import ended_at_once, on_ending
from kafkalite.cli.metrics_page import add_metrics_arguments, metrics_page
from kafkalite.cli.times import moment

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from kafkalite.spark.load import Published, Summary

FILE_SIZE_DEFAULT: Final = 128 * 1024 * 1024
COMMIT_SIZE_DEFAULT: Final = 1024 * 1024 * 1024
SPARK: Final = ("pyspark", "py4j")
"""Packages of whose errors the first line says enough."""
LINE_END: Final = "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument("--to", dest="target", metavar="DIR", required=True, help="where files are kept")
    parser.add_argument("--topics", metavar="REGEX", help="what a topic's whole name matches")
    parser.add_argument("--exclude", metavar="REGEX", help="topics to leave out of these")
    parser.add_argument(
        "--from",
        dest="starting",
        metavar="WHERE",
        type=where,
        default="earliest",
        help="earliest, latest, a TIME, or offsets as JSON, for partitions never loaded (default: earliest)",
    )
    parser.add_argument("--follow", metavar="S", type=seconds, help="go on, with a batch every S seconds")
    parser.add_argument("--compact", action="store_true", help="put small files together, and load nothing")
    parser.add_argument(
        "--grace", metavar="S", type=duration, default=0.0, help="how long --compact keeps replaced files (default: 0)"
    )
    parser.add_argument(
        "--on-data-loss", choices=("fail", "skip"), default="fail", help="when offsets are gone (default: fail)"
    )
    parser.add_argument(
        "--read-committed", action="store_true", help="leave out aborted transactions, wait for open ones"
    )
    parser.add_argument(
        "--codec", choices=("zstd", "snappy", "gzip", "lz4", "none"), default="zstd", help="default: zstd"
    )
    parser.add_argument(
        "--file-size", metavar="BYTES", type=count, default=FILE_SIZE_DEFAULT, help="of a file at most (128 MiB)"
    )
    parser.add_argument(
        "--commit-size", metavar="BYTES", type=count, default=COMMIT_SIZE_DEFAULT, help="published at a time (1 GiB)"
    )
    parser.add_argument("--avro", metavar="URL", help="decode values of one topic, with this schema registry")
    parser.add_argument("--subject", help="whose latest schema readers see (default: TOPIC-value)")
    parser.add_argument(
        "--avro-mode", choices=("failfast", "permissive"), default="failfast", help="what bad values do (failfast)"
    )
    parser.add_argument("--master", default="local[*]", help="of Spark (default: local[*])")
    parser.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's")
    add_metrics_arguments(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def where(text: str) -> str | int:
    """Where a load begins, for argparse: a word, offsets as JSON (looked at later), or a time in ms since 1970."""
    if text.strip().lower() in {"earliest", "latest"} or text.lstrip().startswith("{"):
        return text
    return moment(text)


def client_options(file: str | None) -> dict[str, str]:
    """What a file of client settings says of security, as options of the source; StartupError for one that is wrong."""
    if file is None:
        return {}
    from pathlib import Path

    from kafkalite.client.security import OWN, Security
    from kafkalite.settings.properties import read_properties

    settings = {key: text for key, text in read_properties(Path(file)).items() if key.startswith(OWN)}
    Security(settings)
    return {f"kafka.{key}": text for key, text in settings.items()}


def duration(text: str) -> float:
    """A number of seconds that may be 0, for argparse."""
    return 0.0 if text.strip() == "0" else seconds(text)


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.load.storage import LoadError
    from kafkalite.spark.options import OptionError

    check(arguments)
    try:
        if arguments.compact:
            return run_compaction(arguments)
        return run_load(arguments)
    except OptionError as error:
        raise UsageError(str(error)) from error
    except LoadError as error:
        raise CommandError(str(error)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in SPARK:
            raise
        raise CommandError(f"Spark failed: {str(error).strip().partition(LINE_END)[0]}") from error


def check(arguments: argparse.Namespace) -> None:
    """UsageError for flags that do not go together."""
    from kafkalite.load.places import refuse_url
    from kafkalite.load.storage import LoadError
    from kafkalite.mirror.topics import compiled

    try:
        refuse_url(arguments.target)
    except LoadError as error:
        raise UsageError(f"--to {error}") from error
    if arguments.compact:
        if arguments.follow is not None:
            raise UsageError("--compact loads nothing, so it cannot --follow")
        return
    if arguments.topics is None:
        raise UsageError("--topics says what to load")
    for flag in ("topics", "exclude"):
        try:
            if getattr(arguments, flag) is not None:
                compiled(getattr(arguments, flag))
        except ValueError as error:
            raise UsageError(f"--{flag}: {error}") from error
    if arguments.subject is not None and arguments.avro is None:
        raise UsageError("--subject goes with --avro")
    target = Path(arguments.target)
    if target.exists() and not target.is_dir():
        raise UsageError(f"--to {arguments.target} is no directory")


def run_compaction(arguments: argparse.Namespace) -> int:
    from kafkalite.load.compaction import compact

    done = compact(arguments.target, file_size=arguments.file_size, grace_s=arguments.grace, codec=arguments.codec)
    if arguments.json:
        print_json(vars(done))
    else:
        size = quantity(done.size, "B")
        print(f"{done.files_before} files became {done.files_after}: {done.rows} records, {size}, {done.seconds:.1f} s")
    return 0


def run_load(arguments: argparse.Namespace) -> int:
    from kafkalite.spark.session import session

    topics = topics_of(arguments)
    if not topics and arguments.follow is None:
        raise UsageError(f"no topic matches {arguments.topics}")
    if arguments.avro is not None and len(topics) != 1:
        raise UsageError(f"--avro decodes one topic, and {len(topics)} match")
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"} | assignments("--conf", arguments.conf)
    runs = LoadRuns(arguments)
    page = metrics_page(arguments, [runs.status.families], ready=runs.status.not_ready)
    with page, ended_at_once(runs.finish):  # what is published stays, and what is not is nobody's
        try:
            spark = runs.spark = session("kafkalite-load", master=arguments.master, settings=settings)
        except (ImportError, RuntimeError) as error:
            raise UsageError(str(error)) from error
        try:
            if arguments.follow is None:
                runs.load(topics)
            else:
                follow(arguments, runs)
        finally:
            runs.finish()
            spark.stop()
    runs.report()
    if not runs.took_topics:
        print(f"kafkalite: no topic matched {arguments.topics}: nothing was loaded", file=sys.stderr)
    return 0


def topics_of(arguments: argparse.Namespace) -> list[str]:
    """The topics that are there and match."""
    from kafkalite.mirror import TopicFilter

    wanted = TopicFilter(arguments.topics, arguments.exclude)
    with open_client(arguments) as client:
        return sorted(name for name, topic in client.topics().items() if wanted.takes(topic))


class LoadRuns:
    """Loads of this command, and what they have done together."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from kafkalite.load.manifest import Target
        from kafkalite.load.status import LoadStatus

        self.status = LoadStatus(arguments.follow)
        self._arguments = arguments
        self.spark: SparkSession | None = None
        self._target = Target(arguments.target)
        self._progress = Progress("loaded", shown=False if arguments.quiet else None)
        self._began = time.monotonic()
        self._last: Summary | None = None
        self._rows = self._size = self._files = self._commits = 0
        self._losses: list[str] = []

    @property
    def took_topics(self) -> bool:
        """Whether any load had a topic."""
        return self._last is not None

    def load(self, topics: list[str]) -> None:
        """All that these topics hold now."""
        from kafkalite.spark.load import load

        assert self.spark is not None, "a load needs a session"
        given = self._arguments
        options = {
            **client_options(given.command_config),
            "kafka.request.timeout.ms": str(round(given.timeout * 1000)),
            "kafka.default.api.timeout.ms": str(round(given.timeout * 1000)),
            "kafka.isolation.level": "read_committed" if given.read_committed else "read_uncommitted",
        }
        try:
            self._last = load(
                self.spark,
                self._target,
                bootstrap_servers=given.bootstrap_server,
                topics=topics,
                starting=given.starting,
                options=options,
                transform=None if given.avro is None else decoding(given, topics[0]),
                on_data_loss=given.on_data_loss,
                codec=given.codec,
                file_size=given.file_size,
                commit_size=given.commit_size,
                on_commit=self._count,
            )
        except Exception as error:
            self.status.failed(error)
            raise
        self.status.finished(self._last.lag)
        for loss in self._last.losses:
            self._losses.append(loss)
            print(f"kafkalite: {loss}; what is left is loaded", file=sys.stderr)

    def _count(self, published: Published) -> None:
        self._rows += published.rows
        self._size += published.size
        self._files += len(published.files)
        self._commits += 1
        self.status.published(published.rows, published.size, len(published.files))
        self._progress.update(self._rows, self._size)

    def finish(self) -> None:
        """The last line of progress."""
        self._progress.finish(self._rows, self._size)

    def report(self) -> None:
        """The summary."""
        elapsed = time.monotonic() - self._began
        lag = 0 if self._last is None else self._last.lag
        if self._arguments.json:
            print_json(
                {
                    "topics": [] if self._last is None else self._last.topics,
                    "records": self._rows,
                    "bytes": self._size,
                    "files": self._files,
                    "commits": self._commits,
                    "seconds": round(elapsed, 3),
                    "lag": lag,
                    "losses": self._losses,
                }
            )
            return
        print(
            f"{self._rows} records in {self._files} files of {quantity(self._size, 'B')}, published in "
            f"{self._commits} steps, in {elapsed:.1f} s; {lag} offsets came meanwhile"
        )


def follow(arguments: argparse.Namespace, runs: LoadRuns) -> None:
    """Loads again and again, with topics as they come, until a signal; a second one ends it at once."""
    stop = threading.Event()
    with on_ending(stop.set):
        while not stop.is_set():
            due = time.monotonic() + arguments.follow
            topics = topics_of(arguments)
            if arguments.avro is not None and len(topics) != 1:
                raise CommandError(f"--avro decodes one topic, and {len(topics)} match now")
            if topics:
                runs.load(topics)
            stop.wait(max(0.0, due - time.monotonic()))


def decoding(arguments: argparse.Namespace, topic: str) -> Callable[[DataFrame], DataFrame]:
    """Puts `decoded` and `schema_id` in the value's place; a bad value stays, with the reason in `avro_error`."""
    from kafkalite.spark.avro import ERROR, decode_avro

    def decode(frame: DataFrame) -> DataFrame:
        from pyspark.sql import functions as sql

        subject = arguments.subject or f"{topic}-value"
        decoded = decode_avro(frame, arguments.avro, subject=subject, mode=arguments.avro_mode)
        return decoded.withColumn("value", sql.when(sql.col(ERROR).isNotNull(), sql.col("value")))

    return decode

"""Start, use and stop the two engines of `kafkalite load`: the native engine and Spark.

Thread rule: an engine belongs to the main thread.
"""

from __future__ import annotations

import contextlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalite.cli import EXIT_FAILURE, STDERR, CommandError, UsageError
from kafkalite.cli.common import assignments, open_client
from kafkalite.cli.output import STDOUT

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from kafkalite.avro.client import RegistryClient
    from kafkalite.client import Client
    from kafkalite.load.loading import Summary
    from kafkalite.load.manifest import Target
    from kafkalite.load.native import Values

NATIVE, SPARK = "native", "spark"
OF_SPARK: Final = {
    "master": "--master",
    "remote": "--remote",
    "conf": "--conf",
    "spark_log": "--spark-log",
}
"""Option → flag, for options that only the Spark engine has."""


class Engine(Protocol):
    """An engine that loads topics. `why` is a line with its name and the reason for its choice."""

    name: str
    why: str

    def running(self) -> AbstractContextManager[None]:
        """Run the engine during a `with` block. UsageError if it cannot start."""

    def load(self, target: Target, topics: list[str], **common: Any) -> Summary:
        """Load the records that these topics contain now. `common` has the arguments that both engines accept."""


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --engine and the options of the Spark engine."""
    parser.add_argument(
        "--engine",
        choices=(NATIVE, SPARK),
        help="engine that loads the records (default: spark if an option such as --conf needs it, else native)",
    )
    parser.add_argument("--master", help="Spark master (default: local[*])")
    parser.add_argument("--remote", metavar="URL", help="Spark Connect server, such as sc://HOST:15002")
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="setting of the Spark session; can be repeated"
    )
    parser.add_argument(
        "--spark-log",
        metavar="FILE",
        help="append Spark's output to this file, or write it to stderr if FILE is - (default: discard it)",
    )


def engine_for(arguments: argparse.Namespace) -> Engine:
    """Return the engine that the flags select. UsageError for a flag that the selected engine does not support."""
    needed = [flag for name, flag in OF_SPARK.items() if getattr(arguments, name)]
    needed += json_of_spark(arguments)
    if arguments.engine == NATIVE and needed:
        raise UsageError(f"{needed[0]} needs the Spark engine, and --engine native excludes it; omit one of them")
    if arguments.engine is not None:
        chosen, reason = arguments.engine, "--engine"
    else:
        chosen, reason = (SPARK, needed[0]) if needed else (NATIVE, "no option needs Spark")
    return SparkEngine(arguments, reason) if chosen == SPARK else NativeEngine(arguments, reason)


def json_of_spark(arguments: argparse.Namespace) -> list[str]:
    """Return ["--json-schema with TYPE"] if --json-schema has a type that only Spark supports, or else [].

    UsageError for columns that neither engine supports.
    """
    from kafkalite.load.json_values import ColumnsError, OnlySpark, parse_columns

    if arguments.json_schema is not None and arguments.engine != SPARK:
        try:
            parse_columns(arguments.json_schema)
        except OnlySpark as error:
            return [f"--json-schema with {error}"]
        except ColumnsError as error:
            raise UsageError(f"--json-schema: {error}") from error
    return []


class NativeEngine:
    """The native engine: loads in this process with the columnar client and pyarrow."""

    def __init__(self, arguments: argparse.Namespace, reason: str) -> None:
        self.name = NATIVE
        self.why = f"engine {NATIVE} ({reason})"
        self._arguments = arguments
        self._client: Client | None = None
        self._registry: RegistryClient | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        from kafkalite.client.columns.arrow import pyarrow

        try:
            pyarrow()
        except ImportError as error:
            raise UsageError(str(error)) from error
        with contextlib.ExitStack() as stack:
            self._client = stack.enter_context(open_client(self._arguments))
            if self._arguments.avro is not None:
                from kafkalite.avro.client import RegistryClient

                self._registry = stack.enter_context(RegistryClient(self._arguments.avro))
            yield

    def load(self, target: Target, topics: list[str], **common: Any) -> Summary:
        from kafkalite.load.native import load

        return load(target, client=self._client, topics=topics, values=self._values(topics[0]), **common)

    def _values(self, topic: str) -> Values | None:
        """Return the decoder of a topic's values; None to leave them unchanged."""
        given = self._arguments
        if given.json_schema is not None:
            from kafkalite.load.json_values import JsonValues

            return JsonValues(given.json_schema, mode_of(given))
        if self._registry is None:
            return None
        from kafkalite.load.avro_values import AvroValues

        return AvroValues(self._registry, given.subject or f"{topic}-value", mode_of(given))


class SparkEngine:
    """The Spark engine: loads with a Spark session, which is local or on a Spark Connect server."""

    def __init__(self, arguments: argparse.Namespace, reason: str) -> None:
        self.name = SPARK
        self.why = f"engine {SPARK} ({reason})"
        self._arguments = arguments
        self._spark: SparkSession | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        from kafkalite.spark.session import CANNOT_START, java_loss, session, silence_losses

        given = self._arguments
        settings = {"spark.ui.enabled": "false"} if given.remote is None else {}
        settings |= assignments("--conf", given.conf)
        master = given.master or (None if given.remote else "local[*]")
        try:
            with output_at(given.spark_log):
                spark = session("kafkalite-load", master=master, remote=given.remote, settings=settings)
        except (ImportError, RuntimeError) as error:
            asked = given.spark_log == "-" or not str(error).startswith(CANNOT_START)
            more = "" if asked else "; use --spark-log - to see Spark's output"
            raise UsageError(f"{error}{more}") from error
        self._spark = spark
        silence_losses(spark)
        try:
            if given.json_schema is not None:
                require_schema(spark, given.json_schema)
            yield
        except Exception as error:
            lost = java_loss(spark, error)
            if lost is None:
                raise
            sentence = f"{lost}; files already published remain, and the next run continues after them"
            raise CommandError(sentence, EXIT_FAILURE) from error
        finally:
            with contextlib.suppress(Exception):  # its process may have ended
                spark.stop()

    def load(self, target: Target, topics: list[str], **common: Any) -> Summary:
        from kafkalite.spark.load import load

        assert self._spark is not None, "a load needs a session"
        given = self._arguments
        timeout_ms = str(round(given.timeout * 1000))
        options = {
            **client_options(given.command_config),
            "kafka.request.timeout.ms": timeout_ms,
            "kafka.default.api.timeout.ms": timeout_ms,
            "kafka.isolation.level": common.pop("isolation_level"),
        }
        return load(
            self._spark,
            target,
            bootstrap_servers=given.bootstrap_server,
            topics=topics,
            options=options,
            transform=decoding(given, topics[0]),
            aliases=aliases_for(given, topics[0]),
            keep_values=False,
            mark_misfits=mode_of(given) == "permissive",
            **common,
        )


def mode_of(arguments: argparse.Namespace) -> str:
    """Return the mode for values that cannot be decoded: failfast, permissive or dlq."""
    mode: str = "dlq" if arguments.dead_letters is not None else arguments.mode or "failfast"
    return mode


# --- Spark ------------------------------------------------------------------------------------------------------------


def client_options(file: str | None) -> dict[str, str]:
    """Return a file's TLS and SASL settings as options of the Spark source. StartupError if they are invalid."""
    if file is None:
        return {}
    from pathlib import Path

    from kafkalite.client.security import OWN, Security
    from kafkalite.settings.properties import read_properties

    settings = {key: text for key, text in read_properties(Path(file)).items() if key.startswith(OWN)}
    Security(settings)
    return {f"kafka.{key}": text for key, text in settings.items()}


def require_schema(spark: SparkSession, columns: str) -> None:
    """Raise UsageError if Spark cannot parse the columns of --json-schema."""
    from pyspark.errors import PySparkException

    from kafkalite.spark.json_values import check_schema
    from kafkalite.spark.sentences import any_sentence_of

    try:
        check_schema(spark, columns)
    except PySparkException as error:
        raise UsageError(any_sentence_of(error)) from error


@contextlib.contextmanager
def output_at(place: str | None) -> Iterator[None]:
    """Redirect the output of Java and Spark's Python workers during a `with` block.

    `place` is a file, "-" for stderr, or None to discard the output, since its stack traces repeat the error that the
    command prints. UsageError if the file cannot be written.
    """
    try:
        sink = (
            os.dup(STDERR)
            if place == "-"
            else os.open(place or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        )
    except OSError as error:
        raise UsageError(f"--spark-log {place}: {error.strerror}") from error
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in (STDOUT, STDERR)}
    for descriptor in kept:
        os.dup2(sink, descriptor)
    os.close(sink)
    try:
        yield
    finally:
        for descriptor, before in kept.items():
            os.dup2(before, descriptor)
            os.close(before)


def decoding(arguments: argparse.Namespace, topic: str) -> Callable[[DataFrame], DataFrame] | None:
    """Return a function that adds the columns of decoded values; None if the values are not to be decoded."""
    mode = mode_of(arguments)
    if arguments.avro is not None:
        return avro_decoding(arguments.avro, arguments.subject or f"{topic}-value", mode)
    return None if arguments.json_schema is None else json_decoding(arguments.json_schema, mode)


def aliases_for(arguments: argparse.Namespace, topic: str) -> dict[str, Sequence[str]]:
    """Return column → its older names (aliases), from the Avro reader's schema."""
    if arguments.avro is None:
        return {}
    from kafkalite.avro.client import RegistryClient
    from kafkalite.load.avro_values import aliases_of

    with RegistryClient(arguments.avro) as registry:
        return aliases_of(registry.latest(arguments.subject or f"{topic}-value").schema.root)


def avro_decoding(url: str, subject: str, mode: str) -> Callable[[DataFrame], DataFrame]:
    from kafkalite.spark.avro import decode_avro

    return partial(decode_avro, registry_url=url, subject=subject, mode=mode)


def json_decoding(schema: str, mode: str) -> Callable[[DataFrame], DataFrame]:
    from kafkalite.spark.json_values import decode_json

    return partial(decode_json, schema=schema, mode=mode)

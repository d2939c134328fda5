"""Build the plan of `kafkalite audit` from its flags: the stages to compare, their clients and the times.

The module also formats windows and message numbers for the reports.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.base.extras import needs_extra
from kafkalite.cli import EXIT_USAGE, CommandError, UsageError, sentence
from kafkalite.cli.common import seconds, security_from
from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalite.audit.fields import MarkFields
    from kafkalite.audit.run import Plan
    from kafkalite.client import Client


def grace(text: str) -> float:
    """Parse 0 or a positive number of seconds, for argparse."""
    return 0.0 if text == "0" else seconds(text)


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn errors that prevent a comparison into CommandErrors with status 2.

    Status 1 would report differences, which are unknown after such an error.
    """
    from kafkalite.audit.stages import NothingToCompare
    from kafkalite.avro.client import RegistryRefused, RegistryUnreachable

    try:
        yield
    except NothingToCompare as error:
        raise UsageError(str(error)) from error
    except KafkaError as error:  # no stage was compared, so the status must not report differences
        raise CommandError(f"{error} ({error.name})", EXIT_USAGE) from error
    except (ClientError, RegistryRefused, RegistryUnreachable) as error:
        raise CommandError(str(error), EXIT_USAGE) from error
    except OSError as error:
        raise CommandError(sentence(error), EXIT_USAGE) from error


def plan_of(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> Plan:
    """Build the plan from the flags. `stack` closes the plan's clients at its end. UsageError for invalid flags."""
    from kafkalite.audit.events import AUDIT_TOPIC
    from kafkalite.audit.run import Plan

    try:
        pattern = re.compile(arguments.topics)
    except re.error as error:
        raise UsageError(f"--topics: {error}") from error
    if arguments.mirror is not None and arguments.offline is None:
        raise UsageError("--mirror requires --offline, the cluster that stores the mirror's progress")
    loaded = loaded_stages(arguments.loaded)
    fields = mark_fields(arguments, stack)
    live = stack.enter_context(open_client("--live", arguments.live, arguments.live_config, arguments))
    offline = None
    if arguments.offline is not None:
        offline = stack.enter_context(open_client("--offline", arguments.offline, arguments.offline_config, arguments))
    return Plan(
        live,
        offline,
        arguments.mirror,
        loaded,
        arguments.counts or AUDIT_TOPIC,
        consumer_stages(arguments.consumer, loaded),
        fields,
        pattern,
        arguments.since,
        arguments.until,
        arguments.grace,
    )


def consumer_stages(names: Sequence[str], loaded: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the consumer stages. UsageError if two stages have the same name."""
    for at, name in enumerate(names):
        if name in {"", "live", "mirror", "offline", *loaded, *names[:at]}:
            raise UsageError(f"--consumer {name}: stage {name!r} already exists; use another name")
    return tuple(names)


def mark_fields(arguments: argparse.Namespace, stack: contextlib.ExitStack) -> MarkFields | None:
    """Return the payload fields that contain audit marks; None without such flags. UsageError if flags conflict."""
    fields = by_topic("--mark-field", arguments.mark_field)
    files = by_topic("--mark-schema", arguments.mark_schema)
    if not fields:
        if files or arguments.registry is not None:
            flag = "--registry" if arguments.registry is not None else "--mark-schema"
            raise UsageError(f"{flag} requires --mark-field, the payload field with the audit mark")
        return None
    from kafkalite.audit.fields import MarkFields
    from kafkalite.avro.client import RegistryClient
    from kafkalite.avro.schema import SchemaError, parse

    schemas = {}
    for topic, file in files.items():
        try:
            schemas[topic] = parse(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"--mark-schema {file}: {sentence(error)}") from error
        except (SchemaError, UnicodeDecodeError) as error:
            raise UsageError(f"--mark-schema {file}: {error}") from error
    registry = None
    if arguments.registry is not None:
        timeout_s = arguments.timeout
        try:
            client = RegistryClient(arguments.registry, timeout_s=min(timeout_s, 10.0), retry_timeout_s=timeout_s)
        except ValueError as error:
            raise UsageError(f"--registry: {error}") from error
        registry = stack.enter_context(client)
    if (schemas or registry is not None) and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(needs_extra("Avro needs pyarrow", "avro"))
    return MarkFields(fields, registry=registry, schemas=schemas)


def by_topic(flag: str, texts: Sequence[str]) -> dict[str | None, str]:
    """Parse repeated [TOPIC=]VALUE arguments into topic → value, where None means all topics. UsageError if invalid."""
    found: dict[str | None, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        topic, value = (name, value) if separator and "/" not in name else (None, text)
        if not value or topic == "" or topic in found:
            raise UsageError(f"{flag} {text}: expected [TOPIC=]VALUE, at most once per topic")
        found[topic] = value
    return found


def loaded_stages(texts: Sequence[str]) -> dict[str, str]:
    """Return stage → directory. UsageError if two stages have the same name, or for a URL."""
    from kafkalite.load.places import refuse_url
    from kafkalite.load.storage import LoadError

    found: dict[str, str] = {}
    for text in texts:
        name, separator, folder = text.partition("=")
        if not separator or "/" in name:
            name, folder = "loaded", text
        if name in found or name in {"", "live", "mirror", "offline"}:
            raise UsageError(f"--loaded {text}: stage {name!r} already exists; use another NAME=DIR")
        try:
            refuse_url(folder)
        except LoadError as error:
            raise UsageError(f"--loaded {error}") from error
        found[name] = folder
    return found


def open_client(flag: str, servers: str, config: str | None, arguments: argparse.Namespace) -> Client:
    """Open a client. UsageError if the addresses are invalid."""
    from kafkalite.client import Client

    try:
        return Client(
            servers,
            client_id="kafkalite-audit",
            connect_timeout_s=min(arguments.timeout, 10.0),
            request_timeout_s=arguments.timeout,
            retry_timeout_s=arguments.timeout,
            security=security_from(config),
        )
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def window_text(start_ms: int, length_ms: int) -> str:
    """Format the start of a window, in UTC, and its length."""
    try:
        start = dt.datetime.fromtimestamp(start_ms / 1000, dt.UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    except (ValueError, OverflowError, OSError):
        start = f"{start_ms} ms"
    return f"{start} {length_ms / 1000:g} s"


def spans(ranges: list[tuple[int, int]]) -> str:
    """Format message numbers as ranges: 17-23, 40."""
    return ", ".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges)

"""Watch a broker: requests and latencies by API, traffic by topic, groups by lag.

  kafkalite top                                  # asks the broker for the address of its metrics
  kafkalite top --metrics http://127.0.0.1:9644
  kafkalite top --once --json

Figures are for the last --interval seconds. On a terminal the display is refreshed until Ctrl-C. With --once, or if the
output is not a terminal, the command prints once and ends. If the broker serves no metrics (metrics.listeners), the
command shows what Kafka's protocol provides: offsets per second of each topic, and the lag of each group.
"""

from __future__ import annotations

import shutil
import sys
import time
import urllib.error
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kafkalite.base import http_ask
from kafkalite.cli import CommandError, UsageError, offset_rates
from kafkalite.cli.common import add_client_arguments, named_file, open_client, quantity, seconds
from kafkalite.cli.output import cut, print_json, redraw
from kafkalite.metrics import reading

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from kafkalite.cli.offset_rates import OffsetRead
    from kafkalite.client import Client
    from kafkalite.metrics.reading import Read

INTERVAL_DEFAULT: Final = 2.0
SIZE_MAX: Final = 256 * 1024 * 1024
"""Maximum size of a response in bytes. A broker's metrics have a few MiB."""
NAME_WIDTH: Final = 48
KEY: Final = "metrics.listeners"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_client_arguments(parser)
    parser.add_argument(
        "--metrics", metavar="URL", help="URL of the broker's metrics (default: the command asks the broker)"
    )
    parser.add_argument(
        "--token-file", metavar="FILE", type=Path, help="file with a token from `kafkalite web add-user --token`"
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=seconds,
        default=INTERVAL_DEFAULT,
        help="seconds between two updates (default: 2)",
    )
    parser.add_argument("--once", action="store_true", help="print once and exit")


def run(arguments: argparse.Namespace) -> int:
    url = arguments.metrics
    if url is None:
        with open_client(arguments) as client:
            url = _asked(client)
            if url is None:
                return _watch_offsets(client, arguments)
    url = url.rstrip("/")
    if http_ask.split_url(url).scheme not in {"http", "https"}:
        raise UsageError(f"--metrics: {url[:80]!r} is not a URL of the form http://HOST:PORT")
    url = url if url.endswith("/metrics") else f"{url}/metrics"
    token = token_in(arguments.token_file)
    return _watch(arguments, lambda: _read(url, token, arguments.timeout), as_json, screen)


def _watch_offsets(client: Client, arguments: argparse.Namespace) -> int:
    """Show offset rates and lags, for a broker without metrics."""
    if arguments.token_file is not None:
        raise UsageError(f"--token-file: the broker serves no metrics, because its setting {KEY} is empty")
    return _watch(arguments, lambda: offset_rates.read(client), offsets_as_json, offsets_screen)


def _watch(
    arguments: argparse.Namespace,
    read: Callable[[], Any],
    json_of: Callable[[Any, Any], dict[str, object]],
    lines_of: Callable[..., Iterator[str]],
) -> int:
    """Show the changes between two readings, once or repeatedly until interrupted."""
    live = sys.stdout.isatty() and not (arguments.once or arguments.json)
    before = read()
    while True:
        time.sleep(arguments.interval)
        try:
            now = read()
        except UsageError as error:
            raise CommandError(str(error)) from error  # the first reading succeeded, so this is no usage error
        if arguments.json:
            print_json(json_of(before, now))
        else:
            width, height = shutil.get_terminal_size() if live else (sys.maxsize, sys.maxsize)
            lines = [line[:width] for line in lines_of(before, now, rows_max=max(3, (height - 9) // 3))]
            redraw(lines, clear=live)
        if not live:
            return 0
        before = now


def token_in(file: Path | None) -> str | None:
    """Return the token in the file of --token-file. UsageError if the file cannot be read."""
    with named_file("--token-file", file):
        return None if file is None else file.read_text(encoding="utf-8").strip()


def _asked(client: Client) -> str | None:
    """Return the URL of the broker's metrics, from the broker's settings; None if it serves no metrics."""
    node = client.brokers()[0]
    entries = client.admin.describe_broker_configs(node.node_id, [KEY])
    urls = (entries[0].value or "").split(",") if entries else [""]
    found = urlsplit(urls[0].strip())
    if not found.scheme:
        return None
    port = 9644 if found.port is None else found.port
    if port == 0:
        raise UsageError(
            f"the broker chose its metrics port at startup ({KEY} has port 0); pass the URL from its log with --metrics"
        )
    host = found.hostname or node.host
    if host in {"0.0.0.0", "::"}:  # noqa: S104  # compared
        host = node.host
    return f"{found.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _read(url: str, token: str | None, timeout_s: float) -> Read:
    """Fetch and parse the metrics page. UsageError if this fails."""
    headers = {"Accept": "text/plain"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    try:
        text = http_ask.read(url, headers=headers, connect_s=timeout_s, whole_s=timeout_s, size_max=SIZE_MAX).decode()
        return reading.parse(text, time.monotonic())
    except urllib.error.HTTPError as error:
        why = "authentication is required; use --token-file" if error.code == 401 else f"HTTP {error.code}"
        raise UsageError(f"{url}: {why}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        reason = getattr(reason, "strerror", None) or reason
        raise UsageError(f"cannot read {url}: {reason}") from error


def as_json(before: Read, now: Read) -> dict[str, object]:
    """Return the figures of the display for --json, without a limit on the rows."""
    return {
        "broker": _broker(before, now),
        "requests": [row._asdict() for row in reading.requests(before, now)],
        "topics": [row._asdict() for row in reading.topics(before, now)],
        "groups": [row._asdict() for row in reading.groups(now)],
    }


def screen(before: Read, now: Read, *, rows_max: int) -> Iterator[str]:
    """Yield the lines of the display, with at most `rows_max` rows in each table."""
    broker = _broker(before, now)
    yield (
        f"kafkalite {broker['version']}  up {_span(float(str(broker['up_s'])))}  "
        f"{broker['connections']:.0f} connections  {broker['cores']:.2f} cores  "
        f"{quantity(float(str(broker['memory_bytes'])), 'B')} memory  {broker['disk_free']:.0%} of the disk free"
    )
    yield ""
    yield from _table(
        ("API", "requests/s", "errors/s", "median ms", "p99 ms"),
        [
            (row.api, f"{row.per_s:.1f}", f"{row.errors_per_s:.1f}", _ms(row.median_ms), _ms(row.p99_ms))
            for row in reading.requests(before, now)[:rows_max]
        ],
    )
    yield ""
    yield from _table(
        ("TOPIC", "records/s", "in", "out"),
        [
            (row.topic, f"{row.records_in:.1f}", quantity(row.bytes_in, "B/s"), quantity(row.bytes_out, "B/s"))
            for row in reading.topics(before, now)[:rows_max]
        ],
    )
    yield ""
    yield from _table(
        ("GROUP", "topic", "lag", "members"),
        [(row.group, cut(row.topic, NAME_WIDTH), row.lag, row.members) for row in reading.groups(now)[:rows_max]],
    )


def offsets_as_json(before: OffsetRead, now: OffsetRead) -> dict[str, object]:
    """Return the figures that are available without metrics, for --json."""
    return {
        "topics": [row._asdict() for row in offset_rates.topics(before, now)],
        "groups": [row._asdict() for row in offset_rates.groups(now)],
    }


def offsets_screen(before: OffsetRead, now: OffsetRead, *, rows_max: int) -> Iterator[str]:
    """Yield the lines of the display without metrics, with at most `rows_max` rows in each table."""
    yield f"The broker serves no metrics ({KEY} is not set): rates and lag are computed from offsets."
    yield ""
    yield from _table(
        ("TOPIC", "offsets/s"),
        [(row.topic, f"{row.offsets_per_s:.1f}") for row in offset_rates.topics(before, now)[:rows_max]],
    )
    yield ""
    yield from _table(
        ("GROUP", "topic", "lag", "state"),
        [(row.group, cut(row.topic, NAME_WIDTH), row.lag, row.state) for row in offset_rates.groups(now)[:rows_max]],
    )


def _broker(before: Read, now: Read) -> dict[str, object]:
    (info,) = [labels for labels, _ in now.samples.get("kafka_broker_info", ())] or [{}]
    total = now.total("kafkalite_disk_total_bytes")
    elapsed = now.at - before.at
    return {
        "version": cut(info.get("version", "?"), NAME_WIDTH),
        "cluster": cut(info.get("cluster", "?"), NAME_WIDTH),
        "up_s": max(0.0, round(time.time() - now.total("process_start_time_seconds"))),
        "connections": now.total("kafka_server_socket_server_metrics_connection_count"),
        "cores": (now.total("process_cpu_seconds_total") - before.total("process_cpu_seconds_total")) / elapsed,
        "memory_bytes": now.total("process_resident_memory_bytes"),
        "disk_free": now.total("kafkalite_disk_free_bytes") / total if total else 0.0,
    }


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield a table: the first column left-aligned, numbers right-aligned, names cut and escaped."""
    cells = [list(titles), *([cut(str(row[0]), NAME_WIDTH), *map(str, row[1:])] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        yield "  ".join([line[0].ljust(widths[0]), *rest])


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _span(of_seconds: float) -> str:
    """Format a duration: 1 d 2 h, 3 min, 5 s."""
    for length, unit, smaller, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if of_seconds >= length:
            return f"{of_seconds // length:.0f} {unit} {of_seconds % length // smaller:.0f} {name}"
    return f"{of_seconds // 60:.0f} min" if of_seconds >= 60 else f"{of_seconds:.0f} s"

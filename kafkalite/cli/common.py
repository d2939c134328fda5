"""Define what the commands that connect to a broker share: flags, client setup, number formats, progress lines."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafkalite.base.numbers import whole_number
from kafkalite.cli import UsageError
from kafkalite.cli.output import note, overwrite

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite.client import Client
    from kafkalite.client.security import Security

BOOTSTRAP_VARIABLE: Final = "KAFKALITE_BOOTSTRAP"
BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
SET_HELP: Final = (
    "set one setting; can be repeated. All users of this machine can see the value in `ps`: put secrets in --config"
)
PROGRESS_INTERVAL_S: Final = 1.0
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def add_client_arguments(parser: argparse.ArgumentParser, *, json_output: bool = True) -> None:
    """Add -b, --timeout, --command-config and --json."""
    default = os.environ.get(BOOTSTRAP_VARIABLE) or BOOTSTRAP_DEFAULT
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=default,
        help=f"brokers to connect to, separated by commas (default: ${BOOTSTRAP_VARIABLE} or {BOOTSTRAP_DEFAULT})",
    )
    add_config_argument(parser)
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, default=30.0, help="response timeout in seconds (default: 30)"
    )
    if json_output:
        parser.add_argument("--json", action="store_true", help="print JSON")


def say_isolation(level: int | str) -> None:
    """Print the isolation level on stderr, since with read_uncommitted the command also reads aborted and open
    transactions."""
    name = level if isinstance(level, str) else ("read_uncommitted", "read_committed")[level]
    note(f"kafkalite: isolation level {name}")


def add_config_argument(parser: argparse.ArgumentParser, flag: str = "--command-config", whose: str = "") -> None:
    """Add the flag for a file of client settings; `whose` completes its help text."""
    parser.add_argument(flag, metavar="FILE", help=f".properties file with Kafka client settings{whose}: TLS, SASL")


def open_client(
    arguments: argparse.Namespace,
    flag: str = "--bootstrap-server",
    servers: str | None = None,
    *,
    config: str | None = None,
    client_id: str = "kafkalite-cli",
) -> Client:
    """Return a client for the broker and the settings that the flags name. UsageError if an address is invalid.

    `servers` replaces --bootstrap-server, and `config` replaces --command-config. An error names `flag` as the source
    of the addresses.
    """
    from kafkalite.client import Client

    try:
        return Client(
            arguments.bootstrap_server if servers is None else servers,
            client_id=client_id,
            connect_timeout_s=min(arguments.timeout, 10.0),
            request_timeout_s=arguments.timeout,
            retry_timeout_s=arguments.timeout,
            security=security_from(getattr(arguments, "command_config", None) if config is None else config),
        )
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def security_from(file: str | None) -> Security | None:
    """Return the security settings of a .properties file; None without a file. StartupError if a setting is invalid."""
    if file is None:
        return None
    from pathlib import Path

    from kafkalite.client.security import Security

    return Security.from_file(Path(file))


@contextmanager
def named_file(flag: str, path: object) -> Iterator[None]:
    """Turn errors in the `with` block, which reads the text file of a flag, into UsageErrors."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{flag} {path}: not valid UTF-8") from error


def seconds(text: str) -> float:
    """Parse a positive number of seconds, for argparse."""
    import argparse

    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def count(text: str) -> int:
    """Parse an integer from 1 to 2³¹ - 1, for argparse."""
    import argparse

    found = whole_number(text, 1, INT32_MAX)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 to {INT32_MAX}")
    return found


def natural(text: str) -> int:
    """Parse an integer from 0 to 2⁶³ - 1, for argparse."""
    import argparse

    found = whole_number(text, 0, INT64_MAX)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {INT64_MAX}")
    return found


def assignments(flag: str, texts: Iterable[str]) -> dict[str, str]:
    """Parse repeated KEY=VALUE arguments. UsageError, with the name of the flag, for any other text."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{flag} {text}: expected KEY=VALUE")
        found[key.strip()] = value
    return found


def unescape(text: str, flag: str) -> bytes:
    """Return the bytes of a flag's text after replacing the escapes \\n, \\t, \\r, \\0, \\\\ and \\xHH."""
    import re

    def replace(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code[:1] == b"x":
            return bytes([int(code[1:], 16)])
        return {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}[code]

    raw = text.encode(errors="surrogateescape")
    result = re.sub(rb"\\(x[0-9A-Fa-f]{2}|[ntr0\\])", replace, raw)
    if not result:
        raise UsageError(f"{flag} must not be empty")
    return result


def quantity(value: float, unit: str = "") -> str:
    """Format a number with three significant digits and an SI prefix: 1234567 → "1.23 M"."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            digits = 2 if value < 10 * factor else 1 if value < 100 * factor else 0
            return f"{value / factor:.{digits}f} {prefix}{unit}"
    return f"{value:.0f} {unit}".rstrip()


class Progress:
    """A progress line on stderr, overwritten at most once a second. Shows nothing if stderr is not a terminal.

    `shown` overrides the check for a terminal. If stderr is a file, each update is a separate line.
    """

    def __init__(self, verb: str, *, shown: bool | None = None) -> None:
        self._verb = verb
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._began = time.monotonic()
        self._next = self._began + PROGRESS_INTERVAL_S

    def update(self, records: int, size: int) -> None:
        """Show the counts, at most once a second."""
        now = time.monotonic()
        if self._shown and now >= self._next:
            self._next = now + PROGRESS_INTERVAL_S
            overwrite(self.summary(records, size))

    def finish(self, records: int, size: int, extra: Mapping[str, object] | None = None) -> None:
        """Write the last line, with the final counts."""
        if self._shown:
            more = "".join(f", {name} {value}" for name, value in (extra or {}).items())
            overwrite(f"{self.summary(records, size)}{more}", last=True)

    def summary(self, records: int, size: int) -> str:
        elapsed = max(time.monotonic() - self._began, 1e-9)
        rates = f"{quantity(records / elapsed)} records/s, {quantity(size / elapsed, 'B')}/s"
        return f"{self._verb} {records} records, {quantity(size, 'B')} in {elapsed:.1f} s: {rates}"

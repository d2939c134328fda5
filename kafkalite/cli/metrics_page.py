"""Serve metrics for Prometheus and health checks over HTTP, for commands with the flag `--metrics`.

    add_metrics_arguments(parser)
    with metrics_page(arguments, [families], ready=reasons_why_not): …

Without the flag, the web server is not imported and no port is opened.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kafkalite.cli import UsageError
from kafkalite.cli.output import note

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from kafkalite.base.metric_families import Source


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --metrics and --metrics-users."""
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve /metrics, /health/live and /health/ready on this address",
    )
    parser.add_argument(
        "--metrics-users",
        metavar="FILE",
        help=(
            "file with users who may read the metrics, created by `kafkalite web`; required unless HOST is a loopback "
            "address"
        ),
    )


@contextlib.contextmanager
def metrics_page(
    arguments: argparse.Namespace,
    sources: Iterable[Source],
    *,
    alive: Callable[[], list[str]] | None = None,
    ready: Callable[[], list[str]] | None = None,
) -> Iterator[str | None]:
    """Serve the page during a `with` block. Report its URL on stderr and yield it; without the flag, yield None.

    `alive` and `ready` return the reasons why the command is not alive or not ready. An empty result means that it is.
    UsageError for an invalid flag, StartupError if the page cannot be served.
    """
    if arguments.metrics is None:
        if arguments.metrics_users is not None:
            raise UsageError("--metrics-users requires --metrics")
        yield None
        return
    from kafkalite.metrics.command import CommandPage, nothing_wrong

    try:
        page = CommandPage(
            arguments.metrics,
            sources,
            alive=alive or nothing_wrong,
            ready=ready or nothing_wrong,
            users=arguments.metrics_users,
        )
    except ValueError as error:
        raise UsageError(f"--metrics: {error}") from error
    with page:
        note(f"kafkalite: metrics at {page.url}/metrics")
        yield page.url

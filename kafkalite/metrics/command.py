"""Serve `/metrics` and `/health/…` for a long-running command, such as an audit or a mirror.

    CommandPage("127.0.0.1:9645", [families], ready=not_ready)   binds when created, serves inside `with`

Without a users file (`kafkalite web`), only a loopback address is allowed, and requests are not authenticated. The page
includes metrics of the process (`process_…`).

Thread rule: the HTTP server's threads call sources and checks, so these must guard the data that they read.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from kafkalite.metrics.page import LIMITS, Page, told
from kafkalite.metrics.process import Process
from kafkalite.web.guard import guarded_server, open_addresses
from kafkalite.web.server import parse_address
from kafkalite.web.users import Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalite.base.metric_families import Source

logger = logging.getLogger(__name__)

PORT: Final = 9645


def nothing_wrong() -> list[str]:
    """Return []. This is the health check of a command that has no check."""
    return []


class CommandPage:
    """The HTTP server of a command's metrics and health checks.

    `address`   HOST:PORT; port 0 selects a free port
    `sources`   functions that yield metrics, called at each scrape; a source that fails is logged and skipped
    `alive`     returns the reasons why the command is not alive; [] if it is alive
    `ready`     returns the reasons why the command is not ready; [] if it is ready
    `users`     the path of the users file
    """

    def __init__(
        self,
        address: str,
        sources: Iterable[Source],
        *,
        alive: Callable[[], list[str]] = nothing_wrong,
        ready: Callable[[], list[str]] = nothing_wrong,
        users: str | None = None,
    ) -> None:
        """Bind the address. StartupError if that fails.

        ValueError if the address is invalid, or if other machines can reach it and there are no `users`.
        """
        where = parse_address(f"http://{address}", PORT)
        if users is None and open_addresses([where]):
            raise ValueError(
                f"{address} is reachable from other machines; give a users file for it, or bind it to 127.0.0.1"
            )
        readers = None if users is None else Users.from_file(Path(users))
        page = Page(partial(told, (Process(), *sources)), alive, ready)
        self._web = guarded_server(page, [where], "metrics", LIMITS, users=readers)
        self._web.bind()

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        return self._web.addresses[0].url

    def __enter__(self) -> Self:
        """Start serving. StartupError if waitress is not installed."""
        self._web.start(lambda: logger.error("the metrics server has stopped"))
        return self

    def __exit__(self, *exception: object) -> None:
        self._web.stop()

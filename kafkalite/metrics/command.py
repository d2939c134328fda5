"""`/metrics` and `/health/…` of a command that goes on until it is told to end, such as an audit or a mirror.

    CommandPage("127.0.0.1:9645", [families], ready=not_ready)   bound where it is made, serving inside `with`

Everybody on this machine may ask; an address beyond it needs a file of those who may (`kafkalite web`). What the
process itself uses (`process_…`) is told beside the command's own families. waitress serves, as everywhere.

Threads: sources and checks are asked on threads of the HTTP server, so what they read is theirs to guard.
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
    """A check that never has a reason."""
    return []


class CommandPage:
    """See the module.

    `address`        HOST:PORT, port 0 for a free one
    `sources`        asked at each scrape; one that fails is logged and left out
    `alive`, `ready` reasons why it is not, none when it is
    `users`          the file of those who may ask
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
        """ValueError for an address that is none, or is open to other machines without `users`; StartupError."""
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
        """Where it listens, without a path."""
        return self._web.addresses[0].url

    def __enter__(self) -> Self:
        """StartupError when waitress is not there."""
        self._web.start(lambda: logger.error("the metrics server has stopped"))
        return self

    def __exit__(self, *exception: object) -> None:
        self._web.stop()

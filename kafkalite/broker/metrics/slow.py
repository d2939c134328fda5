"""Log each slow request in one line, when its network worker has finished it.

Above a maximum rate, lines are suppressed (`kafkalite.base.logging`). The count of slow requests includes those whose
lines were suppressed.

Thread rule: runs on any worker's thread.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from kafkalite.base.logging import RepeatLogger, fields
from kafkalite.wire.protocol import api

if TYPE_CHECKING:
    from kafkalite._native.serve.connection import Connection

logger = RepeatLogger(logging.getLogger("kafkalite.slow"), lines=100)


class SlowLog:
    """The log of slow requests. It is called as `on_slow` of RequestCounters, with times in µs and the size in
    bytes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        """The number of slow requests since the start."""

    def __call__(
        self,
        connection: Connection,
        key: int,
        version: int,
        client_id: bytes | None,
        size: int,
        total_us: int,
        waited_us: int,
        sending_us: int,
    ) -> None:
        with self._lock:
            self.count += 1
        logger.warning(
            "slow request",
            extra=fields(
                api=name_of(key),
                version=version,
                client_id="" if client_id is None else client_id.decode(errors="backslashreplace"),
                software=" ".join(filter(None, (connection.software_name, connection.software_version))),
                principal=connection.principal,
                address=f"{connection.client_host}:{connection.client_port}",
                bytes=size,
                ms=total_us / 1000,
                waited_ms=waited_us / 1000,
                sending_ms=sending_us / 1000,
            ),
        )


def name_of(key: int) -> str:
    """Return Kafka's name of an API; if it is unknown, its key."""
    known = api.APIS.get(key)
    return str(key) if known is None else known.name

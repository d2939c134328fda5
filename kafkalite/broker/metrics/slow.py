"""The log of slow requests: one line each, as its worker was done with it.

Any worker's thread. Lines of one text are held back above so many a second, as all are (`kafkalite.base.logging`); the
count has them all.
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
    """Called as RequestCounters calls `on_slow`: times in µs, size in bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        """Slow requests since the start."""

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
    """An API as Kafka spells it; the key where it is none."""
    known = api.APIS.get(key)
    return str(key) if known is None else known.name

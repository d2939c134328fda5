"""Publish a member's circuit-breaker state to the group's ledger, for users and tools.

    the breaker opens ─▶ row breaker/MEMBER, every RENEW_S ─▶ the breaker closes or the member ends ─▶ tombstone

If a row is no longer renewed, its member was killed or cannot write. A separate thread writes the rows, outside of the
transactions.

Thread rule: `tell` and `close` belong to one thread.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from kafkalite.failures.rows import BREAKER_PREFIX, Row, State, encode_row
from kafkalite.failures.topics import LEDGER_PARTITION
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.client import Client

logger = logging.getLogger(__name__)

RENEW_S: Final = 60.0
OLD_MS: Final = 3 * 60_000
"""A row that was not renewed for this long is obsolete."""
CLOSE_S: Final = 5.0
REASON_MAX: Final = 500


class Board:
    """Publishes a member's breaker state. `ledger` is the topic, or "" if the group has none."""

    def __init__(self, client: Client, ledger: str, member: str) -> None:
        self._client = client
        self._ledger = ledger
        self._member = member
        self._told: Row | None = None
        self._bell = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._own: Client | None = None

    def tell(self, *, is_open: bool, reason: str) -> None:
        """Publish the breaker's state without waiting for the write. The thread starts when the breaker first opens."""
        if not self._ledger:
            return
        now = time.time_ns() // 1_000_000
        self._told = Row(State.OPEN, member=self._member, first=now, reason=reason[:REASON_MAX]) if is_open else None
        if self._thread is None and is_open:
            self._own = self._client.twin()
            self._thread = threading.Thread(target=self._work, args=(self._own,), name="failures-board", daemon=True)
            self._thread.start()
        self._bell.set()

    def close(self) -> None:
        """Write a tombstone for the member's row, because the breaker of an ended member is not open. Idempotent."""
        self._told, self._closing = None, True
        self._bell.set()
        if self._thread is None or self._own is None:
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._own.interrupt()

    def _work(self, client: Client) -> None:
        key, written = f"{BREAKER_PREFIX}{self._member}".encode(), False
        with client:
            while True:
                self._bell.wait(RENEW_S)
                self._bell.clear()
                closing = self._closing  # read before _told, so that the last state is written last
                row = self._told
                if row is not None or written:
                    value = None if row is None else encode_row(row._replace(last=time.time_ns() // 1_000_000))
                    try:
                        client.produce(self._ledger, LEDGER_PARTITION, [Record(-1, -1, key, value)])
                        written = row is not None
                    except Exception as error:  # noqa: BLE001  # the next row is tried in any case
                        logger.warning("cannot write the circuit-breaker state to the ledger: %s", error)
                if closing:
                    return

"""Write marks in the group's ledger: a mark names the record that the handler is about to get.

    worker ─▶ mark: row hand/TOPIC/PARTITION ─▶ handler(record) ─▶ the next record of the batch

Marks find a record that crashes the process, so they are written only after an unclean shutdown. Before a batch is
handled, a transaction notes all its records in the ledger. If the process crashes again, the last mark shows which
of these records may be the cause.

Thread rule: any thread may call `write`.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kafkalite.client.errors import ClientError
from kafkalite.errors import KafkaError
from kafkalite.failures.rows import encode_row
from kafkalite.failures.topics import LEDGER_PARTITION
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from kafkalite.client import Client, Producer
    from kafkalite.failures.rows import Row

WRITE_S: Final = 2.0
"""How long to wait for a mark before the record is handled without it."""
MISSED_MAX: Final = 3
"""Consecutive failed writes after which no more marks are written."""

logger = logging.getLogger(__name__)


class Marks:
    """Writes marks; see the module. `ledger` is the ledger's topic name."""

    def __init__(self, client: Client, ledger: str) -> None:
        self._client = client
        self._ledger = ledger
        self._lock = threading.Lock()
        self._own: Client | None = None
        self._producer: Producer | None = None
        self._missed = 0

    def write(self, key: str, row: Row) -> None:
        """Write one mark, without a transaction, and wait for its acknowledgement (acks=1).

        A failure is logged, and the record is handled all the same.

        If no mark of a batch was written and the process crashes, all records of the batch are then handled one at a
        time.
        """
        with self._lock:
            if self._missed >= MISSED_MAX:
                return
            try:
                if self._producer is None:
                    self._own = self._own or self._client.twin()
                    self._producer = self._own.producer(acks=1, delivery_timeout_s=WRITE_S)
                self._producer.send(self._ledger, LEDGER_PARTITION, [Record(-1, -1, key.encode(), encode_row(row))])
                self._producer.flush()
                self._missed = 0
            except (KafkaError, ClientError) as error:
                self._missed += 1
                logger.warning("cannot write to the ledger which record is being processed: %s", error)
                if self._producer is not None:
                    self._producer.close()
                    self._producer = None

    def close(self) -> None:
        """Close the producer and its client. Idempotent."""
        with self._lock:
            self._missed = MISSED_MAX
            if self._producer is not None:
                self._producer.close()
                self._producer = None
            if self._own is not None:
                self._own.close()
                self._own = None

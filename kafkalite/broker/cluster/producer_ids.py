"""Allocate producer ids from blocks that a controller gives to this broker, so that no two brokers allocate the same.

The next block is requested when a tenth of the current block is left. A stop loses the rest of a block, which is
harmless. Nothing is stored on disk.

Source: RPCProducerIdManager of Kafka 4.1. Any thread.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from kafkalite.base.logging import fields
from kafkalite.errors import ErrorCode, error_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalite.base.clock import Clock
    from kafkalite.base.deferred import Deferred
    from kafkalite.wire.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse

logger = logging.getLogger("kafkalite.broker.cluster")

LEFT_PART: Final = 10
"""When 1/LEFT_PART of a block is left, the next block is requested."""
RETRY_S: Final = 0.05
"""Delay after a failed request for a block."""
_INT64_MAX: Final = (1 << 63) - 1


class BlockIds:
    """The source of this broker's producer ids.

    `ask` sends a request to the controller and returns its response or None; `epoch` returns the broker epoch.
    """

    def __init__(
        self,
        node_id: int,
        epoch: Callable[[], int],
        ask: Callable[[int, object], Deferred[AllocateProducerIdsResponse | None]],
        clock: Clock,
    ) -> None:
        self._node_id = node_id
        self._epoch = epoch
        self._ask = ask
        self._clock = clock
        self._lock = threading.Lock()
        self._blocks: list[range] = []  # the present block and the next; guarded by _lock, as the following
        self._end = 0  # after the last block
        self._low = 0  # the remaining count at which the next block is requested
        self._asking = False
        self._ask_from = 0.0

    def next(self) -> int:
        """Return an unused id. Raises COORDINATOR_LOAD_IN_PROGRESS while no id is available. Never blocks.

        After this error even old clients retry.
        """
        given = self.take()
        if given is None:
            raise error_for(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "waiting for a block of producer ids from the controller"
            )
        return given

    def take(self) -> int | None:
        """Return an unused id, or None if no id is available."""
        with self._lock:
            given = None
            if self._blocks:
                block = self._blocks[0]
                given = block[0]
                self._blocks[:1] = [block[1:]] if len(block) > 1 else []
        self.prefetch()
        return given

    def prefetch(self) -> None:
        """Request the next block of ids, if that is due."""
        with self._lock:
            due = sum(map(len, self._blocks)) <= self._low and self._clock.monotonic() >= self._ask_from
            if self._asking or not due:
                return
            self._asking = True
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._epoch())
        self._ask(api.ALLOCATE_PRODUCER_IDS, request).then(self._answered)

    def _answered(self, answer: AllocateProducerIdsResponse | None) -> None:
        with self._lock:
            self._asking = False
            if answer is not None and not answer.error_code and self._fits(answer):
                self._end = answer.producer_id_start + answer.producer_id_len
                self._low = answer.producer_id_len // LEFT_PART
                self._blocks.append(range(answer.producer_id_start, self._end))
                return
            self._ask_from = self._clock.monotonic() + RETRY_S
        if answer is not None:
            logger.warning("the controller refused to allocate producer ids", extra=fields(code=answer.error_code))

    def _fits(self, answer: AllocateProducerIdsResponse) -> bool:
        """Return whether a block of ids from the controller is valid and above all earlier blocks."""
        start, count = answer.producer_id_start, answer.producer_id_len
        return self._end <= start <= _INT64_MAX - count and count > 0

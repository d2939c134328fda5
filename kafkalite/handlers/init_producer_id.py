"""InitProducerId 0-5: a producer id for an idempotent producer, never given twice.

Without a transactional id every request gets a fresh id at epoch 0, also one that brings its old id and epoch (v3,
KIP-360). Ids come from a block that was made durable before its first id is handed out; what is left of it at a stop
is lost, which costs nothing.

Transactions come with a later release. Until then no transactional id is authorised, see `find_coordinator`.

Thread rule: runs on the I/O pool, since every 1000th request waits for the disk; a lock guards the block.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kafkalite.dispatch import RequestContext
    from kafkalite.log.manager import LogManager

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
BLOCK_SIZE: Final = 1000
"""Producer ids made durable at once; as many as Kafka's brokers take."""

_lock = threading.Lock()
_blocks: WeakKeyDictionary[LogManager, range] = WeakKeyDictionary()
"""The ids of each open data directory that are durable and not yet handed out. Guarded by `_lock`."""


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _failure(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failure(ErrorCode.INVALID_REQUEST)  # id and epoch come together or not at all
    if request.transactional_id is not None:
        return _failure(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = next_producer_id(context.broker.logs)
    except KafkaError as error:
        return _failure(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def next_producer_id(logs: LogManager) -> int:
    """An id nobody else gets. Blocks when a new block has to be made durable; StorageError when it cannot be."""
    with _lock:
        block = _blocks.get(logs) or range(0)
        if not block:
            first = logs.allocate_producer_ids(BLOCK_SIZE)
            block = range(first, first + BLOCK_SIZE)
        _blocks[logs] = block[1:]
        return block[0]


def _failure(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)

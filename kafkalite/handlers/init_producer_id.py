"""InitProducerId 0-5: a producer id for an idempotent producer, never given twice.

Without a transactional id every request gets a fresh id at epoch 0, also one that brings its old id and epoch (v3,
KIP-360). Ids come from a block that was made durable before its first id is handed out; what is left of it at a stop
is lost, which costs nothing.

Transactions come with a later release. A transactional id is answered UNSUPPORTED_VERSION: librdkafka and Java both
take it for final and say so, where COORDINATOR_NOT_AVAILABLE would be retried until a time-out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kafkalite.dispatch import RequestContext

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1


def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _failure(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failure(ErrorCode.INVALID_REQUEST)  # id and epoch come together or not at all
    if request.transactional_id is not None:
        return _failure(ErrorCode.UNSUPPORTED_VERSION)
    try:
        producer_id = context.broker.logs.allocate_producer_ids(1)
    except KafkaError as error:
        return _failure(error.code)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failure(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)

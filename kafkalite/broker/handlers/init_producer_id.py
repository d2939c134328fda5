"""Handle InitProducerId 0-5: allocate a producer id.

    without transactional id   a new producer id with epoch 0, even if the request has an old producer id and epoch
                               (v3, KIP-360)
    with transactional id      the producer id of this transactional id; older producers with the same id are fenced
                               (`kafkalite.broker.coordinator.transaction_rules`)

v0-3 return INVALID_PRODUCER_EPOCH where v4 returns PRODUCER_FENCED (KIP-588).

Thread rule: runs on the I/O pool, since a new block of ids waits for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.broker.handlers.permissions import (
    CLUSTER,
    IDEMPOTENT_WRITE,
    TOPIC,
    TRANSACTIONAL_ID,
    TWO_PHASE_COMMIT,
    WRITE,
    allows,
    allows_any,
)
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kafkalite.base.deferred import Deferred
    from kafkalite.broker.handlers.context import RequestContext

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
_FENCED_SINCE: Final = 4


def handle(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
    denied = _refusal(context, request)
    if denied:
        return _failure(denied)
    if request.transactional_id == "":
        return _failure(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _failure(ErrorCode.INVALID_REQUEST)  # id and epoch come together or not at all
    transactions = context.broker.transactions
    if request.transactional_id is None:
        try:
            return InitProducerIdResponse(producer_id=transactions.producer_ids.next(), producer_epoch=0)
        except KafkaError as error:
            return _failure(error.code)
    asked = None if request.producer_id == NO_PRODUCER_ID else (request.producer_id, request.producer_epoch)
    done = transactions.initialise(request.transactional_id, request.transaction_timeout_ms, asked, context.holder)
    return done.map(lambda result: _response(context, *result))


def _refusal(context: RequestContext, request: InitProducerIdRequest) -> ErrorCode:
    """Return the error code if the client may not get a producer id, or NONE."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        may = allows(context, IDEMPOTENT_WRITE, CLUSTER, probe=True) or allows_any(context, WRITE, TOPIC)
        return ErrorCode.NONE if may else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    may = allows(context, WRITE, TRANSACTIONAL_ID, transactional_id) and (
        not request.enable2_pc or allows(context, TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    )
    return ErrorCode.NONE if may else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _response(context: RequestContext, code: int, producer_id: int, epoch: int) -> InitProducerIdResponse:
    if code == ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


def _failure(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)

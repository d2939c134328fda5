"""Blocks of producer ids from a controller: when they are asked for, and what is no block."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.base.deferred import Deferred
from kafkalite.broker.cluster.producer_ids import RETRY_S, BlockIds
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tests.kit.fakes.clock import FakeClock

SIZE = 20


class Controller:
    """A controller that answers when the test calls it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, AllocateProducerIdsRequest, Deferred[Any]]] = []
        self.start = 1000

    def ask(self, key: int, request: object) -> Deferred[Any]:
        assert isinstance(request, AllocateProducerIdsRequest)
        answer: Deferred[Any] = Deferred()
        self.asked.append((key, request, answer))
        return answer

    def give(self, **other: int) -> None:
        """A block, or another answer, to what was asked last."""
        block = {"producer_id_start": self.start, "producer_id_len": SIZE} | other
        self.start += SIZE
        self.asked[-1][2].complete(AllocateProducerIdsResponse(**block))


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids(controller: Controller, clock: FakeClock) -> BlockIds:
    return BlockIds(7, lambda: 42, controller.ask, clock)


def refused(ids: BlockIds) -> bool:
    with pytest.raises(KafkaError) as error:
        ids.next()
    return error.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_producers_wait_for_the_first_block(ids: BlockIds, controller: Controller) -> None:
    assert ids.take() is None
    assert refused(ids)
    ((key, request, _),) = controller.asked  # once, however many want it
    assert (key, request.broker_id, request.broker_epoch) == (api.ALLOCATE_PRODUCER_IDS, 7, 42)
    controller.give()
    assert (ids.next(), ids.take()) == (1000, 1001)


def test_next_block_is_there_before_the_first_is_used_up(ids: BlockIds, controller: Controller) -> None:
    ids.prefetch()
    controller.give()
    given = [ids.next() for _ in range(SIZE - 3)]
    assert len(controller.asked) == 1
    given.append(ids.next())  # two are left, a tenth
    assert len(controller.asked) == 2
    controller.give()
    given += [ids.next() for _ in range(SIZE)]
    assert given == list(range(1000, 1000 + 2 * SIZE - 2))
    assert len(controller.asked) == 3
    assert [ids.take() for _ in range(3)] == [1038, 1039, None]
    assert len(controller.asked) == 3  # the third block is on its way


def test_controller_that_gives_none_is_asked_again_a_little_later(
    ids: BlockIds, controller: Controller, clock: FakeClock
) -> None:
    ids.prefetch()
    controller.give(error_code=ErrorCode.STALE_BROKER_EPOCH)
    assert refused(ids)
    assert len(controller.asked) == 1
    clock.advance(RETRY_S)
    assert refused(ids)
    controller.asked[-1][2].complete(None)  # no controller was found
    clock.advance(RETRY_S)
    assert refused(ids)
    assert len(controller.asked) == 3
    controller.give()
    assert ids.next() >= 1000


@pytest.mark.parametrize(
    "block",
    [
        {"producer_id_start": 1000 + SIZE - 1},
        {"producer_id_start": -1},
        {"producer_id_len": 0},
        {"producer_id_start": (1 << 63) - 2},
    ],
)
def test_block_that_cannot_be_is_not_taken(
    ids: BlockIds, controller: Controller, clock: FakeClock, block: dict[str, int]
) -> None:
    ids.prefetch()
    controller.give()
    for _ in range(SIZE):
        ids.next()
    controller.give(**block)
    assert refused(ids)
    clock.advance(RETRY_S)
    assert refused(ids)
    controller.start = 5000
    controller.give()
    assert ids.next() == 5000

from typing import Protocol, final

from kafkalite._native.serve.deferred_produce import WaitingPart, WaitingRequest
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite._native.serve.transfer import Answer, OutBuffer
from kafkalite.base.deferred import Deferred
from kafkalite.base.pool import IoPool

def deferred_bytes_now() -> int: ...

class TransactionGate(Protocol):
    def admit(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        produce_version: int,
    ) -> int | Deferred[int]: ...

@final
class ProduceServer:
    def __init__(
        self,
        table: TopicTable,
        out: OutBuffer,
        pool: IoPool,
        *,
        partitions_max: int,
        deferred_bytes_max: int,
        flush_on_acks_all: bool,
        gate: TransactionGate | None = None,
    ) -> None: ...

@final
class PendingPart(WaitingPart): ...

@final
class PendingProduce(WaitingRequest):
    @property
    def answer(self) -> Answer: ...
    def give_up(self) -> None: ...

@final
class ProduceRun: ...

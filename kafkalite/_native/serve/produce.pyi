from typing import Protocol, final

from kafkalite._native.log.log_core import LogCore
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite._native.serve.transfer import Answer, OutBuffer
from kafkalite.deferred import Deferred
from kafkalite.pool import IoPool

ADMITS_FROM: int

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
class Ask: ...

@final
class PendingPart: ...

@final
class PendingProduce:
    @property
    def answer(self) -> Answer: ...
    def append_on_pool(self, i: int) -> None: ...
    def admit(self, i: int, error: int) -> None: ...

@final
class FlushWaiter:
    def __init__(self, pending: PendingProduce, index: int) -> None: ...
    def __call__(self, error: int) -> None: ...

@final
class AdmissionWaiter:
    def __init__(self, pending: PendingProduce, index: int) -> None: ...
    def __call__(self, error: int) -> None: ...

@final
class AdmissionDropped:
    def __init__(self, log: LogCore, producer_id: int) -> None: ...
    def __call__(self, error: int) -> None: ...

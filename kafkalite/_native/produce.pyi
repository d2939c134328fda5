from typing import final

from kafkalite._native.topic_table import TopicTable
from kafkalite._native.transfer import Answer, OutBuffer
from kafkalite.pool import IoPool

def deferred_bytes_now() -> int: ...

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
    ) -> None: ...

@final
class PendingPart: ...

@final
class PendingProduce:
    @property
    def answer(self) -> Answer: ...
    def append_on_pool(self, i: int) -> None: ...

@final
class FlushWaiter:
    def __init__(self, pending: PendingProduce, index: int) -> None: ...
    def __call__(self, error: int) -> None: ...

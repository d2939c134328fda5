from typing import Any, final

from kafkalite._native.serve.fetch_session import FetchParts, FetchSessionCache
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite._native.serve.transfer import Answer, Mailbox, OutBuffer
from kafkalite.base.pool import IoPool

@final
class FetchServer:
    def __init__(
        self,
        table: TopicTable,
        out: OutBuffer,
        mailbox: Mailbox,
        pool: IoPool,
        sessions: FetchSessionCache,
        *,
        partitions_max: int,
        response_size_max: int,
        copy_size_max: int,
    ) -> None: ...
    @property
    def mailbox(self) -> Mailbox: ...

@final
class FetchPlan(FetchParts):
    @property
    def deadline(self) -> float: ...
    @property
    def done(self) -> bool: ...
    @property
    def answer(self) -> Answer: ...
    def expire(self, now: float) -> None: ...
    def verify_on_pool(self, work: list[tuple[Any, int, int]]) -> None: ...

from typing import Any, final

from kafkalite._native.serve.connection import Connection
from kafkalite._native.serve.topic_table import TopicTable
from kafkalite._native.serve.transfer import Answer, OutBuffer

def deferred_bytes_now() -> int: ...

@final
class ClassicServer:
    def __init__(
        self,
        table: TopicTable,
        out: OutBuffer,
        pool: Any,
        host: Any,
        *,
        parts_max: int,
        copy_size_max: int,
        deferred_bytes_max: int,
    ) -> None: ...

@final
class PendingSets:
    def append_on_pool(self) -> None: ...
    def flush_anyway(self) -> None: ...
    def flushed(self, _error: int) -> None: ...

@final
class ClassicConnection(Connection):
    def ranges_on_pool(self, answer: Answer, wanted: list[tuple[bytes, int, int, int]], multi: bool) -> None: ...
    def offsets_on_pool(self, answer: Answer, topic: bytes, partition: int, time_ms: int, count_max: int) -> None: ...

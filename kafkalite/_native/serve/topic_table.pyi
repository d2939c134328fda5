from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

class Topic:
    name: str
    name_utf8: bytes
    id: bytes
    partitions: tuple[Any, ...]
    config: Any
    overrides: dict[str, str]
    internal: bool
    @property
    def number(self) -> int: ...
    def __init__(
        self,
        name: str,
        topic_id: bytes,
        partitions: Iterable[Any],
        config: Any,
        overrides: Mapping[str, str],
        *,
        internal: bool = False,
    ) -> None: ...

class TopicTable:
    @property
    def generation(self) -> int: ...
    def publish(self, topics: Iterable[Topic]) -> None: ...
    def get(self, name: bytes) -> Topic | None: ...
    def get_id(self, topic_id: bytes) -> Topic | None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Topic]: ...

@final
class TopicRef:
    @property
    def key(self) -> bytes: ...
    @property
    def by_id(self) -> bool: ...

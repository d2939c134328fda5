from collections.abc import Callable, Iterator

from typing_extensions import Buffer

TYPE_PRODUCE: int
TYPE_FETCH: int
TYPE_MULTIFETCH: int
TYPE_MULTIPRODUCE: int
TYPE_OFFSETS: int
ANY_PARTITION: int
FAULT_TEXT: dict[int, str]
PARTIAL: int
BAD_SIZE: int
BAD_MAGIC: int
BAD_CRC: int
BAD_CODEC: int
BAD_CONTENT: int

class MessageSetError(ValueError):
    fault: int
    offset: int
    def __init__(self, fault: int, offset: int) -> None: ...

class Message:
    OVERHEAD: int
    def __init__(self, payload: Buffer, *, magic: int = 1, attributes: int = 0) -> None: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def magic(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def checksum(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class MessageIterator:
    def __init__(
        self,
        buffer: Buffer,
        base_offset: int = 0,
        *,
        shallow: bool = False,
        unpack: Callable[[int, bytes, int], Buffer] | None = None,
        fault: Callable[[int, int], BaseException] = ...,
        depth_max: int = 4,
        depth: int = 0,
    ) -> None: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def depth(self) -> int: ...
    def __iter__(self) -> Iterator[Message]: ...
    def __next__(self) -> Message: ...
    def stop(self) -> None: ...

def check(buffer: Buffer, *, verify: bool = True) -> tuple[int, int, int, int, int]: ...
def encode(messages: list[Message] | list[bytes] | list[bytes | Message], magic: int = 1) -> bytes: ...
def encode_produce(head: bytes, messages: list[Message] | list[bytes] | list[bytes | Message]) -> tuple[bytes, int]: ...

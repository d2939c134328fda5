from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

OBJECTS_MAX: int

def covers(versions: str, version: int) -> bool: ...
def tags_size(data: bytes) -> int: ...

class CodecError(ValueError): ...

class DecodeError(CodecError):
    position: int
    def __init__(self, message: str, position: int = 0) -> None: ...

class EncodeError(CodecError): ...

class Program:
    message: type
    version: int
    flexible: bool
    strict: bool
    def __init__(
        self, message: type, version: int, flexible: bool, namespace: dict[str, Any], strict: bool = False
    ) -> None: ...
    def decode(
        self,
        data: Buffer,
        *,
        objects_max: int = -1,
        views: bool = False,
        exact: bool = True,
        pace: Callable[[], object] | None = None,
    ) -> Any: ...
    def encode(self, message: object) -> bytes: ...
    def encode_frame(self, message: object, header: bytes, pace: Callable[[int], object] | None = None) -> bytes: ...
    def count_items(self, message: object) -> int: ...
    def release(self, message: object, pace: Callable[[], object]) -> None: ...

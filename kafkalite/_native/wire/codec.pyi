from typing import Any

from typing_extensions import Buffer

OBJECTS_MAX: int

def covers(versions: str, version: int) -> bool: ...

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
    def decode(self, data: Buffer, *, objects_max: int = -1, views: bool = False, exact: bool = True) -> Any: ...
    def encode(self, message: object) -> bytes: ...
    def encode_frame(self, message: object, header: bytes) -> bytes: ...

from typing_extensions import Buffer

from kafkalite._native.log_core import LogCore, LogSlice
from kafkalite._native.record_format import RecordFormat

class ClassicFormat(RecordFormat): ...

classic: RecordFormat

def append(log: LogCore, data: Buffer, *, may_block: bool = True) -> tuple[int, int, int, bool]: ...
def read(log: LogCore, offset: int, size_max: int = ...) -> tuple[int, LogSlice | None]: ...

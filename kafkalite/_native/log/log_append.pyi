from kafkalite._native.log.log_core import LogCore

APPEND_DONE: int
APPEND_DUPLICATE: int
APPEND_REFUSED: int
APPEND_DEFER: int
APPEND_ASK: int

def append_batch(
    log: LogCore,
    batch: bytes | bytearray | memoryview,
    *,
    may_block: bool = True,
    origin: int = 0,
    admitted: int = -1,
    in_epoch: int = -1,
) -> tuple[int, int, int, int, int, int, int]: ...
def append_marker_batch(
    log: LogCore, batch: bytes | bytearray | memoryview, *, strict: bool = False, in_epoch: int = -1
) -> tuple[int, int]: ...

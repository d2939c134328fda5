from kafkalite._native.log.segment import Segment

class LogSlice:
    owner: object
    segment: Segment | None
    position: int
    size: int
    def release(self) -> None: ...
    def tobytes(self) -> bytes: ...

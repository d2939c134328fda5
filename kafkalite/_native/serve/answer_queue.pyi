from typing import final

from kafkalite._native.serve.worker_parts import WorkerParts

@final
class AnswerQueue:
    def __init__(self, io: WorkerParts) -> None: ...
    @property
    def in_flight(self) -> int: ...
    def parked(self) -> dict[int, int]: ...

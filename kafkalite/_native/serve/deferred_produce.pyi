from typing import final

ADMITS_FROM: int
ASKED: int
AFTER_ANOTHER: int
QUEUED: int
APPENDING: int
FLUSHING: int
REPLICATING: int
DONE: int

def may_follow(before: int, after: int) -> bool: ...

@final
class Admission:
    def __len__(self) -> int: ...
    def drop(self, _error: int) -> None: ...

@final
class AdmissionRequest: ...

class WaitingPart: ...

class WaitingRequest:
    done: bool
    def expire(self, now: float) -> None: ...
    def append_on_pool(self, i: int) -> None: ...
    def admit(self, i: int, error: int) -> None: ...

class PartWaiter:
    def __init__(self, request: WaitingRequest, index: int) -> None: ...

@final
class FlushWaiter(PartWaiter):
    def __call__(self, error: int) -> None: ...

@final
class ReplicationWaiter(PartWaiter):
    def __call__(self, error: int) -> None: ...

@final
class AdmissionWaiter(PartWaiter):
    def __call__(self, error: int) -> None: ...

from typing import final

from kafkalite._native.serve.quota import Meter

@final
class Throttle:
    def of_request(self) -> tuple[int, Meter | None]: ...

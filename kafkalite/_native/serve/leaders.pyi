from collections.abc import Callable
from typing import Any

class Leaders:
    def __init__(
        self, address_of: Callable[[Any, int], tuple[bytes, int, bytes | None] | None], *, by_rack: bool = False
    ) -> None: ...

"""Keep the garbage collector from traversing old objects while a request creates very many objects.

Otherwise the collector would traverse the old objects several times during one large request, for 20 ms each time.

Thread rule: any thread; `_lock` is a leaf.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

_NEVER: Final = 1_000_000_000


class OldObjects:
    """Raises the collector's threshold for old objects while any request needs that."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a collection under it may end another request
        self._count = 0
        self._threshold = 0  # the original one

    def spare(self) -> None:
        """Exclude old objects from collections, until each call of `spare` was undone by a call of `resume`."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                young, middle, self._threshold = gc.get_threshold()
                gc.set_threshold(young, middle, _NEVER)

    def resume(self) -> None:
        """Undo one call of `spare`."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                young, middle, _ = gc.get_threshold()
                gc.set_threshold(young, middle, self._threshold)


OLD_OBJECTS: Final = OldObjects()
"""The only instance in this process."""

"""Keep the collector of cycles from looking through all objects while a request makes a great many of them.

It would do so several times for the objects of one large request, 20 ms each.

Thread rule: any thread; `_lock` is a leaf.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

_NEVER: Final = 1_000_000_000


class OldObjects:
    """The collector's third threshold, which is raised while anyone asks for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # it may collect, and so end another request, while it is held
        self._count = 0
        self._threshold = 0  # before it was raised

    def spare(self) -> None:
        """Young objects alone are looked through, until as many calls of `resume`."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                young, middle, self._threshold = gc.get_threshold()
                gc.set_threshold(young, middle, _NEVER)

    def resume(self) -> None:
        """Ends one `spare`."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                young, middle, _ = gc.get_threshold()
                gc.set_threshold(young, middle, self._threshold)


OLD_OBJECTS: Final = OldObjects()
"""The one of this process."""

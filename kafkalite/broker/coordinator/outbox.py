"""Collect responses under a lock, and deliver them after its release so that their callbacks may take any lock.

Thread rule: any thread; `later_locked` needs the lock.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Outbox:
    """A lock with deferred calls, for a group or a transactional id.

    If `same` is given, this Outbox has the same lock as the Outbox `same`.
    """

    def __init__(self, same: Outbox | None = None) -> None:
        self._lock: threading.Lock = threading.Lock() if same is None else same._lock  # noqa: SLF001 - of this class
        self._deliveries: list[Callable[[], object]] = []

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock for the block; after its release, run the calls that the block deferred.

        A block that only reads defers none, so any thread may use it, such as the one that serves metrics.
        """
        self._lock.acquire()
        try:
            yield
        finally:
            deliveries, self._deliveries = self._deliveries, []
            self._lock.release()
            for deliver in deliveries:
                deliver()

    def later_locked(self, deliver: Callable[[], object]) -> None:
        """Defer a call until the lock is released."""
        self._deliveries.append(deliver)

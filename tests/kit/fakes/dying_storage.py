"""A target's storage whose process ends (SIGKILL) at one of its steps: right before the call, or right after it.

Steps are what changes something: 0 is before the first one, 1 after it, 2 before the second one, and so on.
"""

import contextlib
import os
import signal
from collections.abc import Iterator

from kafkalite.load.storage import Storage

CHANGING = ("create", "finish", "put", "move", "make_folder", "sync", "remove", "remove_folder")


class DyingStorage:
    def __init__(self, storage: Storage, last_step: int) -> None:
        self._storage = storage
        self._last_step = last_step
        self.steps = 0

    def step(self) -> None:
        if self.steps == self._last_step:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    def __getattr__(self, name: str) -> object:
        found = getattr(self._storage, name)
        if name not in CHANGING:
            return found

        def counted(*arguments: object) -> object:
            self.step()
            answer = found(*arguments)
            self.step()
            return answer

        return counted

    @contextlib.contextmanager
    def turn(self, name: str, timeout_s: float) -> Iterator[None]:
        self.step()
        with self._storage.turn(name, timeout_s):
            self.step()
            yield

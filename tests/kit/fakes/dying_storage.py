"""A target's storage whose process ends (SIGKILL) at one of its steps: right before the call, or right after it.

Steps are what changes something: 0 is before the first one, 1 after it, 2 before the second one, and so on.
"""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

from kafkalite.load.storage import Storage

NUMBER = re.compile(r"[0-9a-f]{16,}|[0-9]{8,}")
CHANGING = ("create", "finish", "put", "move", "make_folder", "sync", "remove", "remove_folder")


class DyingStorage:
    def __init__(self, storage: Storage, last_step: int, named: Path | None = None) -> None:
        """`named` gets a line with the name of the step at which the process ended."""
        self._storage = storage
        self._last_step = last_step
        self._named = named
        self.steps = 0

    def step(self, name: str = "") -> None:
        if self.steps == self._last_step:
            if self._named is not None:
                with self._named.open("a") as names:
                    names.write(f"{name}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    def __getattr__(self, name: str) -> object:
        found = getattr(self._storage, name)
        if name not in CHANGING:
            return found

        def counted(*arguments: object) -> object:
            about = NUMBER.sub("N", arguments[0]) if isinstance(arguments[0], str) else "file"
            self.step(f"before {name} {about}")
            answer = found(*arguments)
            self.step(f"after {name} {about}")
            return answer

        return counted

    @contextlib.contextmanager
    def turn(self, name: str, timeout_s: float) -> Iterator[None]:
        self.step("before the turn")
        with self._storage.turn(name, timeout_s):
            self.step("after the turn")
            yield

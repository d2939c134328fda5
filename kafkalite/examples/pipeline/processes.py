"""Parts of a pipeline as processes: started, waited for, and ended whatever happens.

Each part leads a process group of its own, so that what it starts (Java, workers) ends with it. Output goes to a file a
part, whose end is quoted when one fails.

Thread rule: one thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import kafkalite

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE_PARENT: Final = Path(kafkalite.__file__).resolve().parent.parent
POLL_S: Final = 0.1
STOP_TIMEOUT_S: Final = 20.0
QUOTED: Final = 2000
"""Characters of a failed part's output."""


class PartFailed(RuntimeError):
    """A part ended in error, or did not do its work in time; the message says which, and quotes it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process that was started."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    errors: Path

    def quoted(self) -> str:
        """The end of what it said."""
        texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in (self.output, self.errors)]
        return "\n".join(text[-QUOTED:] for text in texts if text)

    def kill(self) -> None:
        """Ends it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Parts:
    """See the module. Leaving the `with` block ends every part, the last one first.

    `folder`      where output goes
    `deadline`    when waiting ends, of time.monotonic
    """

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._parts: list[Part] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            for part in reversed(self._parts):
                self.stop(part)
        finally:  # somebody is in a hurry
            for part in self._parts:
                part.kill()

    def start(self, name: str, *arguments: str) -> Part:
        """Runs `python -m …`."""
        output, errors = self._folder / f"{name}.out", self._folder / f"{name}.log"
        paths = [str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with output.open("wb") as out, errors.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        part = Part(name, process, output, errors)
        self._parts.append(part)
        return part

    def start_server(self, name: str, *arguments: str) -> str:
        """Runs something with a --ready-file, and waits for it; what is in that file."""
        ready = self._folder / f"{name}.ready"
        self.start(name, *arguments, "--ready-file", str(ready))
        self.wait_for(ready.exists, f"{name} is ready")
        return ready.read_text(encoding="utf-8").strip()

    def wait_for(self, done: Callable[[], bool], what: str, waited: Part | None = None) -> None:
        """Polls until it is done. PartFailed when a part fails meanwhile, but for `waited`, or when time is over."""
        while not done():
            for part in self._parts:
                status = part.process.poll()
                if status and part is not waited:
                    raise PartFailed(f"{part.name} ended with status {status}:\n{part.quoted()}")
            if time.monotonic() > self._deadline:
                quoted = "" if waited is None else f"\n{waited.quoted()}"
                raise PartFailed(f"timed out before {what}{quoted}")
            time.sleep(POLL_S)

    def result(self, part: Part, *, statuses: tuple[int, ...] = (0,)) -> str:
        """Waits until a part has ended by itself; its output. PartFailed for another status."""
        self.wait_for(lambda: part.process.poll() is not None, f"{part.name} has ended", part)
        if part.process.returncode not in statuses:
            raise PartFailed(f"{part.name} ended with status {part.process.returncode}:\n{part.quoted()}")
        self.stop(part)
        return part.output.read_text(encoding="utf-8")

    def stop(self, part: Part) -> None:
        """SIGTERM, and SIGKILL for its whole group when that is not enough or leaves something. Idempotent."""
        if part not in self._parts:
            return
        if part.process.poll() is None:
            part.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(STOP_TIMEOUT_S)
        part.kill()
        self._parts = [other for other in self._parts if other is not part]

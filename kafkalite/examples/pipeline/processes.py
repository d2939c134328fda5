"""Start the parts of a pipeline as processes, wait for them, and always end all of them.

Each part has its own process group, so that its children (Java, workers) end with it. Each part writes its output to
its own files.

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
from kafkalite.examples.pipeline.stages import Kill

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE_PARENT: Final = Path(kafkalite.__file__).resolve().parent.parent
POLL_S: Final = 0.1
STOP_TIMEOUT_S: Final = 20.0
QUOTED: Final = 2000
"""Maximum characters quoted from a failed part's output."""


class PartFailed(RuntimeError):
    """A part failed or timed out. The message names the part and quotes its output."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process of a run."""

    name: str
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes]
    output: Path
    errors: Path

    def quoted(self) -> str:
        """Return the end of the part's output."""
        texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in (self.output, self.errors)]
        return "\n".join(text[-QUOTED:] for text in texts if text)

    def kill(self) -> None:
        """Kill the part and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Parts:
    """The processes of a run. Leaving the `with` block ends all of them, the last one first.

    `folder`      the directory for output
    `deadline`    when waiting ends, by time.monotonic()
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
        finally:  # also after a second interrupt
            for part in self._parts:
                part.kill()

    def start(self, name: str, *arguments: str) -> Part:
        """Run `python -m …` as a part."""
        output, errors = self._folder / f"{name}.out", self._folder / f"{name}.log"
        paths = [str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with output.open("wb") as out, errors.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        part = Part(name, arguments, process, output, errors)
        self._parts.append(part)
        return part

    def start_server(self, name: str, *arguments: str) -> str:
        """Start a program with a --ready-file. Wait for the file and return its content."""
        ready = self._folder / f"{name}.ready"
        self.start(name, *arguments, "--ready-file", str(ready))
        self.wait_for(ready.exists, f"{name} is ready")
        return ready.read_text(encoding="utf-8").strip()

    def kill_and_restart(self, name: str, *changed: str) -> tuple[Part, Kill]:
        """Kill the part with its children and start it again, with `changed` after its arguments.

        The method waits until a part with a --ready-file is ready again.
        """
        (old,) = (part for part in self._parts if part.name == name)
        ready = self._folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        killed_s = time.time()
        old.kill()
        self._parts.remove(old)
        part = self.start(name, *old.arguments, *changed)
        if "--ready-file" in old.arguments:
            self.wait_for(ready.exists, f"{name} is ready again")
            return part, Kill(name, killed_s, time.time())
        return part, Kill(name, killed_s, None)

    def wait_for(self, done: Callable[[], bool], what: str, waited: Part | None = None) -> None:
        """Poll until `done` returns true. Raises PartFailed if a part other than `waited` fails, or at the deadline."""
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
        """Wait until a part has ended. Return its output. Raises PartFailed if its exit status is not one of
        `statuses`.
        """
        self.wait_for(lambda: part.process.poll() is not None, f"{part.name} has ended", part)
        if part.process.returncode not in statuses:
            raise PartFailed(f"{part.name} ended with status {part.process.returncode}:\n{part.quoted()}")
        self.stop(part)
        return part.output.read_text(encoding="utf-8")

    def stop(self, part: Part) -> None:
        """Send SIGTERM to a part, then SIGKILL to its process group. Idempotent."""
        if part not in self._parts:
            return
        if part.process.poll() is None:
            part.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                part.process.wait(STOP_TIMEOUT_S)
        part.kill()
        self._parts = [other for other in self._parts if other is not part]

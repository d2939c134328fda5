"""Runs a function again and again, each time in a process that kills itself at another step of it.

A parent that has imported everything forks for each step, which saves a start of Python; it starts no thread. The other
side is `steps_of`, or `runs_of` for a program that ends otherwise.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

from tests.kit.processes.broker import REPOSITORY

STEPS_MAX = 150


def serve(function: Callable[[int], None]) -> None:
    """For each step that stdin names: runs the function in a child, and tells its status (-9: it died there)."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 1
            try:
                function(int(line))
                status = 0
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


def runs_of(module: str, folder: Path, numbers: Iterable[int], *words: str) -> Generator[tuple[int, str], None, None]:
    """Each number with the status of the run that a program that `serve`s made of it: "-9" or "0"."""
    errors = folder / "errors"
    with errors.open("ab") as sink, subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for number in numbers:
                process.stdin.write(f"{number}\n")
                process.stdin.flush()
                status = process.stdout.readline().strip()
                assert status in {"-9", "0"}, errors.read_text()[-4000:]
                yield number, status
        finally:
            process.kill()


def steps_of(module: str, folder: Path, *words: str, stride: int = 1) -> Iterator[int]:
    """The steps at which a program that `serve`s died, after each; ends behind the last one that there is.

    With a stride these are some of them.
    """
    for step, status in runs_of(module, folder, range(0, STEPS_MAX, stride), *words):
        yield step
        if status == "0":
            return
    raise AssertionError(f"more than {STEPS_MAX} steps")

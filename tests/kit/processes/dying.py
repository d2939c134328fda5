"""Runs a function again and again, each time in a process that kills itself at another step of it.

A parent that has imported everything forks for each step, which saves a start of Python; it starts no thread. The other
side is `steps_of`.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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


def steps_of(module: str, folder: Path, *words: str) -> Iterator[int]:
    """The steps at which a program that `serve`s died, after each; ends behind the last one that there is."""
    errors = folder / "errors"
    with errors.open("ab") as sink, subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for step in range(STEPS_MAX):
                process.stdin.write(f"{step}\n")
                process.stdin.flush()
                status = process.stdout.readline().strip()
                assert status in {"-9", "0"}, errors.read_text()[-4000:]
                yield step
                if status == "0":
                    return
        finally:
            process.kill()
    raise AssertionError(f"more than {STEPS_MAX} steps")

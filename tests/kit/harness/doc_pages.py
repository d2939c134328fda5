"""Pages of docs/ as programs: their blocks of Python and shell in order, as a reader would paste them.

    ```python   run in this process, all of a page's in one namespace
    ```sh       run by bash, which ends at the first command that fails; what it leaves running ends with the page

Ports that pages name become those of the test: 9092 is the broker's, every other one a free one. A page's own first
lines have to define what it uses. A block that is not run says why, in a comment above it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple, Self

from tests.kit.processes.broker import REPOSITORY, free_port

DOCS: Final = REPOSITORY / "docs"
PORTS: Final = (9092, 9072, 9093, 9094, 9095, 8081, 9644)
"""Ports that pages name: the broker's, that of Kafka 0.7, three with TLS, a schema registry's, that of metrics."""
BLOCK: Final = re.compile(r"(?:^<!-- not run: ([^\n]*) -->\n)?^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_TIMEOUT_S: Final = 600.0
"""A block may start Spark several times, which takes a minute each where the machine is busy."""


class Block(NamedTuple):
    """A block of a page."""

    language: str
    text: str
    line: int
    """Of its first line in the page."""
    reason: str | None
    """Why it is not run."""


def blocks_of(page: Path) -> list[Block]:
    """The blocks that could be run, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[2], match[3], text.count("\n", 0, match.start(3)) + 1, match[1]) for match in BLOCK.finditer(text)
    ]


class PageRun:
    """A run of a page's commands in a separate folder. A context manager: it ends the processes that its shell has
    started.
    """

    def __init__(self, name: str, folder: Path, ports: dict[int, int]) -> None:
        self.page = DOCS / name
        self.folder = folder
        self.ports = {port: ports.get(port) or free_port() for port in PORTS}
        self.names: dict[str, object] = {"__name__": "page"}
        self._sessions: list[int] = []
        (folder / "home").mkdir()
        (folder / "examples").symlink_to(REPOSITORY / "examples")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for session in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)

    def run(self) -> int:
        """Runs every block that is to be run; how many."""
        count = 0
        with contextlib.chdir(self.folder):
            for block in blocks_of(self.page):
                if block.reason is None:
                    {"python": self.run_python, "sh": self.run_shell}[block.language](block)
                    count += 1
        return count

    def run_python(self, block: Block) -> None:
        """In the namespace of the page; lines in a traceback are the page's."""
        text = "\n" * (block.line - 1) + self.with_ports(block.text)
        exec(compile(text, str(self.page), "exec"), self.names)  # noqa: S102  # our own text

    def run_shell(self, block: Block) -> None:
        """By bash. Its output goes to a file, since what it leaves running would keep a pipe open."""
        output = self.folder / "home" / f"output-{block.line}"
        environment = {
            **os.environ,
            "HOME": str(self.folder / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "KAFKALITE_BOOTSTRAP": f"127.0.0.1:{self.ports[9092]}",
        }
        with output.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-euc", self.with_ports(block.text)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._sessions.append(process.pid)
        status = process.wait(BLOCK_TIMEOUT_S)
        assert status == 0, f"{self.page.name}, line {block.line}: status {status}\n{output.read_text()}"

    def with_ports(self, text: str) -> str:
        """A block's text with the test's ports in place of the page's."""
        return re.sub(rf"\b({'|'.join(map(str, PORTS))})\b", lambda match: str(self.ports[int(match[1])]), text)

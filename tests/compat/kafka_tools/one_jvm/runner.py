"""A JVM that runs Apache Kafka's tools on request (`ToolRunner.java`)."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from tests.kit.processes.apache_kafka import HEAP, jars

SOURCE = Path(__file__).with_name("ToolRunner.java")
QUIET = """Configuration:
  status: "off"
  Loggers:
    Root: {level: "off"}
"""


class Ended(NamedTuple):
    """How a call ended: its status, -1 if it did not, and what it printed."""

    status: int
    out: str
    err: str


class ToolRunner:
    """Runs calls one at a time. Usable as a context manager."""

    def __init__(self, directory: Path) -> None:
        logging = directory / "quiet.yaml"
        logging.write_text(QUIET)
        options = [HEAP, "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}", "-Duser.timezone=UTC"]
        self._process = subprocess.Popen(
            ["java", *options, "-cp", f"{jars()}/*", str(SOURCE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, main_class: str, *arguments: str, text: str = "") -> Ended:
        """One call with this standard input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(_encoded, (main_class, text, *arguments))) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the JVM ended with {self._process.wait()}")
        status, out, err = line.rstrip("\n").split("\t")
        return Ended(int(status), _decoded(out), _decoded(err))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()

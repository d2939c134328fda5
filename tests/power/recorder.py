"""A broker process under recorder.c: built when needed, started, killed and stopped without a half recorded change."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY, BrokerProcess
from tests.power import trace

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = Path(__file__).with_name("recorder.c")
LIBRARY = REPOSITORY / "build" / "power" / "recorder.so"
MEMORY = Path("/dev/shm")
TRACE_SIZE_MAX = 512 << 20


def library() -> Path:
    """The preload library, compiled if its source is newer."""
    with alone():
        if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
            LIBRARY.parent.mkdir(parents=True, exist_ok=True)
            command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", LIBRARY, SOURCE, "-ldl"]
            subprocess.run(command, check=True)
    return LIBRARY


def scratch() -> Path:
    """A new directory in memory, where syncing costs nothing; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="kafkalite-power-", dir=MEMORY if MEMORY.is_dir() else None))


@dataclass
class RecordedBroker(BrokerProcess):
    """A broker whose data directory and its parent are below `root`, which is recorded from its first file on."""

    seed: int = 1
    delay_permille: int = 600
    left_out: str = ""
    classic_port: int = 0
    trace_path: Path = field(default=Path())
    moments: mmap.mmap | None = None

    @property
    def root(self) -> Path:
        return self.directory / "disk"

    @property
    def data_dir(self) -> Path:
        return self.root / "var" / "data"

    def prepare(self) -> None:
        """Makes the empty disk and the trace."""
        self.root.mkdir(parents=True)
        self.trace_path = self.directory / "trace"
        with self.trace_path.open("wb+") as file:
            file.truncate(TRACE_SIZE_MAX)
            file.write(trace.HEADER.pack(trace.MAGIC, TRACE_SIZE_MAX, trace.HEADER_SIZE, 0, 0))
            file.flush()
            self.moments = mmap.mmap(file.fileno(), 0)
        self._library = ctypes.CDLL(str(library()))
        self._library.power_mark.restype = ctypes.c_uint64
        self._header = ctypes.addressof(ctypes.c_char.from_buffer(self.moments))
        self.environment = {
            "LD_PRELOAD": str(library()),
            "POWER_TRACE": str(self.trace_path),
            "POWER_ROOT": str(self.root),
            "POWER_DELAY": str(self.delay_permille),
            "POWER_SEED": str(self.seed),
            "POWER_LEFT_OUT": self.left_out,
        }
        if self.left_out:
            self.command = (sys.executable, "-m", "tests.power.launcher", "start")

    def moment(self) -> int:
        """Return the place of the next record: later events are recorded after it."""
        assert self.moments is not None, "not prepared"
        return int(trace.HEADER.unpack_from(self.moments)[2])

    def mark(self, what: int) -> int:
        """Notes something in the trace."""
        return int(self._library.power_mark(ctypes.c_void_p(self._header), ctypes.c_int64(what), ctypes.c_char_p(b"")))

    def start(self, extra_settings: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> RecordedBroker:
        super().start(extra_settings, timeout_s)
        self.mark(trace.MARK_READY)
        return self

    def kill(self) -> None:
        """kill -9 between two changes."""
        self.mark(trace.MARK_KILL)
        self._library.power_lock(ctypes.c_void_p(self._header))
        try:
            super().kill()
        finally:
            self._library.power_unlock(ctypes.c_void_p(self._header))
        self.mark(trace.MARK_GONE)

    def stop(self, timeout_s: float = 60.0) -> float:
        self.mark(trace.MARK_STOP)
        took = super().stop(timeout_s)
        self.mark(trace.MARK_GONE)
        return took

    def records(self) -> list[trace.Record]:
        """Everything recorded so far."""
        return trace.read(self.trace_path)

    def remove(self) -> None:
        """Ends the process and removes all of it."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)

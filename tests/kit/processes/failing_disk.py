"""A directory on a disk that fails on demand: tests/kit/processes/failing_fs.c, built and mounted."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).with_name("failing_fs.c")


@functools.cache
def program() -> str | None:
    """The built file system; None where FUSE, its headers or a compiler are missing."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None:
        return None
    target = Path(tempfile.gettempdir()) / f"failing-fs-{os.getuid()}-{SOURCE.stat().st_mtime_ns}"
    if target.exists():
        return str(target)
    try:
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
        ).stdout.split()
        built = target.with_suffix(f".{os.getpid()}")
        subprocess.run(["cc", "-O1", "-o", str(built), str(SOURCE), *flags], capture_output=True, check=True)
        built.replace(target)
    except (OSError, subprocess.CalledProcessError):
        return None
    return str(target)


class FailingDisk:
    """A mounted `directory` whose files are stored in `beneath`. One command at a time."""

    def __init__(self, root: Path) -> None:
        self.beneath = root / "beneath"
        self.directory = root / "mounted"
        for path in (self.beneath, self.directory):
            path.mkdir(parents=True)

    def __enter__(self) -> Self:
        found = program()
        assert found is not None, "ask program() first"
        self._process = subprocess.Popen(
            [found, str(self.beneath), str(self.directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._answer() == "mounted"
        return self

    def __exit__(self, *exc: object) -> None:
        subprocess.run(["fusermount3", "-u", "-z", str(self.directory)], check=False)
        self._process.kill()
        self._process.communicate()

    def fail(self, path: Path, start: int = 0, end: int = 1 << 60) -> None:
        """Reads of these bytes of a file answer EIO from now on, those of maps of it included."""
        self._command(f"fail /{path.relative_to(self.directory)} {start} {end}")

    def heal(self) -> None:
        self._command("heal")

    def _command(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        assert self._answer() == "ok"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

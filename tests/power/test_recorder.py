"""recorder.c beside the real directory: every call that it knows, made by a process; and what it cannot see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.processes.broker import REPOSITORY
from tests.power import trace
from tests.power.recorder import RecordedBroker, scratch
from tests.power.recording import check_replay
from tests.power.trace import TraceError

CALLS = """
import ctypes, os, sys
root = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
a = os.open(f"{root}/a", os.O_CREAT | os.O_RDWR)
os.write(a, b"one")
os.writev(a, [b"two", b"three"])
os.pwrite(a, b"ONE", 0)
os.pwritev(a, [b"x" * 5000, bytes(3000)], 4)
b = os.dup(a)
os.close(a)
os.ftruncate(b, 6000)
os.posix_fallocate(b, 0, 7000)
assert libc.fallocate(b, 3, ctypes.c_long(1000), ctypes.c_long(500)) == 0, "a hole"
os.fsync(b)
os.fdatasync(b)
os.mkdir(f"{root}/d")
inside = os.open(f"{root}/d", os.O_RDONLY | os.O_DIRECTORY)
c = os.open("c", os.O_CREAT | os.O_WRONLY | os.O_APPEND, dir_fd=inside)
os.write(c, b"appended")
os.write(c, b"twice")
os.rename("c", "c2", src_dir_fd=inside, dst_dir_fd=inside)
os.symlink("c2", f"{root}/d/link")
os.link(f"{root}/d/c2", f"{root}/hard")
os.fsync(inside)
copy = os.open(f"{root}/copy", os.O_CREAT | os.O_RDWR)
source = os.open(f"{root}/a", os.O_RDONLY)
assert os.copy_file_range(source, copy, 5000) == 5000
assert os.sendfile(copy, source, 100, 900) == 900
os.truncate(f"{root}/copy", 5500)
assert libc.syncfs(copy) == 0
os.sync()
os.chdir(f"{root}/d")
with open("by-name", "w") as file:
    file.write("text " * 5000)
os.replace("by-name", f"{root}/replaced")
with open(f"{root}/replaced", "r+b") as file:
    file.truncate(10)
os.open(f"{root}/hard", os.O_WRONLY | os.O_TRUNC)
gone = os.open(f"{root}/gone", os.O_CREAT | os.O_WRONLY)
os.unlink(f"{root}/gone")
os.write(gone, b"nobody sees it")
os.mkdir("empty")
os.rmdir("empty")
"""

MAPS = """
import mmap, os, sys
file = os.open(f"{sys.argv[1]}/a", os.O_CREAT | os.O_RDWR)
os.ftruncate(file, 4096)
mmap.mmap(file, 4096)[0] = 1
"""


@pytest.fixture
def recorded() -> Iterator[RecordedBroker]:
    broker = RecordedBroker(scratch(), delay_permille=0)
    broker.prepare()
    yield broker
    broker.remove()


def run(broker: RecordedBroker, program: str) -> list[trace.Record]:
    command = [sys.executable, "-c", program, str(broker.root)]
    subprocess.run(command, env={**os.environ, **broker.environment}, check=True, timeout=60)
    return broker.records()


def test_every_call_is_replayed(recorded: RecordedBroker) -> None:
    records = run(recorded, CALLS)
    check_replay(records, recorded.root)
    kinds = {record.kind for record in records}
    assert kinds >= set(range(trace.OPEN, trace.DUP + 1)) | {trace.PROCESS, trace.TRUNCATE_PATH}
    begun = [record for record in records if record.kind == trace.SYNC_BEGIN]
    assert {record.b for record in begun} == {trace.FSYNC, trace.FDATASYNC, trace.SYNCFS, trace.SYNC_ALL}
    ended = {record.c for record in records if record.kind == trace.SYNC_END}
    assert ended == {record.place for record in begun}


def test_difference_is_found(recorded: RecordedBroker) -> None:
    records = run(recorded, CALLS)
    (recorded.root / "a").write_bytes(b"something else")
    with pytest.raises(TraceError, match="'a'"):
        check_replay(records, recorded.root)


def test_shared_map_that_is_written_to_makes_a_recording_useless(recorded: RecordedBroker) -> None:
    with pytest.raises(TraceError):
        check_replay(run(recorded, MAPS), recorded.root)


def test_broker_makes_no_system_call_behind_the_recorders_back() -> None:
    """It calls libc by name; `syscall` and io_uring would go past that."""
    modules = list((REPOSITORY / "kafkalite" / "_native").rglob("*.so"))
    assert modules, "nothing is built"
    for module in modules:
        listing = subprocess.run(["nm", "-D", "--undefined-only", module], capture_output=True, text=True, check=True)
        names = {line.split()[-1].partition("@")[0] for line in listing.stdout.splitlines()}
        assert not names & {"syscall", "io_uring_setup", "io_uring_enter", "aio_write", "lio_listio"}, module.name


def test_trace_that_is_full_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(trace.HEADER.pack(trace.MAGIC, 8192, trace.HEADER_SIZE, 0, 1).ljust(trace.HEADER_SIZE, b"\0"))
    with pytest.raises(TraceError, match="full"):
        trace.read(path)


def test_trace_is_written_and_read_again(tmp_path: Path) -> None:
    records = [
        trace.Record(4096, trace.OPEN, 0, 7, 3, os.O_CREAT, 0, "/r/ä", b""),
        trace.Record(4152, trace.WRITE, trace.FLAG_ZEROS, 7, 3, -1, 1 << 40, "", b"123456789"),
    ]
    (tmp_path / "trace").write_bytes(trace.encode(records))
    assert trace.read(tmp_path / "trace") == records

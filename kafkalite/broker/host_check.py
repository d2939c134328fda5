"""Check the machine for `kafkalite check`: the disk, limits, memory and clock that a broker depends on.

Each row is a finding. If the finding is a problem, the row also has the reason. The sources are the kernel (proc(5),
statvfs(3), getrlimit(2), adjtimex(2)), timed syncs, and the stored expiry time. A row is left out if this system lacks
its setting in /proc/sys, or if no expiry time is stored.

Blocks: the check writes and syncs a file in the data directory, or in its nearest existing parent.
"""

from __future__ import annotations

import ctypes
import os
import resource
import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalite._native.base import native_time as time
from kafkalite.base.clock import JUMP_MS_MIN
from kafkalite.broker.log import expiry_checkpoint
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OK, NOTE, LOOK = "ok", "note", "look"
SYNC_COUNT: Final = 30
SYNC_SIZE: Final = 4096
SYNC_MS_MIN: Final = 0.05
"""Minimum time in ms to sync 4 KiB: a disk that reports success faster has not written the bytes."""
SYNC_MS_MAX: Final = 20.0
FREE_SHARE_MIN: Final = 0.1
FREE_BYTES_MIN: Final = 1 << 30
INODES_FREE_MIN: Final = 100_000
DESCRIPTORS_MIN: Final = 10_000
MAPS_MIN: Final = 60_000
MEMORY_MIN: Final = 512 << 20
GOOD: Final = frozenset({"ext4", "xfs"})
VOLATILE: Final = frozenset({"tmpfs", "ramfs"})
REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph"})
CLOCK_ERROR: Final = 5
"""TIME_ERROR of adjtimex(2): the clock is not synchronised."""
CLOCK_STARTS_S: Final = 1_735_689_600
"""2025-01-01: a clock with an earlier time is wrong."""


class Row(NamedTuple):
    """A finding. `verdict` is "ok", "note" (it costs speed or space) or "look" (data or service is at risk)."""

    what: str
    found: str
    verdict: str = OK
    why: str = ""


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    options: frozenset[str]
    device: str


def look(directory: str) -> list[Row]:
    """Return all findings in the order in which they are shown. Raises StartupError if the directory is not
    writable."""
    place = os.path.abspath(directory)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK | os.X_OK):
        raise StartupError(f"{place} is not writable; run this as the broker's user")
    parts: tuple[Callable[[], Iterator[Row]], ...] = (
        lambda: file_system(mount_of(place)),
        lambda: sync_time(place),
        lambda: room(place),
        limits,
        memory,
        clock,
        lambda: expiry_time(place),
    )
    return [row for part in parts for row in part()]


# --- disk -------------------------------------------------------------------------------------------------------------


def mount_of(path: str, table: str | None = None) -> Mount:
    """Return the file system that contains a path, from /proc/self/mounts or from `table`, a text in the same
    format."""
    if table is None:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            table = file.read()
    real = os.path.realpath(path)
    found = Mount("/", "unknown", frozenset(), "")
    for line in table.splitlines():
        device, point, kind, options = line.split()[:4]
        point = point.replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(found.point):
            found = Mount(point, kind, frozenset(options.split(",")), device)
    return found


def file_system(mount: Mount) -> Iterator[Row]:
    """Check the kind and mount options of the file system."""
    found = f"{mount.kind} at {mount.point}"
    if mount.kind in VOLATILE:
        yield Row("file system", found, LOOK, "it is in memory: all data is lost when the machine stops")
    elif mount.kind in REMOTE or mount.kind.startswith("nfs"):
        yield Row(
            "file system",
            found,
            LOOK,
            "network file systems do not provide the locks and the fsync that a broker needs",
        )
    elif mount.kind not in GOOD:
        yield Row(
            "file system", found, NOTE, "only ext4 and XFS are tested; on btrfs, disable copy on write (chattr +C)"
        )
    else:
        yield Row("file system", found)
    if {"nobarrier", "barrier=0"} & mount.options:
        yield Row("barriers", "off", LOOK, "a power cut may lose synced data; mount without nobarrier")
    if "data=writeback" in mount.options:
        yield Row(
            "journal", "data=writeback", NOTE, "files may contain garbage after a power cut; mount with data=ordered"
        )
    if "ro" in mount.options:
        yield Row("mount", "read-only", LOOK, "the broker must be able to write")


def sync_time(directory: str) -> Iterator[Row]:
    """Measure how long a small write takes to reach the disk, which is what acks=all waits for."""
    path = f"{directory}/.kafkalite-check-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, SYNC_COUNT * SYNC_SIZE)
        os.fsync(fd)
        took = []
        for number in range(SYNC_COUNT):
            os.pwrite(fd, os.urandom(SYNC_SIZE), number * SYNC_SIZE)
            began = time.monotonic()
            os.fdatasync(fd)
            took.append((time.monotonic() - began) * 1000)
    finally:
        os.close(fd)
        os.unlink(path)
    yield judged_sync(statistics.median(took), max(took))


def judged_sync(median_ms: float, max_ms: float) -> Row:
    """Return the finding for the measured sync times, in milliseconds."""
    found = f"{median_ms:.2f} ms, at most {max_ms:.1f} ms"
    if median_ms < SYNC_MS_MIN:
        return Row(
            "fdatasync of 4 KiB", found, LOOK, "too fast for a disk: writes go to a cache that a power cut empties"
        )
    if median_ms > SYNC_MS_MAX:
        return Row(
            "fdatasync of 4 KiB",
            found,
            NOTE,
            "every acks=all write waits this long; a disk with power-loss protection is faster",
        )
    return Row("fdatasync of 4 KiB", found)


def room(directory: str) -> Iterator[Row]:
    """Check free space and inodes."""
    disk = os.statvfs(directory)
    free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    share = free / total if total else 1.0
    found = f"{free / 1e9:,.1f} GB, {share:.0%}"
    if free < FREE_BYTES_MIN or share < FREE_SHARE_MIN:
        yield Row(
            "free space",
            found,
            LOOK,
            "producers are refused when the disk is full; set retention.bytes or use a larger disk",
        )
    else:
        yield Row("free space", found)
    if disk.f_files and disk.f_favail < INODES_FREE_MIN:
        yield Row("free inodes", f"{disk.f_favail:,}", LOOK, "each segment uses up to five files")


# --- the machine ------------------------------------------------------------------------------------------------------


def limits() -> Iterator[Row]:
    """Check the limits of this user and of the kernel. A broker raises its soft limit of open files to the hard
    limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_MIN:
        yield Row("open files", f"{hard:,}", LOOK, "each connection and segment needs one; set LimitNOFILE=65536")
    else:
        yield Row("open files", "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}")
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size != resource.RLIM_INFINITY:
        yield Row(
            "size of a file", f"{size:,} bytes", LOOK, "a segment can grow to segment.bytes; set ulimit -f unlimited"
        )
    maps = _number("/proc/sys/vm/max_map_count")
    if maps is not None:
        few = maps < MAPS_MIN
        why = "each open segment needs one; set sysctl vm.max_map_count=262144" if few else ""
        yield Row("memory maps", f"{maps:,}", NOTE if few else OK, why)


def memory() -> Iterator[Row]:
    """Check available memory and swappiness."""
    values = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            values[name] = int(rest.split()[0]) * 1024
    total, available = values.get("MemTotal", 0), values.get("MemAvailable", 0)
    found = f"{total / 1e9:.1f} GB, {available / 1e9:.1f} available"
    few = available < MEMORY_MIN
    yield Row(
        "memory",
        found,
        NOTE if few else OK,
        "consumers read from the page cache, which needs free memory" if few else "",
    )
    swappiness = _number("/proc/sys/vm/swappiness")
    if swappiness is not None and swappiness > 1 and values.get("SwapTotal"):
        yield Row("swappiness", str(swappiness), NOTE, "the broker may be swapped out; set sysctl vm.swappiness=1")


def clock() -> Iterator[Row]:
    """Check that the clock is right and synchronised, since retention and timestamps depend on it."""
    now = time.time()
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    state = _clock_state()
    if now < CLOCK_STARTS_S:
        yield Row("clock", found, LOOK, "the clock is wrong; record timestamps and retention depend on it")
    elif state == CLOCK_ERROR:
        yield Row(
            "clock",
            found,
            NOTE,
            "the kernel reports that the clock is not synchronised; run chrony or systemd-timesyncd",
        )
    else:
        yield Row("clock", found)


def expiry_time(directory: str) -> Iterator[Row]:
    """Compare the clock with the trusted time that a broker has stored in the directory. Yield no row without a stored
    time."""
    stored = expiry_checkpoint.read(directory)
    if stored is None:
        return
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(stored.time_ms / 1000))
    ahead_s = time.time() - stored.time_ms / 1000
    if ahead_s > JUMP_MS_MIN / 1000:
        why = (
            f"the clock is {ahead_s:.0f} s ahead (a clock jump, or downtime); expiry ignores that for "
            "clock.jump.hold.ms"
        )
        yield Row("expiry time", found, NOTE, why)
    elif ahead_s < -JUMP_MS_MIN / 1000:
        yield Row(
            "expiry time",
            found,
            LOOK,
            f"the clock is {-ahead_s:.0f} s behind the stored expiry time; one of the two is wrong",
        )
    else:
        yield Row("expiry time", found)


def _clock_state() -> int:
    """Return the clock state of adjtimex(2), or -1 if adjtimex is not available."""
    buffer = ctypes.create_string_buffer(512)  # a struct timex with modes 0: nothing is set
    try:
        return int(ctypes.CDLL(None).adjtimex(buffer))
    except (OSError, AttributeError):
        return -1


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None

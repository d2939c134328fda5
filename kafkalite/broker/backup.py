"""Back up the data directory of a running or stopped broker, so that a broker can be started on the copy.

    collect    broker runs: ask the broker for hard links and for the end of each file (kafkalite.broker.log.backup_cut)
               broker stopped: lock the data directory, and use the files as they are
    copy       copy the files ─▶ write the journal ─▶ check the copy ─▶ remove the file `backup.unfinished`

A backup can hard-link full segments if the copy is on the same file system, except after an unclean stop. All other
files are copied.

No broker starts on an incomplete copy. The copy gets its journal last, and contains the file `backup.unfinished` until
it is checked.

Blocks. One backup of a directory is made at a time: a lock on `backup.request`, or the directory's own, ensures that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import shutil
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import file_ops
from kafkalite._native.base import native_time as time
from kafkalite.base.dataclass import dataclass
from kafkalite.broker.log import backup_cut, checking, checkpoints, directory, expiry_checkpoint, files
from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_S_MAX: Final = 120.0
"""Maximum time in seconds that a broker may take to make the links; it checks for a request twice a second."""
LOOK_S: Final = 0.05
COPY_SIZE_MAX: Final = 1 << 26
COPY_ELSEWHERE: Final = frozenset({errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""Errors with which copy_file_range refuses a copy that another call can do."""
NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})


class BackupFailed(Exception):
    """The backup could not be finished; its incomplete copy was removed."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file to copy. `size` is the number of its bytes to copy."""

    source: str
    name: str  # relative to the copy
    size: int
    linkable: bool


@dataclass(slots=True)
class Plan:
    """The files and offsets that a copy will contain."""

    root: str
    journal: str  # the path of the journal's file
    items: list[Item] = field(default_factory=list)
    offsets: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)  # checkpoint files to write
    journal_size: int = 0
    partition_count: int = 0
    left_out: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """The result of a backup. Sizes are in bytes. `findings` are partitions that are missing in the copy, and faults
    of the copy, which the original has, too.
    """

    node_id: str
    partition_count: int = 0
    file_count: int = 0
    size: int = 0
    linked_size: int = 0
    checked: bool = False
    findings: list[str] = field(default_factory=list)


def back_up(source: str, target: str, *, link: bool = True, check: bool = True) -> Report:
    """Copy the data directory `source` to `target`, which must be new or empty. The broker of `source` may run.

    Raises StartupError if the backup cannot begin; then nothing was created. Raises BackupFailed or OSError after it
    has removed the incomplete copy.
    """
    _check_place(source, target)
    with contextlib.ExitStack() as held:
        lock = _take(source)
        if lock is None:
            plan = held.enter_context(_running(source))
        else:
            held.callback(lock.release)
            plan = _stopped(source, link=link)
        return _copy(plan, target, link=link, check=check)


def restore(backup: str, target: str, *, check: bool = True) -> Report:
    """Copy a backup to the directory of a new broker. The backup is not changed. Raises the same errors as
    `back_up`."""
    _check_place(backup, target)
    lock: directory.DirectoryLock | None = None
    if os.access(backup, os.W_OK):
        lock = _take(backup)
        if lock is None:
            raise StartupError(f"{backup} is in use by a running broker; use `kafkalite backup` to copy it")
    try:
        return _copy(_stopped(backup, link=False), target, link=False, check=check)
    finally:
        if lock is not None:
            lock.release()


def _check_place(source: str, target: str) -> None:
    """Raise StartupError unless `source` is a complete data directory, and `target` a new or empty directory outside
    it."""
    if not os.path.isdir(source) or checkpoints.read_properties(f"{source}/{files.META_PROPERTIES_NAME}") is None:
        raise StartupError(f"{source} is not a data directory: it has no {files.META_PROPERTIES_NAME}")
    directory.check_finished(source)
    if not os.path.exists(f"{source}/{files.JOURNAL_NAME}"):
        raise StartupError(f"{source} has no {files.JOURNAL_NAME}; start a broker on it first")
    real, inside = os.path.realpath(target), os.path.realpath(source)
    if os.path.commonpath([real, inside]) == inside:
        raise StartupError(f"target {target} is inside {source}; choose a directory outside it")
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise StartupError(f"target {target} exists and is not empty; choose a new directory")


def _take(source: str) -> directory.DirectoryLock | None:
    """Lock the data directory. Return the lock, or None if a broker has locked it."""
    try:
        return directory.DirectoryLock(source)
    except StartupError:
        return None


# --- plan -------------------------------------------------------------------------------------------------------------


def _stopped(source: str, *, link: bool) -> Plan:
    """Plan the copy of a stopped broker's directory.

    After an unclean stop every segment is copied, since the next start of the broker may still truncate it.
    """
    link = link and os.path.exists(f"{source}/{files.CLEAN_SHUTDOWN_NAME}")
    journal = f"{source}/{files.JOURNAL_NAME}"
    plan = Plan(source, journal, journal_size=os.stat(journal).st_size)
    found, _ = directory.partition_directories(source)
    for path in found.values():
        with os.scandir(path) as scan:
            entries = sorted((entry for entry in scan if entry.is_file()), key=lambda entry: entry.name)
        segments = [entry.name for entry in entries if entry.name.endswith((".log", ".kafka"))]
        for entry in entries:
            if not entry.name.endswith((files.DELETED_SUFFIX, files.TEMPORARY_SUFFIX)):
                linkable = link and entry.name in segments[:-1]
                name = f"{os.path.basename(path)}/{entry.name}"
                plan.items.append(Item(entry.path, name, entry.stat().st_size, linkable))
    plan.partition_count = len(found)
    for name in (files.RECOVERY_POINTS_NAME, files.LOG_STARTS_NAME, files.CLEANER_OFFSETS_NAME):
        offsets = checkpoints.read_offsets(f"{source}/{name}")
        if offsets is not None:
            plan.offsets[name] = offsets
    return plan


@contextlib.contextmanager
def _running(source: str) -> Iterator[Plan]:
    """Ask the running broker for hard links, and plan their copy. The links exist while the `with` block runs."""
    request = f"{source}/{files.BACKUP_REQUEST_NAME}"
    links = f"{source}/{files.BACKUP_LINKS_NAME}"
    name = secrets.token_hex(16)
    fd = _hold_request(source, request, name)
    path = backup_cut.cut_path(links, name)
    try:
        _await_cut(source, fd, path)
        with open(path, encoding="utf-8") as file:
            yield _cut_plan(source, links, json.load(file))
    finally:
        os.ftruncate(fd, 0)
        _remove_links(links)
        file_ops.unlink(request, missing_ok=True)
        os.close(fd)


def _remove_links(links: str) -> None:
    """Remove the links. If the broker is still adding links, retry until the broker has removed them."""
    deadline = time.monotonic() + ANSWER_S_MAX
    while True:
        try:
            files.remove_tree(links)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_S)
        else:
            return


def _hold_request(source: str, request: str, name: str) -> int:
    """Create and lock the file that asks the broker for links. Write the request's `name` into it and return its
    descriptor."""
    owner = os.stat(source)
    while True:
        fd = os.open(request, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_ops.FILE_MODE)
        try:
            if os.geteuid() == 0:
                os.fchown(fd, owner.st_uid, owner.st_gid)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StartupError(f"another backup of {source} is running; wait until it has finished") from None
        except BaseException:
            os.close(fd)
            raise
        if os.fstat(fd).st_nlink:
            os.ftruncate(fd, 0)
            os.pwrite(fd, name.encode(), 0)
            return fd
        os.close(fd)  # the broker removed it as abandoned


def _await_cut(source: str, fd: int, path: str) -> None:
    deadline = time.monotonic() + ANSWER_S_MAX
    while not os.path.exists(path):
        if not os.fstat(fd).st_nlink:
            raise BackupFailed(f"the broker on {source} could not create the hard links; see its log")
        if time.monotonic() > deadline:
            raise BackupFailed(
                f"the process that uses {source} did not answer within {ANSWER_S_MAX:.0f} s; is it a kafkalite broker?"
            )
        time.sleep(LOOK_S)


def _cut_plan(source: str, links: str, found: dict[str, Any]) -> Plan:
    if found["format"] not in {1, backup_cut.FORMAT}:
        raise BackupFailed(f"the broker on {source} runs another release; use the `kafkalite backup` of that release")
    linked = links if found["format"] > 1 else source
    plan = Plan(source, f"{linked}/{files.JOURNAL_NAME}", journal_size=found["journal_size"])
    points, starts = {}, {}
    for log in found["logs"]:
        name = files.directory_name(log["topic"], log["partition"])
        if log["failed"]:
            plan.left_out.append(f"{name} is offline and was left out: {log['failed']}")
            continue
        key = log["topic"], log["partition"]
        points[key] = log["end"]
        if log["start"] > log["first"]:
            starts[key] = log["start"]
        counted = {f"{files.stem(base)}{log['suffix']}": (size, sealed) for base, size, sealed in log["segments"]}
        with os.scandir(f"{links}/{name}") as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
        plan.partition_count += bool(entries)
        for entry in entries:
            there = entry.stat().st_size
            size, sealed = counted.get(entry.name, (there, False))
            # A longer file still ends in zeros, which the broker is about to truncate.
            plan.items.append(Item(entry.path, f"{name}/{entry.name}", size, sealed and there == size))
    plan.offsets[files.RECOVERY_POINTS_NAME] = points
    plan.offsets[files.LOG_STARTS_NAME] = starts
    plan.offsets[files.CLEANER_OFFSETS_NAME] = {(topic, number): at for topic, number, at in found["cleaned"]}
    return plan


# --- copying ----------------------------------------------------------------------------------------------------------


def _copy(plan: Plan, target: str, *, link: bool, check: bool) -> Report:
    """Make the copy. Only its owner can access it, because the journal contains SCRAM credentials.

    The journal comes last: without it, no broker of any release starts on the copy. If a step fails, the copy is
    removed.
    """
    made = not os.path.isdir(target)
    try:
        if made:
            os.makedirs(target, mode=file_ops.DIRECTORY_MODE)
        os.chmod(target, file_ops.DIRECTORY_MODE)
        report = _fill(plan, target, link=link)
        _copy_file(plan.journal, f"{target}/{files.JOURNAL_NAME}", plan.journal_size)
        file_ops.sync_file_system(target)
        if check:
            report.findings += _findings(target)
            report.checked = True
        file_ops.unlink(f"{target}/{files.BACKUP_UNFINISHED_NAME}")
        file_ops.sync_directory(target)
        file_ops.sync_directory(os.path.dirname(os.path.abspath(target)))
    except BaseException:
        _remove(target, itself=made)
        raise
    return report


def _fill(plan: Plan, target: str, *, link: bool) -> Report:
    """Copy everything except the journal."""
    files.write_atomically(f"{target}/{files.BACKUP_UNFINISHED_NAME}", b"", durable=True)
    properties = checkpoints.read_properties(f"{plan.root}/{files.META_PROPERTIES_NAME}") or {}
    checkpoints.write_properties(f"{target}/{files.META_PROPERTIES_NAME}", properties)
    link = link and os.stat(target).st_dev == os.stat(plan.root).st_dev
    _check_room(plan, target, link=link)
    report = Report(properties.get("node.id", ""), plan.partition_count, findings=list(plan.left_out))
    for folder in sorted({os.path.dirname(item.name) for item in plan.items}):
        os.mkdir(f"{target}/{folder}", file_ops.DIRECTORY_MODE)
    for item in plan.items:
        path = f"{target}/{item.name}"
        if link and item.linkable and _link(item.source, path):
            report.linked_size += item.size
        else:
            _copy_file(item.source, path, item.size)
        report.size += item.size
        report.file_count += 1
    for name, offsets in plan.offsets.items():
        checkpoints.write_offsets(f"{target}/{name}", offsets)
    stored = expiry_checkpoint.read(plan.root)
    if stored is not None:  # records of a backup that is restored later do not expire at once
        expiry_checkpoint.write(target, stored)
    file_ops.sync_file_system(target)
    return report


def _check_room(plan: Plan, target: str, *, link: bool) -> None:
    """Raise BackupFailed if the copy does not fit on the disk: a backup must not fill the disk of a running broker."""
    needed = sum(item.size for item in plan.items if not (link and item.linkable)) + plan.journal_size
    found = os.statvfs(target)
    free = found.f_bavail * found.f_frsize
    if needed > free:
        raise BackupFailed(f"{target} has {free:,} bytes of free space, but the copy needs {needed:,}")


def _link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in NO_LINK:
            return False
        raise
    return True


def _copy_file(source: str, target: str, size: int) -> None:
    """Copy the first `size` bytes of a file, and its times, since retention may use them."""
    with contextlib.ExitStack() as opened:
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        opened.callback(os.close, reading)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_ops.FILE_MODE)
        opened.callback(os.close, writing)
        left, directly = size, True
        while left > 0:
            want = min(left, COPY_SIZE_MAX)
            try:
                if directly:
                    done = os.copy_file_range(reading, writing, want)
                else:
                    done = os.sendfile(writing, reading, None, want)
            except OSError as error:
                if directly and error.errno in COPY_ELSEWHERE:
                    directly = False
                    continue
                raise OSError(error.errno, error.strerror, target) from error
            if done == 0:
                raise BackupFailed(f"{source} is shorter than the {size:,} bytes that were flushed")
            left -= done
        times = os.fstat(reading)
        os.utime(writing, ns=(times.st_atime_ns, times.st_mtime_ns))


def _findings(target: str) -> list[str]:
    """Return what `kafkalite log check` reports about the copy."""
    found = list(checking.check_root(target))
    for partition in checking.partitions_of(target):
        found += checking.check_partition(partition)
    return [f"{finding.path}: {finding.what}" for finding in found]


def _remove(target: str, *, itself: bool) -> None:
    """Remove the copy, with `backup.unfinished` as its last file."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(target), key=lambda name: name == files.BACKUP_UNFINISHED_NAME):
            path = f"{target}/{name}"
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
        if itself:
            os.rmdir(target)

"""Findings of `kafkalite check` about a machine, from given tables and figures."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from kafkalite.broker import host_check
from kafkalite.broker.host_check import LOOK, NOTE, OK, Mount, Row, file_system, judged_sync, mount_of, room
from kafkalite.cli import main
from kafkalite.errors import StartupError

MOUNTS = r"""/dev/vda / ext4 rw,relatime 0 0
tmpfs /run tmpfs rw 0 0
/dev/vdb /data xfs rw,noatime 0 0
/dev/vdc /data/a\040b nfs4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/database", "ext4"),
        ("/data", "xfs"),
        ("/data/kafkalite", "xfs"),
        ("/data/a b/c", "nfs4"),
        ("/run/x", "tmpfs"),
    ],
)
def test_the_nearest_mount_counts(path: str, kind: str) -> None:
    assert mount_of(path, MOUNTS).kind == kind


@pytest.mark.parametrize(
    ("kind", "options", "verdicts"),
    [
        ("ext4", "rw", [OK]),
        ("xfs", "rw", [OK]),
        ("btrfs", "rw", [NOTE]),
        ("tmpfs", "rw", [LOOK]),
        ("nfs", "rw", [LOOK]),
        ("nfs4.2", "rw", [LOOK]),
        ("ext4", "rw,nobarrier", [OK, LOOK]),
        ("ext4", "rw,barrier=0", [OK, LOOK]),
        ("ext4", "rw,data=writeback", [OK, NOTE]),
        ("ext4", "ro", [OK, LOOK]),
    ],
)
def test_file_systems(kind: str, options: str, verdicts: list[str]) -> None:
    found = list(file_system(Mount("/data", kind, frozenset(options.split(",")), "/dev/vdb")))
    assert [row.verdict for row in found] == verdicts
    assert all(bool(row.why) == (row.verdict != OK) for row in found)


@pytest.mark.parametrize(
    ("median_ms", "verdict"), [(0.001, LOOK), (0.06, OK), (1.0, OK), (19.0, OK), (25.0, NOTE), (900.0, NOTE)]
)
def test_a_sync_that_is_too_quick_or_too_slow(median_ms: float, verdict: str) -> None:
    assert judged_sync(median_ms, 2 * median_ms).verdict == verdict


@pytest.mark.parametrize(
    ("free_blocks", "free_inodes", "verdicts"),
    [(10**6, 10**6, [OK]), (10, 10**6, [LOOK]), (10**6, 10, [OK, LOOK]), (90_000, 10**6, [LOOK])],
    ids=["enough", "no bytes", "no inodes", "a small share"],
)
def test_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_blocks: int, free_inodes: int, verdicts: list[str]
) -> None:
    found = os.statvfs_result((65536, 65536, 10**6, free_blocks, free_blocks, 10**7, free_inodes, free_inodes, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    assert [row.verdict for row in room(str(tmp_path))] == verdicts


def test_low_limits_of_descriptors_and_file_size_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_NOFILE: (1024, 4096), resource.RLIMIT_FSIZE: (10_000_000, 10_000_000)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[which])
    rows = {row.what: row.verdict for row in host_check.limits()}
    assert (rows["open files"], rows["size of a file"]) == (LOOK, LOOK)


@pytest.mark.parametrize(("now", "state", "verdict"), [(1.8e9, 0, OK), (1.8e9, 5, NOTE), (86400.0, 0, LOOK)])
def test_clocks(monkeypatch: pytest.MonkeyPatch, now: float, state: int, verdict: str) -> None:
    monkeypatch.setattr(host_check.time, "time", lambda: now)
    monkeypatch.setattr(host_check, "_clock_state", lambda: state)
    assert [row.verdict for row in host_check.clock()] == [verdict]


def test_this_machine_is_looked_at_and_nothing_stays(tmp_path: Path) -> None:
    rows = host_check.look(str(tmp_path / "not" / "there" / "yet"))
    assert {"file system", "fdatasync of 4 KiB", "free space", "open files", "memory", "clock"} <= {
        row.what for row in rows
    }
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StartupError, match="is not writable"):
        host_check.look(str(tmp_path))


@pytest.mark.parametrize(("verdict", "status"), [(OK, 0), (NOTE, 0), (LOOK, 1)])
def test_the_status_tells_what_deserves_a_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verdict: str, status: int
) -> None:
    monkeypatch.setattr(host_check, "look", lambda _directory: [Row("thing", "this", verdict, "for a reason")])
    assert main(["check"]) == status
    assert "for a reason" in capsys.readouterr().out
    assert main(["check", "--json"]) == status
    assert f'"verdict":"{verdict}"' in capsys.readouterr().out

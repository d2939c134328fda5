"""Backups of running and stopped brokers: their content, file permissions and refusals."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.base.acls import AclOperation
from kafkalite.broker import Broker, backup
from kafkalite.broker.backup import BackupFailed, back_up, restore
from kafkalite.client import Client
from kafkalite.errors import StartupError
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.harness.acl_broker import AclBroker, rule
from tests.kit.harness.sasl_broker import SaslBroker
from tests.kit.processes.broker import limited, wait_until

SMALL = {"segment.bytes": "1000"}


def started(path: Path, **settings: object) -> Broker:
    broker = Broker(log_dirs=str(path), **settings)
    broker.start()
    return broker


def fill(broker: Broker, topic: str = "things", count: int = 60) -> None:
    with Client(broker.bootstrap_servers) as client:
        if topic not in broker.logs.topics:
            client.admin.create_topic(topic, 2, configs=SMALL)
        for number in range(count):
            client.produce(topic, number % 2, [b"%d" % number * 50])


def values(broker: Broker, topic: str = "things") -> list[bytes]:
    found = []
    for log in broker.logs.topics[topic].partitions:
        at = log.log_start_offset
        while at < log.log_end_offset:
            found.append(log.read(at, 1))
            at += 1
    return found


NAME = "0123456789abcdef" * 2
"""Of a request."""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Of a broker that stopped cleanly."""
    broker = started(tmp_path / "data")
    fill(broker)
    broker.stop()
    return tmp_path / "data"


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("things-0/*.log"))


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_what_was_there_is_in_it(tmp_path: Path, running: bool) -> None:
    broker = started(tmp_path / "data")
    fill(broker)
    before = values(broker)
    if not running:
        broker.stop()
    report = back_up(str(tmp_path / "data"), str(tmp_path / "copy"))
    assert report.checked
    assert report.findings == []
    assert report.linked_size > 0
    if running:
        broker.stop()
    copy = started(tmp_path / "copy")
    try:
        assert values(copy) == before
        assert not copy.logs.clean_start, "clients must notice a log that may be shorter"
        assert copy.logs.cluster_id
    finally:
        copy.stop()


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_full_segments_are_links_and_the_active_one_is_a_copy(tmp_path: Path, running: bool) -> None:
    broker = started(tmp_path / "data")
    fill(broker)
    if not running:
        broker.stop()
    back_up(str(tmp_path / "data"), str(tmp_path / "copy"))
    shared = [a.samefile(b) for a, b in zip(segments(tmp_path / "data"), segments(tmp_path / "copy"), strict=True)]
    back_up(str(tmp_path / "data"), str(tmp_path / "apart"), link=False)
    if running:
        broker.stop()
    assert len(shared) > 2
    assert all(shared[:-2])
    assert not shared[-1]
    pairs = zip(segments(tmp_path / "data"), segments(tmp_path / "apart"), strict=True)
    assert not any(a.samefile(b) for a, b in pairs)


def test_a_broker_on_the_copy_leaves_the_original_alone(tmp_path: Path, directory: Path) -> None:
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    back_up(str(directory), str(tmp_path / "copy"))
    copy = started(tmp_path / "copy")
    fill(copy)
    copy.stop()
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == {
        **before,
        directory / ".lock": (directory / ".lock").read_bytes(),
    }


def test_of_a_directory_after_a_kill_nothing_is_linked(tmp_path: Path, directory: Path) -> None:
    (directory / ".kafka_cleanshutdown").unlink()
    assert back_up(str(directory), str(tmp_path / "copy")).linked_size == 0


def test_it_is_for_its_owner_alone(tmp_path: Path, directory: Path) -> None:
    mask = os.umask(0)
    try:
        back_up(str(directory), str(tmp_path / "copy"), link=False)
    finally:
        os.umask(mask)
    wide = [path for path in (tmp_path / "copy").rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert wide == []
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


def test_users_come_along(tmp_path: Path) -> None:
    with SaslBroker(tmp_path) as broker:
        back_up(str(tmp_path / "data"), str(tmp_path / "again" / "data"))
        kept = dict(broker.broker.logs.metadata.credentials)
    copy = SaslBroker(tmp_path / "again")
    copy.broker.start()
    try:
        assert dict(copy.broker.logs.metadata.credentials) == kept
        with copy.connect() as client:
            assert client.scram("bob")[0].error_code == 0
        with copy.connect() as client:
            assert client.scram("bob", "a wrong one")[0].error_code != 0
    finally:
        copy.broker.stop()


def test_rules_come_along(tmp_path: Path) -> None:
    wanted = rule("reader", AclOperation.READ, resource="things")
    with AclBroker(tmp_path) as broker:
        broker.make_topic("things")
        broker.allow(wanted)
        back_up(str(Path(broker.broker.logs.directory)), str(tmp_path / "copy"))
    copy = started(tmp_path / "copy", authorizer_class_name=STANDARD_AUTHORIZER)
    try:
        assert copy.logs.metadata.acls() == [wanted]
    finally:
        copy.stop()


def test_restored_it_stays_as_it_is(tmp_path: Path, directory: Path) -> None:
    back_up(str(directory), str(tmp_path / "copy"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "copy").rglob("*.log")}
    restore(str(tmp_path / "copy"), str(tmp_path / "restored"))
    restored = started(tmp_path / "restored")
    try:
        assert len(values(restored)) == 60
    finally:
        restored.stop()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "copy").rglob("*.log")} == before


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda at: (at / "copy").mkdir() or (at / "copy" / "x").touch(), "not empty"),
        (lambda at: (at / "copy").touch(), "not empty"),
        (lambda at: (at / "copy").symlink_to(at / "data" / "inside"), "is inside"),
        (lambda at: (at / "data" / "metadata.journal").unlink(), "has no metadata.journal"),
        (lambda at: (at / "data" / "meta.properties").unlink(), "is not a data directory"),
        (lambda at: (at / "data" / "backup.unfinished").touch(), "an incomplete backup"),
    ],
    ids=["something there", "a file there", "inside", "no journal", "nothing to copy", "a half one"],
)
def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path: Path, directory: Path, make, sentence) -> None:
    make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StartupError, match=sentence):
        back_up(str(directory), str(tmp_path / "copy"))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_second_one_at_a_time_is_refused(tmp_path: Path) -> None:
    broker = started(tmp_path / "data")
    fd = os.open(tmp_path / "data" / "backup.request", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(StartupError, match="another backup"):
            back_up(str(tmp_path / "data"), str(tmp_path / "copy"))
    finally:
        os.close(fd)
        broker.stop()


def test_a_cut_of_an_earlier_request_is_repeated(tmp_path: Path) -> None:
    """A broker that polls while a backup removes its links makes them once more, for no request."""
    broker = started(tmp_path / "data")
    try:
        fill(broker)
        request, links = tmp_path / "data" / "backup.request", tmp_path / "data" / ".backup"
        with request.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(NAME)
            file.flush()
            wait_until((links / f"{NAME}.json").exists, 60, "the hard links")
            later = NAME[::-1]
            file.seek(0)
            file.write(later)
            file.flush()
            wait_until((links / f"{later}.json").exists, 60, "the links of the later one")
            assert not (links / f"{NAME}.json").exists()
    finally:
        broker.stop()


def test_links_of_one_that_was_killed_go(tmp_path: Path) -> None:
    broker = started(tmp_path / "data")
    try:
        fill(broker)
        request = tmp_path / "data" / "backup.request"
        with request.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(NAME)
            file.flush()
            wait_until((tmp_path / "data" / ".backup" / f"{NAME}.json").exists, 60, "the hard links")
        wait_until(lambda: not request.exists(), 60, "the broker to notice")
        assert not (tmp_path / "data" / ".backup").exists()
    finally:
        broker.stop()


def test_links_that_a_broker_finds_at_its_start_go(tmp_path: Path, directory: Path) -> None:
    (directory / ".backup" / "things-0").mkdir(parents=True)
    (directory / "backup.request").touch()
    broker = started(directory)
    try:
        wait_until(lambda: not (directory / "backup.request").exists(), 60, "the broker to notice")
        assert not (directory / ".backup").exists()
        assert len(values(broker)) == 60
    finally:
        broker.stop()


def test_a_broker_that_cannot_make_links_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = started(tmp_path / "data")
    fill(broker)

    def no_links(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted", target)

    monkeypatch.setattr("kafkalite.broker.log.disk.link", no_links)
    try:
        with pytest.raises(BackupFailed, match="could not create the hard links"):
            back_up(str(tmp_path / "data"), str(tmp_path / "copy"))
        assert not (tmp_path / "copy").exists()
        assert not (tmp_path / "data" / ".backup").exists()
    finally:
        broker.stop()


def test_a_lock_held_by_another_program_fails_the_backup(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock belongs to Apache Kafka, or to a release without backups."""
    monkeypatch.setattr(backup, "ANSWER_S_MAX", 0.2)
    holder = open(directory / ".lock", "r+")  # noqa: SIM115
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(BackupFailed, match="did not answer"):
            back_up(str(directory), str(tmp_path / "copy"))
    finally:
        holder.close()
    assert not (directory / "backup.request").exists()


def test_missing_disk_space_is_reported_before_copying(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((*real[:4], 0, *real[5:])))
    with pytest.raises(BackupFailed, match="has 0 bytes of free space"):
        back_up(str(directory), str(tmp_path / "copy"), link=False)
    assert not (tmp_path / "copy").exists()


def test_a_disk_that_fills_in_the_middle_leaves_nothing(tmp_path: Path, directory: Path) -> None:
    """A file size limit replaces the full disk: writing fails half-way, as it does there."""
    size = max(path.stat().st_size for path in directory.rglob("*.log"))
    command = [
        *limited(file_size=size - 1),
        sys.executable,
        "-B",  # Python would leave a truncated bytecode file, too, which a later process would load
        "-m",
        "kafkalite",
        "backup",
        str(tmp_path / "copy"),
        "--data-dir",
        str(directory),
        "--copy",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("kafkalite: File too large")
    assert not (tmp_path / "copy").exists()


def test_damage_of_the_original_is_reported_and_copied(tmp_path: Path, directory: Path) -> None:
    path = segments(directory)[0]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    report = back_up(str(directory), str(tmp_path / "copy"))
    assert any(path.name in finding and "damaged" in finding for finding in report.findings), report.findings
    assert not (tmp_path / "copy" / "backup.unfinished").exists()


@pytest.mark.slow
def test_records_are_appended_all_the_while(tmp_path: Path) -> None:
    """A record appended after the cut is not in the copy, even within a file that both have."""
    broker = started(tmp_path / "data")
    fill(broker)
    stopping = threading.Event()

    def go_on() -> None:
        while not stopping.is_set():
            fill(broker, count=10)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for number in range(5):
            report = back_up(str(tmp_path / "data"), str(tmp_path / f"copy-{number}"))
            assert report.findings == []
    finally:
        stopping.set()
        thread.join()
        broker.stop()
    counts = []
    for number in range(5):
        copy = started(tmp_path / f"copy-{number}")
        counts.append(len(values(copy)))
        copy.stop()
    assert counts == sorted(counts)
    assert counts[0] >= 60


def test_no_file_of_it_is_lost_by_deletion_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = started(tmp_path / "data")
    fill(broker)
    real = backup._fill

    def deleting(plan, target: str, *, link: bool):
        with Client(broker.bootstrap_servers) as client:
            client.admin.delete_topic("things")
        wait_until(lambda: not list((tmp_path / "data").glob("things-0*/*.log")), 90, "its files have gone")
        return real(plan, target, link=link)

    broker.logs.alter_broker({"log.segment.delete.delay.ms": "0"})
    monkeypatch.setattr(backup, "_fill", deleting)
    try:
        back_up(str(tmp_path / "data"), str(tmp_path / "copy"))
    finally:
        broker.stop()
    copy = started(tmp_path / "copy")
    try:
        assert len(values(copy)) == 60
    finally:
        copy.stop()


def test_command_says_what_was_made(tmp_path: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "kafkalite"]
    done = subprocess.run(
        [*command, "backup", str(tmp_path / "copy"), "--data-dir", str(directory)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "2 partitions" in done.stdout
    assert "verified" in done.stdout
    assert "node.id=1" in done.stdout
    shutil.rmtree(directory)
    done = subprocess.run(
        [*command, "restore", str(tmp_path / "copy"), "--data-dir", str(directory), "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["findings"] == []


def test_journal_that_is_shortened_meanwhile_is_copied_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalite.broker.log.journal.RUNNING_SLACK_LINES", 0)
    broker = started(tmp_path / "data")
    fill(broker)
    for number in range(10):
        broker.logs.alter_broker({"log.retention.ms": str(10_000_000 + number)})
    real = backup._fill

    def shortening(plan, target: str, *, link: bool):
        before = broker.logs.metadata.size()
        broker.logs.compact_journal()
        assert broker.logs.metadata.size() < before
        return real(plan, target, link=link)

    monkeypatch.setattr(backup, "_fill", shortening)
    try:
        back_up(str(tmp_path / "data"), str(tmp_path / "copy"))
    finally:
        broker.stop()
    copy = started(tmp_path / "copy")
    try:
        assert len(values(copy)) == 60
        assert copy.logs.config.log_retention_ms == 10_000_009
    finally:
        copy.stop()

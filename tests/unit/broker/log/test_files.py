"""The small files: Kafka's formats byte for byte, atomic replacement, what is forgiven on reading."""

import errno
import os
import stat
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.broker.log import checkpoints, files
from kafkalite.model import uuid_text
from tests.kit.harness import seams

pytestmark = pytest.mark.own_process

ID = bytes.fromhex("00112233445566778899aabbccddeeff")


def test_offset_checkpoint_is_kafkas(tmp_path: Path) -> None:
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    checkpoints.write_offsets(path, {("orders", 0): 17, ("a.b-c", 12): 0})
    assert Path(path).read_text() == "0\n2\norders 0 17\na.b-c 12 0\n"
    assert checkpoints.read_offsets(path) == {("orders", 0): 17, ("a.b-c", 12): 0}


@pytest.mark.parametrize(
    "text", ["\n", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n", "0\nmany\n", "\xff\n"]
)
def test_damaged_offset_checkpoint_counts_as_absent(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(text.encode("latin-1"))
    assert checkpoints.read_offsets(str(path)) is None
    assert checkpoints.read_offsets(str(tmp_path / "missing")) is None


def test_leader_epochs_are_kafkas(tmp_path: Path) -> None:
    path = str(tmp_path / "leader-epoch-checkpoint")
    checkpoints.write_epochs(path, [(0, 0), (3, 120)])
    assert Path(path).read_text() == "0\n2\n0 0\n3 120\n"
    assert checkpoints.read_epochs(path) == [(0, 0), (3, 120)]
    Path(path).write_text("0\n2\n3 0\n0 120\n")
    assert checkpoints.read_epochs(path) == [], "out of order"
    assert checkpoints.find_epochs(path) is None
    Path(path).write_text("0\n1\nx 3\n")
    assert checkpoints.find_epochs(path) is None


@pytest.mark.parametrize("text", ["", "0\n0\n"])
def test_checkpoint_without_entries_is_not_damaged(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    assert checkpoints.read_offsets(str(path)) == {}
    assert checkpoints.find_epochs(str(path)) == []
    assert not caplog.records


def test_partition_metadata_is_kafkas(tmp_path: Path) -> None:
    checkpoints.write_partition_topic_id(str(tmp_path), ID)
    assert (tmp_path / "partition.metadata").read_text() == f"version: 0\ntopic_id: {uuid_text(ID)}"
    assert checkpoints.read_partition_topic_id(str(tmp_path)) == ID
    for damaged in ("", "\0" * 51, "version: 1\ntopic_id: x", "version: 0\ntopic_id: short", "topic_id"):
        (tmp_path / "partition.metadata").write_text(damaged)
        with pytest.raises(checkpoints.MetadataDamaged):
            checkpoints.read_partition_topic_id(str(tmp_path))
    (tmp_path / "partition.metadata").unlink()
    assert checkpoints.read_partition_topic_id(str(tmp_path)) is None


def test_properties_skip_comments_and_keep_values_with_equals(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text("#\n#Mon Jan 01\ncluster.id=a=b\n version = 1 \n!x=y\nnonsense\n")
    assert checkpoints.read_properties(str(path)) == {"cluster.id": "a=b", "version": "1"}
    assert checkpoints.read_properties(str(tmp_path / "missing")) is None


@pytest.mark.parametrize("kind", ["open", "write", "sync", "rename"])
def test_failed_replacement_leaves_the_old_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    files.write_atomically(str(path), b"old", durable=True)
    seams.arm((kind,), after=0, error=errno.EIO, written=1)
    try:
        with pytest.raises(OSError, match="Input/output"):
            files.write_atomically(str(path), b"new", durable=True)
    finally:
        file_ops.disarm()
    assert path.read_bytes() == b"old"
    files.write_atomically(str(path), b"new", durable=True)
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="who gives files away is root")
@pytest.mark.parametrize("left_over", [False, True])
def test_a_file_that_is_replaced_is_its_owners_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_over: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.chown(path, 12345, 54321)
    if left_over:
        (tmp_path / "file.tmp").write_bytes(b"half")
        (tmp_path / "file.tmp").chmod(0o666)
    seen: list[tuple[int, int, int]] = []
    write, rename = file_ops.write_all, file_ops.rename

    def writing(fd: int, data: bytes, position: int) -> None:
        seen.append(rights(os.fstat(fd)))
        write(fd, data, position)

    def renaming(source: str, target: str) -> None:
        seen.append(rights(os.stat(source)))
        rename(source, target)

    monkeypatch.setattr(file_ops, "write_all", writing)
    monkeypatch.setattr(file_ops, "rename", renaming)
    files.write_atomically(str(path), b"new", durable=True, owned_as=path.stat())
    assert seen == [(12345, 54321, 0o640)] * 2
    assert (path.read_bytes(), rights(path.stat())) == (b"new", (12345, 54321, 0o640))


def test_who_had_opened_a_file_that_was_left_over_reads_nothing_of_the_one_that_is_given_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, temporary = tmp_path / "file", tmp_path / "file.tmp"
    path.write_bytes(b"old")
    path.chmod(0o640)
    temporary.write_bytes(b"half")
    seen: list[int] = []
    change = os.fchmod

    def changing(fd: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        change(fd, mode)

    monkeypatch.setattr(os, "fchmod", changing)
    with temporary.open("rb") as reader:
        files.write_atomically(str(path), b"secret", durable=True, owned_as=path.stat())
        assert reader.read() == b"half"
    assert (seen, path.read_bytes()) == ([0o600], b"secret")


def rights(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_a_file_that_cannot_be_given_to_its_owner_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    owner = os.stat_result([0o100640, 0, 0, 1, os.geteuid() + 1, os.getegid(), 3, 0, 0, 0])

    def refused(*_arguments: object) -> None:
        raise PermissionError(errno.EPERM, "not yours to give")

    monkeypatch.setattr(os, "fchown", refused)
    with pytest.raises(PermissionError, match="not yours"):
        files.write_atomically(str(path), b"new", durable=True, owned_as=owner)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t-0", ("t", 0)),
        ("a-b-12", ("a-b", 12)),
        ("t-0.0123456789abcdef0123456789abcdef-delete", None),
        ("t", None),
        ("-1", None),
        ("t-", None),
        ("t-99999999999", None),
    ],
)
def test_directory_names(name: str, expected: tuple[str, int] | None) -> None:
    assert files.parse_directory_name(name) == expected


def test_deleted_directory_names_fit_the_file_system() -> None:
    name = files.deleted_directory_name("x" * 249, 12)
    assert len(name) == 255
    assert files.DELETED_DIRECTORY_NAME.fullmatch(name)
    assert files.parse_directory_name(name) is None

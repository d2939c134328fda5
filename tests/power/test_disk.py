"""The disk model: the state a trace leaves, and the states a power cut may leave of it. Hand-made traces."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.power import states, trace
from tests.power.disk import KEEP_SIZE, PUNCH_HOLE, Disk
from tests.power.trace import Record, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.power.states import Tree

ROOT = "/r"
CREATE, DIRECTORY = os.O_CREAT | os.O_RDWR, os.O_DIRECTORY


class Tape:
    """Makes records, and plays them."""

    def __init__(self) -> None:
        self.disk = Disk(ROOT)
        self.place = trace.HEADER_SIZE
        self.fd = 2

    def add(
        self, kind: int, *, flags: int = 0, a: int = 0, b: int = 0, c: int = 0, path: str = "", data: bytes = b""
    ) -> int:
        self.place += 8
        self.disk.play(Record(self.place, kind, flags, 1, a, b, c, path, data))
        return self.place

    def open(self, path: str, flags: int = CREATE) -> int:
        self.fd += 1
        self.add(trace.OPEN, a=self.fd, b=flags, path=f"{ROOT}/{path}".rstrip("/"))
        return self.fd

    def write(self, fd: int, position: int, data: bytes) -> None:
        self.add(trace.WRITE, a=fd, b=position, c=len(data), data=data)

    def mkdir(self, path: str) -> None:
        self.add(trace.MKDIR, path=f"{ROOT}/{path}")

    def rename(self, source: str, target: str) -> None:
        self.add(trace.RENAME, path=f"{ROOT}/{source}", data=f"{ROOT}/{target}".encode())

    def unlink(self, path: str) -> None:
        self.add(trace.UNLINK, path=f"{ROOT}/{path}")

    def begin(self, fd: int, what: int = trace.FDATASYNC) -> int:
        return self.add(trace.SYNC_BEGIN, a=fd, b=what)

    def end(self, began: int, *, failed: bool = False) -> None:
        self.add(trace.SYNC_END, c=began, flags=trace.FLAG_FAILED if failed else 0)

    def sync(self, fd: int, what: int = trace.FDATASYNC) -> None:
        self.end(self.begin(fd, what))

    def sync_directory(self, path: str = "") -> None:
        self.sync(self.open(path, DIRECTORY), trace.FSYNC)

    def states(self, model: str, count: int = 400) -> list[Tree]:
        return [states.MODELS[model](self.disk, random.Random(i)) for i in range(count)]


@pytest.fixture
def tape() -> Tape:
    return Tape()


BOTH = pytest.mark.parametrize("model", ["posix", "ext4"])


def contents(found: list[Tree], path: str) -> set[bytes | str | None]:
    """Everything that a path held; "missing" among it where it was not there."""
    return {tree.get(path, "missing") for tree in found}


def test_series_of_removals_is_there_in_part_and_all_else_whole(tape: Tape) -> None:
    names = ("a", "b", "c", "d")
    for name in names:
        tape.write(tape.open(name), 0, b"content")
    tape.sync_directory()
    tape.rename("d", "e")
    assert not tape.disk.series(), "one is no series"
    tape.rename("a", "a.deleted")
    tape.unlink("b")
    tape.rename("c", "c.deleted")
    assert tape.disk.series() == [tape.disk.root]
    left = {tuple(name for name in names[:3] if name in tree) for tree in tape.states("series")}
    assert left >= {("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ()}
    assert contents(tape.states("series"), "a") > {b"content", "missing"}
    tape.sync_directory()
    assert not tape.disk.series()


def test_what_the_broker_sees(tape: Tape) -> None:
    tape.mkdir("d")
    fd = tape.open("d/a")
    tape.write(fd, 0, b"hello")
    tape.write(fd, 8, b"you")
    tape.add(trace.WRITE, a=fd, b=11, c=2, flags=trace.FLAG_ZEROS)
    tape.add(trace.TRUNCATE, a=fd, b=12)
    tape.add(trace.ALLOCATE, a=fd, b=0, c=100, flags=KEEP_SIZE)
    tape.add(trace.ALLOCATE, a=fd, b=0, c=2, flags=KEEP_SIZE | PUNCH_HOLE)
    tape.add(trace.SYMLINK, path=f"{ROOT}/link", data=b"d")
    tape.rename("d/a", "b")
    assert dict(tape.disk.read_tree()) == {"b": b"\0\0llo\0\0\0you\0", "d": None, "link": "d"}
    tape.unlink("b")
    assert dict(tape.disk.read_tree()) == {"d": None, "link": "d"}


@BOTH
def test_synced_bytes_under_a_synced_name_stay(tape: Tape, model: str) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"x" * 9000)
    tape.sync(fd)
    tape.sync_directory()
    assert contents(tape.states(model), "a") == {b"x" * 9000}


def test_posix_forgets_a_name_whose_directory_was_not_synced(tape: Tape) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"x")
    tape.sync(fd)
    assert contents(tape.states("posix"), "a") == {b"x", "missing"}
    assert contents(tape.states("ext4"), "a") == {b"x"}, "a sync of a new file commits its name"


def test_ext4_any_commit_takes_earlier_names_along_and_no_later_ones(tape: Tape) -> None:
    tape.open("before")
    fd = tape.open("synced")
    tape.sync(fd, trace.FSYNC)
    tape.open("first")
    tape.open("second")
    found = tape.states("ext4")
    assert contents(found, "before") == {b""}
    pairs = {("first" in tree, "second" in tree) for tree in found}
    assert pairs == {(False, False), (True, False), (True, True)}
    assert {("first" in tree, "second" in tree) for tree in tape.states("posix")} == pairs | {(False, True)}


def test_ext4_datasync_of_bytes_in_place_commits_no_names(tape: Tape) -> None:
    fd = tape.open("old")
    tape.write(fd, 0, b"1" * 100)
    tape.sync(fd)
    tape.open("young")
    tape.write(fd, 0, b"2" * 100)
    tape.sync(fd)
    assert contents(tape.states("ext4"), "young") == {b"", "missing"}
    tape.write(fd, 100, b"3")
    tape.sync(fd)
    assert contents(tape.states("ext4"), "young") == {b""}, "a file that grew needs the journal"


@BOTH
def test_sync_covers_what_came_before_it_began_and_counts_once_it_has_ended(tape: Tape, model: str) -> None:
    fd = tape.open("a")
    tape.sync_directory()
    tape.write(fd, 0, b"1" * 10)
    began = tape.begin(fd)
    tape.write(fd, 10, b"2" * 10)
    assert b"" in contents(tape.states(model), "a"), "it has not ended"
    tape.end(began)
    found = contents(tape.states(model), "a")
    assert b"" not in found
    assert {b"1" * 10, b"1" * 10 + b"2" * 10} <= found


@BOTH
def test_failed_sync_promises_nothing(tape: Tape, model: str) -> None:
    fd = tape.open("a")
    tape.sync_directory()
    tape.write(fd, 0, b"1")
    tape.end(tape.begin(fd), failed=True)
    assert b"" in contents(tape.states(model), "a")


@BOTH
def test_sync_of_a_file_that_was_closed_and_its_number_used_again(tape: Tape, model: str) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"1")
    tape.sync_directory()
    began = tape.begin(fd)
    tape.add(trace.CLOSE, a=fd)
    tape.add(trace.OPEN, a=fd, b=CREATE, path=f"{ROOT}/b")
    tape.end(began)
    assert contents(tape.states(model), "a") == {b"1"}


@BOTH
def test_sync_of_the_whole_file_system(tape: Tape, model: str) -> None:
    tape.mkdir("d")
    fd = tape.open("d/a")
    tape.write(fd, 0, b"1")
    tape.sync(tape.open("", DIRECTORY), trace.SYNCFS)
    assert {tuple(tree.items()) for tree in tape.states(model)} == {(("d", None), ("d/a", b"1"))}


@BOTH
def test_directory_that_is_not_named_takes_everything_with_it(tape: Tape, model: str) -> None:
    tape.mkdir("d")
    fd = tape.open("d/a")
    tape.write(fd, 0, b"1")
    if model == "posix":
        tape.sync(fd)
        tape.sync_directory("d")
    assert "missing" in contents(tape.states(model), "d/a")
    assert all("d/a" not in tree for tree in tape.states(model) if "d" not in tree)


def test_size_comes_before_content(tape: Tape) -> None:
    fd = tape.open("a")
    tape.sync_directory()
    tape.write(fd, 0, b"1" * 100)
    assert contents(tape.states("posix"), "a") >= {b"", b"1" * 100, bytes(100)}
    assert contents(tape.states("ext4"), "a") == {b"", b"1" * 100}


def test_pages_are_torn_at_512_bytes_and_nowhere_else(tape: Tape) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"1" * 8192)
    tape.sync(fd)
    tape.sync_directory()
    tape.write(fd, 0, b"2" * 8192)
    for model in ("posix", "ext4"):
        torn = 0
        for content in contents(tape.states(model), "a"):
            assert isinstance(content, bytes)
            pieces = {content[at : at + 512] for at in range(0, 8192, 512)}
            assert pieces <= {b"1" * 512, b"2" * 512}
            torn += content[:4096] not in {b"1" * 4096, b"2" * 4096}
        assert torn, model


def test_ext4_growth_comes_late_from_the_front_or_as_zeros_in_the_last_block(tape: Tape) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"1" * 100)
    tape.sync(fd)
    tape.write(fd, 100, b"2" * 9000)
    found = contents(tape.states("ext4", 2000), "a")
    sizes = {len(content) for content in found if isinstance(content, bytes)}
    assert sizes == {100, 4096, 8192, 9100}
    whole = b"1" * 100 + b"2" * 9000
    for content in found:
        assert isinstance(content, bytes)
        zeros = content[:100] + bytes(min(4096, len(content)) - 100) + content[4096:]
        assert content == whole[: len(content)] or content == zeros
    assert any(content != whole[: len(content)] for content in found if isinstance(content, bytes))


def test_ext4_rename_over_a_file_takes_the_bytes_along(tape: Tape) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"old")
    tape.sync(fd, trace.FSYNC)
    fd = tape.open("a.tmp")
    tape.write(fd, 0, b"new")
    tape.rename("a.tmp", "a")
    assert contents(tape.states("ext4"), "a") == {b"old", b"new"}
    assert b"" in contents(tape.states("posix"), "a")


def test_ext4_rename_to_a_new_name_does_not(tape: Tape) -> None:
    fd = tape.open("a.tmp")
    tape.write(fd, 0, b"new")
    tape.rename("a.tmp", "a")
    tape.sync_directory()
    assert contents(tape.states("ext4"), "a") == {b"", b"new"}


@BOTH
def test_rename_in_a_directory_is_there_as_a_whole_or_not_at_all(tape: Tape, model: str) -> None:
    tape.open("a")
    tape.sync_directory()
    tape.rename("a", "b")
    assert {("a" in tree, "b" in tree) for tree in tape.states(model)} == {(True, False), (False, True)}


def test_posix_renames_are_independent(tape: Tape) -> None:
    tape.open("a")
    tape.open("b")
    tape.sync_directory()
    tape.rename("a", "a.deleted")
    tape.rename("b", "b.deleted")
    assert {("a" in tree, "b" in tree) for tree in tape.states("posix")} == {
        (a, b) for a in (False, True) for b in (False, True)
    }
    assert (True, False) not in {("a" in tree, "b" in tree) for tree in tape.states("ext4")}


def test_ext4_file_is_cut_with_the_journal(tape: Tape) -> None:
    fd = tape.open("a")
    tape.write(fd, 0, b"1" * 100)
    tape.sync(fd)
    tape.add(trace.TRUNCATE, a=fd, b=10)
    tape.write(fd, 10, b"2" * 10)
    tape.open("later")
    found = tape.states("ext4")
    cut, kept = {b"1" * 10, b"1" * 10 + b"2" * 10, b"1" * 10 + bytes(10)}, b"1" * 100
    assert contents(found, "a") == cut | {kept}
    assert contents([tree for tree in found if "later" in tree], "a") <= cut


def test_state_is_drawn_by_its_number(tape: Tape) -> None:
    for i in range(20):
        fd = tape.open(f"{i}")
        tape.write(fd, 0, b"x" * 5000)
    for model in ("posix", "ext4"):
        first, second = tape.states(model, 50), tape.states(model, 50)
        assert first == second
        assert len({tuple(tree.items()) for tree in first}) > 10


def _unknown() -> Iterator[tuple[str, Callable[[Tape], object]]]:
    yield "a map that is written to", lambda tape: tape.add(trace.UNSUPPORTED, path="mmap")
    yield "a descriptor nobody opened", lambda tape: tape.write(99, 0, b"x")
    yield "a file that was never made", lambda tape: tape.open("a", os.O_RDWR)
    yield "a rename of nothing", lambda tape: tape.rename("a", "b")
    yield "a directory that was never made", lambda tape: tape.open("d/a")
    yield "another place", lambda tape: tape.add(trace.UNLINK, path="/elsewhere/a")


@pytest.mark.parametrize(("what", "do"), list(_unknown()))
def test_what_cannot_be_replayed_is_refused(tape: Tape, what: str, do: Callable[[Tape], object]) -> None:
    with pytest.raises(TraceError):
        do(tape)

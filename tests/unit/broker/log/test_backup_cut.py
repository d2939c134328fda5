"""An abandoned backup cut is removed, and a cut has all files that stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.log import backup_cut, disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "0123456789abcdef" * 2


@pytest.fixture
def request_fd(tmp_path: Path) -> Iterator[int]:
    """A request that a backup holds."""
    fd = os.open(tmp_path / "backup.request", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.pwrite(fd, NAME.encode(), 0)
    yield fd
    os.close(fd)


def links_made(tmp_path: Path) -> list[str]:
    return sorted(entry.name for entry in (tmp_path / ".backup").iterdir()) if (tmp_path / ".backup").exists() else []


def write_cut(links: str, path: str) -> None:
    os.mkdir(links)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{}")


def test_files_that_stay_are_linked_even_if_others_disappear_at_each_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the companion of a snapshot, a start on the copy cannot tell whether a .txnindex is missing."""
    source, links = tmp_path / "things-0", tmp_path / "links"
    source.mkdir()
    for offset in range(5):
        (source / f"{offset:020}.snapshot").touch()
    gone, *rest = disk.list_names(str(source))
    link = disk.link

    def link_those_that_stay(path: str, target: str) -> None:
        if path.endswith(gone):
            raise FileNotFoundError(path)
        link(path, target)

    monkeypatch.setattr("kafkalite.broker.log.disk.link", link_those_that_stay)
    core = SimpleNamespace(locked=contextlib.nullcontext)
    log = SimpleNamespace(topic="things", partition=0, directory=str(source), core=core, segments=())
    backup_cut.LinkedLog(log, str(links)).link()  # type: ignore[arg-type]  # the parts that it needs
    assert {path.name for path in (links / "things-0").iterdir()} == set(rest)


@pytest.mark.usefixtures("request_fd")
def test_a_cut_stays_while_a_backup_waits_for_it_and_is_made_once(tmp_path: Path) -> None:
    backup_cut.look(str(tmp_path), write_cut)
    assert links_made(tmp_path) == [f"{NAME}.json"]
    backup_cut.look(str(tmp_path), lambda links, path: pytest.fail("it is made already"))


def test_a_cut_whose_name_was_taken_back_while_it_was_made_is_removed(tmp_path: Path, request_fd: int) -> None:
    def make(links: str, path: str) -> None:
        os.ftruncate(request_fd, 0)
        write_cut(links, path)

    backup_cut.look(str(tmp_path), make)
    assert links_made(tmp_path) == []
    assert not (tmp_path / ".backup").exists()


def test_one_that_fails_since_its_links_were_removed_meanwhile_is_no_error(
    tmp_path: Path, request_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    def make(links: str, path: str) -> None:
        os.ftruncate(request_fd, 0)
        raise FileNotFoundError(links)

    backup_cut.look(str(tmp_path), make)
    assert caplog.records == []
    assert (tmp_path / "backup.request").exists()


def test_one_that_fails_is_refused_and_says_why(
    tmp_path: Path, request_fd: int, caplog: pytest.LogCaptureFixture
) -> None:
    def make(links: str, path: str) -> None:
        raise OSError("the disk is full")

    backup_cut.look(str(tmp_path), make)
    assert [record.message for record in caplog.records] == ["could not make a backup"]
    assert os.fstat(request_fd).st_nlink == 0

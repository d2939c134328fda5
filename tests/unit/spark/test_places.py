"""Where a target may be, and what is said of a place that is none."""

import contextlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from hdfs.util import HdfsError

from kafkalite.load import webhdfs
from kafkalite.load.local_disk import LocalDisk
from kafkalite.load.places import storage_of
from kafkalite.load.storage import LoadError
from kafkalite.load.webhdfs import WebHdfs, is_dead, parsed, this_process
from tests.kit.processes.broker import free_port


def test_a_path_says_which_storage(tmp_path: Path) -> None:
    assert isinstance(storage_of(tmp_path), LocalDisk)
    found = storage_of("webhdfs://namenode:9870/data/loaded/")
    assert isinstance(found, WebHdfs)
    assert found.place("a/b") == "webhdfs://namenode:9870/data/loaded/a/b"
    assert found.place(found.place("a/b")) == found.place("a/b")
    assert storage_of(found) is found
    assert pickle.loads(pickle.dumps(found)).location == found.location  # noqa: S301  # our own


def test_addresses_of_hdfs() -> None:
    assert parsed("webhdfs://namenode/data") == ("http://namenode:9870", "/data")
    assert parsed("swebhdfs://one,two:1234/data/x") == ("https://one:9871;https://two:1234", "/data/x")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("webhdfs:///data", "is not an HDFS URL"),
        ("webhdfs://me@namenode/data", "is not an HDFS URL"),
        ("webhdfs://namenode:port/data", "is not an HDFS URL"),
        ("webhdfs://namenode:9870/", "has no path"),
        ("hdfs://namenode:8020/data", "HDFS as webhdfs://NAMENODE:9870/PATH"),
        ("s3://bucket/data", "is a URL"),
    ],
)
def test_places_that_are_none(url: str, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        storage_of(url)


def test_an_hdfs_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "WAIT_S", 0.0)
    storage = storage_of(f"webhdfs://127.0.0.1:{free_port()}/data")
    for call in (
        lambda: storage.exists("x"),
        lambda: storage.names(""),
        lambda: storage.create("x"),
        lambda: storage.put("x", b""),
        lambda: storage.move("x", "y"),
    ):
        with pytest.raises(LoadError, match="does not respond"):
            call()


def test_whoever_holds_a_turn_is_known_by_more_than_his_number() -> None:
    mine = this_process()
    assert not is_dead(mine)
    assert is_dead({**mine, "started": "1"}), "another process has his number now"
    assert is_dead({**mine, "pid": 2**22})
    assert not is_dead({**mine, "host": "elsewhere", "pid": 2**22}), "nobody here knows"
    assert not is_dead({})


class LosesResponses:
    """An HDFS client that creates a file, while the connection breaks before the response."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.losses = 1

    def write(self, path: str, *, data: bytes, overwrite: bool) -> None:
        assert not overwrite
        if path in self.files:
            raise HdfsError(f"{path} already exists", exception="FileAlreadyExistsException")
        self.files[path] = data
        if self.losses:
            self.losses -= 1
            raise requests.exceptions.ConnectionError

    @contextlib.contextmanager
    def read(self, path: str, **_options: object) -> Iterator[list[bytes]]:
        if path not in self.files:
            raise HdfsError(f"{path} is missing", exception="FileNotFoundException")
        yield [self.files[path]]

    def status(self, path: str) -> dict[str, int]:
        return {"modificationTime": 1, "fileId": 1, "length": len(self.files[path])}

    def delete(self, path: str, **_options: object) -> bool:
        return self.files.pop(path, None) is not None


def test_a_turn_whose_creation_was_not_answered_is_recognized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "POLL_S", 0.0)
    storage, client = WebHdfs("webhdfs://namenode/data"), LosesResponses()
    storage._client = client
    with storage.turn("turn", 0.0):
        assert client.files
        with pytest.raises(LoadError, match="another load"), storage.turn("turn", 0.0):
            pytest.fail("two have a turn")
        assert client.files
    assert not client.files

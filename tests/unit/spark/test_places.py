"""Where a target may be, and what is said of a place that is none."""

import pickle
from pathlib import Path

import pytest

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

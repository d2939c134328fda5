"""`kafkalite load` without Spark: flags that cannot be meant, and compaction, which needs none."""

import argparse
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from kafkalite.cli import EXIT_USAGE, load, main
from kafkalite.load.manifest import Target
from kafkalite.load.storage import LoadError
from tests.kit.harness.load_target import add


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["load", *arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kafkalite: ")
    assert err.count("\n") == 1, "one sentence"
    return status, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--to"),
        (["--to", "x"], "no topic given"),
        (["--to", "x", "--topics", "("], "--topics: '(' is not a regular expression"),
        (["--to", "x", "--topics", "t", "--exclude", "["], "--exclude: '[' is not a regular expression"),
        (["--to", "x", "--topics", "t", "--subject", "s"], "--subject requires --avro"),
        (["--to", "x", "-t", "t", "--flatten", "_"], "--flatten requires --avro or --json-schema"),
        (["--to", "x", "-t", "t", "--partition-by", "offset"], "must be hour, day or a column of decoded values"),
        (["--to", "x", "-t", "t", "--partition-by", "a/b"], "must be hour, day or the name of a column, not 'a/b'"),
        (["--to", "x", "-t", "t", "--dead-letters", "d"], "--dead-letters requires --avro or --json-schema"),
        (["--to", "x", "-t", "t", "--json-schema", "a INT", "--avro", "http://x"], "cannot be used together"),
        (["--to", "x", "-t", "t", "--avro", "u", "--dead-letters", "t"], "t: this topic is loaded too"),
        (
            ["--to", "x", "-t", "t", "--avro", "u", "--dead-letters", "d", "--bad", "permissive"],
            "--bad cannot be used with --dead-letters",
        ),
        (
            ["--to", "x", "-t", "t", "--remote", "sc://x", "--master", "local[1]"],
            "--master cannot be used with --remote",
        ),
        (["--to", "webhdfs:///x", "-t", "t"], "is not an HDFS URL"),
        (["--to", "x", "--compact", "--follow", "1"], "--follow cannot be used with --compact"),
        (["--to", "x", "--topics", "t", "--follow", "0"], "'0' is not a positive number of seconds"),
        (["--to", "x", "--topics", "t", "--codec", "lzma"], "invalid choice: 'lzma'"),
        (["--to", "x", "--topics", "t", "--from", "yesterday"], "--from: 'yesterday' is not a time"),
        (["--to", "x", "--topics", "t", "--file-size", "0"], "'0' is not a whole number"),
        (["--to", "x", "--topics", "t", "-b", "host:port"], "--bootstrap-server"),
        (["--to", "s3://bucket/x", "--topics", "t"], "--to s3://bucket/x is a URL"),
        (["--to", "hdfs://host:8020/x", "--topics", "t"], "--to hdfs://host:8020/x is a URL"),
        (["--to", "file:///x", "--compact"], "--to file:///x is a URL"),
    ],
)
def test_flags_that_cannot_be_meant(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    status, err = failed(capsys, *arguments)
    assert status == EXIT_USAGE
    assert message in err


@pytest.mark.parametrize(
    ("sentence", "topic"),
    [
        ("offset 3 of orders-0 cannot be decoded", "orders"),
        ("offsets 1 to 2 of orders-eu-12 have aged out", "orders-eu"),
        ("topic orders was deleted and made anew", "orders"),
        ("orders.eu: it is not there.", "orders.eu"),
        ("unknown topic 'orders'.", "orders"),
        ("reorders-0 and orders-us-0 are others", None),
        ("the disk is full", None),
    ],
)
def test_which_topic_a_failure_is_about(sentence: str, topic: str | None) -> None:
    assert load.topic_named(sentence, ["orders", "orders-eu", "orders.eu"]) == topic


def test_a_path_made_of_a_url_is_no_target_either(tmp_path: Path) -> None:
    for path in (Path("s3://bucket/x"), "hdfs://host/x", "abfss://c@a/x"):
        with pytest.raises(LoadError, match="is a URL"):
            Target(path)
    for path in (tmp_path / "a:b", "./s3:/x", "C:/x"):
        Target(path)


def test_a_target_that_is_no_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, err = failed(capsys, "--to", str(tmp_path / "file"), "--topics", "t")
    assert status == EXIT_USAGE
    assert "not a directory" in err


def test_compaction_from_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert failed(capsys, "--to", str(tmp_path), "--compact")[0] == EXIT_USAGE
    for first in (0, 10):
        add(tmp_path, range(first, first + 10))
    assert main(["load", "--to", str(tmp_path), "--compact", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {name: told[name] for name in ("files_before", "files_after", "rows")} == {
        "files_before": 2,
        "files_after": 1,
        "rows": 20,
    }
    assert main(["load", "--to", str(tmp_path), "--compact"]) == 0
    assert capsys.readouterr().out.startswith("merged 0 files into 0: 0 records")


def test_following_ends_behind_the_load_that_a_signal_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[list[str]] = []

    class Runs:
        stopping = threading.Event()

        def load(self, topics: list[str]) -> None:
            loaded.append(topics)
            if len(loaded) == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(load, "topics_of", lambda _: ["t"])
    before = signal.getsignal(signal.SIGTERM)
    load.follow(argparse.Namespace(follow=0.01, avro=None), Runs())
    assert loaded[:3] == [["t"]] * 3
    assert signal.getsignal(signal.SIGTERM) is before

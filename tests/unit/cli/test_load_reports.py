"""`kafkalite load status` and `kafkalite load schema`."""

import json
from pathlib import Path

import pytest

from kafkalite.cli import EXIT_USAGE, main
from kafkalite.load.compaction import compact
from kafkalite.load.contents import files
from kafkalite.load.manifest import SNAPSHOT_EVERY, Change, Target
from tests.kit.harness.load_target import add, forget_schemas


def told(capsys: pytest.CaptureFixture[str], *words: str) -> object:
    assert main(["load", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_status_lists_the_hours_of_each_commit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    add(tmp_path, range(10), hour=1)
    add(tmp_path, range(5), hour=2, partition=1)
    add(tmp_path, range(10, 13), hour=1)
    status = told(capsys, "status", str(tmp_path))
    assert (status["commit"], status["records"], status["files"]) == (2, 18, 3)
    assert status["positions"] == {"t": {"0": 13, "1": 5}}
    hours = [
        [(h["topic"], h["date"], h["hour"], h["partitions"], h["records"]) for h in c["hours"]]
        for c in status["commits"]
    ]
    assert hours == [
        [("t", "1970-01-01", 1, [0], 10)],
        [("t", "1970-01-01", 2, [1], 5)],
        [("t", "1970-01-01", 1, [0], 3)],
    ], "the last one came late"
    assert [commit["number"] for commit in told(capsys, "status", str(tmp_path), "--since", "1")["commits"]] == [2]
    assert told(capsys, "status", str(tmp_path), "--since", "2")["commits"] == []
    compact(tmp_path)
    (last,) = told(capsys, "status", str(tmp_path), "--since", "2")["commits"]
    assert (last["kind"], last["records"], last["files"]) == ("compaction", 13, 1)
    assert main(["load", "status", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["t", "18"]
    assert lines[-1].split()[2:] == ["compaction", "13", "1", "t/1970-01-01/01"]


def test_commits_that_are_no_longer_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number in range(2 * SNAPSHOT_EVERY + 1):
        add(tmp_path, range(number, number + 1))
    listed = told(capsys, "status", str(tmp_path))["commits"]
    first = listed[0]["number"]
    assert 0 < first <= SNAPSHOT_EVERY
    assert [commit["number"] for commit in listed] == list(range(first, 2 * SNAPSHOT_EVERY + 1))
    assert len(told(capsys, "status", str(tmp_path), "--since", str(first - 1))["commits"]) == len(listed)
    assert main(["load", "status", str(tmp_path), "--since", "0"]) == EXIT_USAGE
    assert f"the manifests of commits 1 to {first - 1} are no longer in" in capsys.readouterr().err


def test_schema_merges_the_columns_of_all_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    add(tmp_path, range(2))
    add(tmp_path, range(2, 4), more={"extra": ["a", "b"]})
    (columns,) = told(capsys, "schema", str(tmp_path)).values()
    assert [(column["name"], column["type"]) for column in columns] == [
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("extra", "string"),
        ("date", "date32[day]"),
        ("hour", "int32"),
    ]
    assert main(["load", "schema", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["TOPIC", "COLUMN", "TYPE"]
    assert main(["load", "schema", str(tmp_path), "--format", "spark"]) == 0
    assert capsys.readouterr().out == (
        "`partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, `extra` STRING, `date` DATE, `hour` INT\n"
    )


def test_files_of_an_older_release_that_disagree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    add(tmp_path / "t", range(2), more={"extra": [1, 2]})
    add(tmp_path / "u", range(2, 4), more={"extra": ["a", "b"]})
    target = Target(tmp_path / "t")
    (file,) = files(tmp_path / "u")
    with target.writing():
        target.commit(
            Change("load", [file._replace(path="other.parquet")]), {"other.parquet": tmp_path / "u" / file.path}
        )
    forget_schemas(tmp_path / "t")
    assert main(["load", "schema", str(tmp_path / "t")]) == EXIT_USAGE
    error = "the files of t have columns of different types: column extra is string here, but int64 in the table"
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("action", ["status", "schema"])
def test_a_directory_without_a_load(capsys: pytest.CaptureFixture[str], tmp_path: Path, action: str) -> None:
    assert main(["load", action, str(tmp_path)]) == EXIT_USAGE
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"kafkalite: nothing has been loaded into {tmp_path} yet\n")

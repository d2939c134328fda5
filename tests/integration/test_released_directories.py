"""The data directory of every released version opens, with all that was in it; one of a newer version does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite.broker.log.journal import encode_line
from tests.directories.__main__ import REPOSITORY, Directory
from tests.directories.released import RELEASED, digests, unpack

pytestmark = pytest.mark.integration

VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in RELEASED.glob("*.tar.xz"))

ENDED = {
    "transactional id left-open",
    "transactions-1: watermarks",
    "transactions-1: stable, newest, at a time",
}
"""Changes by a transaction that was open when the directory was saved: its timeout has passed long ago."""


def test_every_release_of_the_changelog_is_kept() -> None:
    lines = (REPOSITORY / "CHANGELOG.md").read_text().splitlines()
    released = [line.split()[1] for line in lines if line.startswith("## ") and line[3].isdigit()]
    assert sorted(released) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_released_directory_opens(tmp_path: Path, version: str) -> None:
    kept = unpack(version, tmp_path)
    directory = Directory(tmp_path)
    broker = directory.broker(REPOSITORY)
    try:
        found = digests(directory.clients().look())
        assert {name for name in kept if found.get(name) != kept[name]} <= ENDED
        assert set(found) == set(kept)
    finally:
        broker.close()


def start(data: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "kafkalite",
        "start",
        "--data-dir",
        str(data),
        "--listeners",
        "kafka://127.0.0.1:0",
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("newer", ["format", "journal", "line"])
def test_what_a_newer_release_wrote_is_refused_in_one_sentence(tmp_path: Path, version: str, newer: str) -> None:
    unpack(version, tmp_path)
    data = tmp_path / "data"
    data.chmod(0o700)  # else there is a warning more
    properties, journal = data / "meta.properties", data / "metadata.journal"
    if newer == "format":
        properties.write_text(properties.read_text().replace("kafkalite.format=1", "kafkalite.format=2"))
    elif newer == "journal":
        _, _, rest = journal.read_bytes().partition(b"\n")
        journal.write_bytes(encode_line({"op": "format", "version": 2, "cluster_id": "x"}) + rest)
    else:
        journal.write_bytes(journal.read_bytes() + encode_line({"op": "an operation of tomorrow's"}))
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"}
    done = start(data)
    assert done.returncode == 2
    assert done.stderr.startswith("kafkalite: ")
    assert done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"} == before

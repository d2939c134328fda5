"""A topic that grows and a directory into which killed loads load it, counted by readers that know no manifests' code.

DuckDB counts the records, and finds each one once. In HDFS it counts copies of the files, fetched by plain HTTP.
"""

import getpass
import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from kafkalite.client import Client, ColumnReader
from kafkalite.failures.headers import letter_of
from kafkalite.load import contents
from kafkalite.load.manifest import MANIFESTS, STAGING, Target
from kafkalite.load.places import storage_of
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.processes import native_loader

PARTITIONS = 2
EACH_ROUND = 40
BAD_EVERY = 15
STAMP = 1_700_000_000_000
HOUR_MS = 3_600_000


class LoadScene:
    """A topic that grows, and what a load has made of it in `place`: a directory, or one of HDFS (webhdfs://…)."""

    def __init__(
        self, servers: str, client: Client, topic: str, folder: Path, place: str | None = None, layout: str = "hour"
    ) -> None:
        self.client = client
        self.topic = topic
        self.letters = f"{topic}-bad"
        self.place = place or str(folder / "loaded")
        self.names = folder / "names"
        self.words = [servers, topic, self.letters, self.place, str(self.names), layout]
        self._layout = layout
        self._outside = OutsideReader(self.place, folder / "copies")
        self._servers = servers
        self.count = 0
        """Of records in each partition."""

    def produce(self, size: int = 10) -> None:
        """More records, in two hours."""
        for partition in range(PARTITIONS):
            numbers = range(self.count, self.count + EACH_ROUND)
            sent = [Record(n, STAMP + n % 2 * HOUR_MS, None, self.value(n).ljust(size, b"."), ()) for n in numbers]
            self.client.produce(self.topic, partition, RecordColumns.from_records(sent), batch_size=1_000)
        self.count += EACH_ROUND

    def value(self, number: int) -> bytes:
        return b"%s %d" % (b"bad" if number % BAD_EVERY == 0 else b"good", number)

    def good(self, end: int) -> list[int]:
        return [number for number in range(end) if number % BAD_EVERY]

    def check_readers(self) -> int:
        """By the manifests: all good records below the positions, each once. How many."""
        if not storage_of(self.place).exists(MANIFESTS):
            return 0
        state = Target(self.place).refresh()
        wanted = [(key.partition, n) for key in sorted(state.positions) for n in self.good(state.positions[key])]
        assert self._outside.records(state.files) == wanted, "by the manifests"
        return len(wanted)

    def finish(self) -> None:
        """Load what is left."""
        native_loader.load(self._servers, self.topic, self.letters, storage_of(self.place), self._layout)

    def check_everything(self) -> None:
        """After one more load, for those who list directories, and in the topic of letters."""
        self.finish()
        listed = self._outside.listed()
        wanted = [(partition, n) for partition in range(PARTITIONS) for n in self.good(self.count)]
        assert self._outside.records(listed) == wanted, "in the directories"
        assert sorted(listed) == sorted(file.path for file in contents.files(self.place))
        assert [name for name in storage_of(self.place).names(MANIFESTS) if name.startswith("pending")] == []
        assert storage_of(self.place).names(STAGING) == []
        bad = [(partition, n) for partition in range(PARTITIONS) for n in range(0, self.count, BAD_EVERY)]
        assert sorted(self.letters_sent()) == bad, "dead letters"

    def letters_sent(self) -> Iterator[tuple[int, int]]:
        reader = ColumnReader(self.client, isolation_level="read_committed")
        for batch in reader.read(self.letters, 0, 0, self.client.end_offset(self.letters, 0)):
            for row in batch.to_pylist():
                letter = letter_of(tuple((header["key"], header["value"]) for header in row["headers"]))
                assert letter is not None
                yield letter.partition.partition, letter.offset


class OutsideReader:
    """The files of a directory, in HDFS too, without the code that is tested."""

    def __init__(self, place: str, copies: Path) -> None:
        self._place = place
        self._copies = copies

    def records(self, names: Any) -> list[tuple[int, int]]:
        """(partition, offset) of the records in these files, sorted, as DuckDB reads them."""
        paths = [self._path(name) for name in names]
        return sorted(duckdb.read_parquet(paths).project('"partition", "offset"').fetchall()) if paths else []

    def listed(self) -> list[str]:
        """Return the data files below topic=…, without looking at manifests."""
        if "://" not in self._place:
            return [str(path.relative_to(self._place)) for path in Path(self._place).glob("topic=*/**/*.parquet")]
        return list(self._below("", "topic="))

    def _below(self, folder: str, begin: str = "") -> Iterator[str]:
        rows = json.loads(self._get(folder, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        for row in rows:
            name = f"{folder}/{row['pathSuffix']}".lstrip("/")
            if row["pathSuffix"].startswith(begin):
                yield from self._below(name) if row["type"] == "DIRECTORY" else [name]

    def _path(self, name: str) -> str:
        if "://" not in self._place:
            return f"{self._place}/{name}"
        copy = self._copies / name.replace("/", "-")
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(self._get(name, "OPEN"))
        return str(copy)

    def _get(self, name: str, operation: str) -> bytes:
        parts = urllib.parse.urlsplit(self._place)
        path = urllib.parse.quote(f"{parts.path}/{name}")
        url = f"http://{parts.netloc}/webhdfs/v1{path}?op={operation}&user.name={getpass.getuser()}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            content: bytes = answer.read()
        return content

"""`kafkalite start --load`: what is produced is in files, each record once, whatever happens to the load."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from kafkalite.cli import UsageError
from kafkalite.cli.beside import load_beside
from kafkalite.client import Client
from kafkalite.load import contents
from kafkalite.load.storage import LoadError
from kafkalite.settings.broker import BrokerConfig
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

WAIT_S = 90


class Started:
    """A broker with a load, from the command line."""

    def __init__(self, directory: Path, *more: str) -> None:
        self.log = directory / "log"
        self.loaded = directory / "loaded"
        ready = directory / "ready"
        words = ["start", "--data-dir", str(directory / "data"), "--listeners", "kafka://127.0.0.1:0"]
        words += ["--ready-file", str(ready), "--load", str(self.loaded), "--load-options=--follow 0.2", *more]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kafkalite", *words], stdout=log, stderr=subprocess.STDOUT
            )
        wait_until(ready.exists, WAIT_S, "the broker is ready")
        self.servers = ready.read_text().strip()

    def load(self) -> int:
        """The process of the load that runs now; 0 without one."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        pids = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
        return pids[0] if pids else 0

    def count(self) -> int:
        """Records that the load has published."""
        with contextlib.suppress(LoadError):
            return sum(file.rows for file in contents.files(self.loaded))
        return 0

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(WAIT_S) == 0


def rows(folder: Path) -> list[tuple[str, int, bytes]]:
    """(topic, offset, value) of every file there, as another library finds them."""
    files = [str(path) for path in folder.glob("topic=*/**/*.parquet")]
    found = ds.dataset(files, partitioning="hive", partition_base_dir=str(folder)).to_table()
    return sorted(zip(*(found.column(name).to_pylist() for name in ("topic", "offset", "value")), strict=True))


def is_there(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@contextlib.contextmanager
def started(directory: Path, *more: str) -> Iterator[Started]:
    running = Started(directory, *more)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()


def test_each_record_is_loaded_once_although_the_load_is_killed(tmp_path: Path) -> None:
    wanted: list[tuple[str, int, bytes]] = []

    def produce(client: Client, topic: str) -> None:
        values = [b"%d" % number for number in range(50)]
        known = sum(name == topic for name, _, _ in wanted)
        client.produce(topic, 0, values)
        wanted.extend((topic, known + number, value) for number, value in enumerate(values))

    with started(tmp_path) as broker, Client(broker.servers) as client:
        for topic in ("orders", "payments"):
            client.admin.create_topic(topic, 1)
            produce(client, topic)
        wait_until(lambda: broker.count() == 100, WAIT_S, "the records are loaded")
        first = broker.load()
        os.kill(first, signal.SIGKILL)
        produce(client, "orders")
        wait_until(lambda: broker.count() == 150, WAIT_S, "the load is there again")
        second = broker.load()
        assert second not in {0, first}
        produce(client, "payments")
        wait_until(lambda: broker.count() == 200, WAIT_S, "the load continues")
        broker.stop()
        assert not is_there(second)
        assert "the load exited with status -9 and restarts in 1 s" in broker.log.read_text()
    assert rows(tmp_path / "loaded") == sorted(wanted)
    (tmp_path / "log").unlink()
    with started(tmp_path, "--load-topics", "pay.*") as broker, Client(broker.servers) as client:
        produce(client, "payments")
        wait_until(lambda: broker.count() == 250, WAIT_S, "the next broker continues")
        client.produce("orders", 0, [b"not loaded"])
        produce(client, "payments")
        wait_until(lambda: broker.count() == 300, WAIT_S, "only the topics that match are loaded")
        broker.stop()
    assert rows(tmp_path / "loaded") == sorted(wanted)
    assert "restarts" not in broker.log.read_text()


def test_it_ends_when_the_broker_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as broker:
        pid = wait_until(broker.load, WAIT_S, "the load runs")
        broker.process.kill()
        broker.process.wait(WAIT_S)
        wait_until(lambda: not is_there(pid), WAIT_S, "the load has ended")


@pytest.mark.parametrize(
    ("directory", "topics", "options", "listeners", "said"),
    [
        ("", None, None, "kafka://127.0.0.1:0", "--load must not be empty"),
        ("s3://bucket/x", None, None, "kafka://127.0.0.1:0", "--load s3://bucket/x is a URL"),
        (__file__, None, None, "kafka://127.0.0.1:0", "not a directory"),
        ("DATA/loaded", None, None, "kafka://127.0.0.1:0", "must not be in the data directory"),
        ("x", "(", None, "kafka://127.0.0.1:0", "--load-topics: '[(]' is not a regular expression"),
        ("x", None, "'", "kafka://127.0.0.1:0", "--load-options: No closing quotation"),
        ("x", None, "--nonsense", "kafka://127.0.0.1:0", "--load-options: unrecognized arguments: --nonsense"),
        ("x", None, "--compact", "kafka://127.0.0.1:0", "--load-options: --compact cannot be used with --load"),
        ("x", None, "status y", "kafka://127.0.0.1:0", "--load-options: a subcommand cannot be used with --load"),
        ("x", None, "-t orders", "kafka://127.0.0.1:0", "--load-options: --topic cannot be used with --load"),
        ("x", None, "--conf a=b", "kafka://127.0.0.1:0", "--load-options: --conf cannot be used with --load"),
        ("x", None, "--engine spark", "kafka://127.0.0.1:0", "--load-options: --engine spark cannot be used"),
        ("x", None, "--dead-letters bad", "kafka://127.0.0.1:0", "--load-options: --dead-letters requires --avro"),
        ("x", None, None, "kafka07://127.0.0.1:0", "run `kafkalite load` with --command-config instead"),
    ],
)
def test_what_could_not_work_is_said_at_once(
    directory: str, topics: str | None, options: str | None, listeners: str, said: str, tmp_path: Path
) -> None:
    config = BrokerConfig.load(overrides={"listeners": listeners, "log.dirs": str(tmp_path)})
    with pytest.raises(UsageError, match=said):
        load_beside(directory.replace("DATA", str(tmp_path)), topics, options, config)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = BrokerConfig.load(overrides={"log.dirs": str(tmp_path / "data")})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"^--load: Arrow record batches need pyarrow: .*arrow"):
        load_beside(str(tmp_path / "loaded"), None, None, config)

"""What tests of kafkalite.failures share: topics of numbered records, members until all is done, what is there then.

Records are read up to the high watermark, with transactions that are open waited for: markers of one that is committed
reach its partitions one by one, so that a reader to the last stable offset may miss what was said to be there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Self

from kafkalite.broker import Broker
from kafkalite.client import READ_COMMITTED, Client
from kafkalite.failures import Ledger, Policy, Runner, run
from kafkalite.failures.adapters.columnar import ColumnarPort
from kafkalite.failures.rows import UNDECIDED, Row, State
from kafkalite.model import TopicPartition
from kafkalite.wire.record.columns import Record
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kafkalite.failures import Message

TIMEOUT_S = 120.0


def small_broker(**settings: object) -> Broker:
    """One in this process, quick: it answers from the page cache, and has two partitions of offsets."""
    return Broker(**{"flush_on_acks_all": "false", "offsets_topic_num_partitions": 2, **settings})


def broker_process(directory: Path) -> BrokerProcess:
    """One to be killed."""
    return BrokerProcess(directory / "broker", {"offsets.topic.num.partitions": "2"})


def numbered_topic(client: Client, count: int, partitions: int = 1, keys: int = 5) -> str:
    """Create a topic with `count` numbered records in each partition."""
    topic = f"orders-{time.monotonic_ns()}"
    client.admin.create_topic(topic, partitions)
    for partition in range(partitions):
        values = [Record(-1, -1, b"k%d" % (n % keys), b"%d" % n, (("h", b"\xff"),)) for n in range(count)]
        client.produce(topic, partition, values)
    return topic


def records(client: Client, topic: str, partition: int = 0) -> list[Record]:
    """All that are committed."""
    chunks = client.read(topic, partition, end=client.end_offset(topic, partition), isolation=READ_COMMITTED)
    return [record for chunk in chunks for record in chunk.columns.records()]


def numbers(client: Client, topic: str) -> list[int]:
    """The values of a topic's first partition."""
    return [int(record.value or b"") for record in records(client, topic)]


def rows_of(client: Client, group: str) -> dict[str, Row]:
    """The ledger of a group, by record."""
    ledger = Ledger(client, group)
    ledger.refresh()
    return dict(ledger.records())


def states(client: Client, group: str) -> Counter[State]:
    """How many rows of the ledger there are of each state."""
    return Counter(row.state for row in rows_of(client, group).values())


def is_done(client: Client, group: str, ends: dict[TopicPartition, int], *, waiting: bool = True) -> bool:
    """Whether the group has handled all of these partitions, and has nothing waiting."""
    committed = client.groups.committed(group)
    done = all(key in committed and committed[key].offset >= end for key, end in ends.items())
    return done and not (waiting and UNDECIDED & states(client, group).keys())


def percentile(figures: Iterable[float], share: float) -> float:
    """The figure that so large a share of them is below; 0 where there are none."""
    found = sorted(figures)
    return found[int(len(found) * share)] if found else 0.0


class MemberThread:
    """A member in a thread of this process, with the client of this project. What ends it is raised at the end."""

    def __init__(self, bootstrap: str, policy: Policy, handler: Callable[[Message], object], **options: object) -> None:
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.runner: Runner | None = None
        self._thread = threading.Thread(target=self._run, args=(policy, handler, bootstrap, options))

    def _run(
        self, policy: Policy, handler: Callable[[Message], object], bootstrap: str, options: dict[str, object]
    ) -> None:
        try:
            run(policy, handler, bootstrap, stop=self._stop, **{"on_start": self._started, **options})
        except BaseException as error:  # noqa: BLE001  # raised in the waiting thread
            self._error = error

    def _started(self, runner: Runner) -> None:
        self.runner = runner

    def wait_until(self, condition: Callable[[], bool], what: str, pause_s: float = 0.1) -> None:
        """Until it holds, or the member has ended."""
        wait_until(lambda: self._error is not None or condition(), TIMEOUT_S, what, pause_s)

    @property
    def generation(self) -> int:
        """Which rebalance of its group it has come with."""
        assert self.runner is not None
        port = self.runner._port
        assert isinstance(port, ColumnarPort)
        return port.reader.group_metadata.generation

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None and (kind is None or kind is AssertionError):
            raise self._error


def play(bootstrap: str, policy: Policy, handler: Callable[[Message], object], count: int, **options: object) -> None:
    """Run one member until it has handled `count` records of the first partition of its first topic."""
    ends = {TopicPartition(policy.topics[0], 0): count}
    with Client(bootstrap) as client, MemberThread(bootstrap, policy, handler, **options) as member:
        member.wait_until(lambda: is_done(client, policy.group, ends), "all is handled")


class Script:
    """A program of a test's own, run as a process that may be killed and started again. Its output is kept."""

    def __init__(self, directory: Path, name: str, text: str, *words: str) -> None:
        self._directory = directory
        self._name = name
        path = directory / f"{name}.py"
        path.write_text(text)
        self._command = [sys.executable, str(path), *words]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with (self._directory / f"{self._name}.out").open("ab") as out:
            return subprocess.Popen(self._command, env=environment, stdout=out, stderr=out)

    def kill(self) -> None:
        """A SIGKILL; then it starts again."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def revive(self) -> None:
        """Restart the process if it has ended by itself, as a supervisor would."""
        if self.process.poll() is not None:
            self.process = self._start()

    def close(self) -> None:
        """A SIGTERM, and its end."""
        self.process.terminate()
        self.process.wait(60)

"""Kafka Streams counts words: repartition topic, state store with its changelog, both processing guarantees.

Each word's counts are all written, so what the output must be is known to the record: 1, 2, 3 … up to the word's
number. With exactly_once_v2 each comes once, even if the application and the broker are killed on the way.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
BUILD = REPOSITORY / "build" / "compat" / "streams"
PARTITION_COUNT = 2
LINE_COUNT = 2000
WORDS = [f"word-{number}" for number in range(20)]
DONE_TIMEOUT_S = 240
TOPIC = "lines"


@pytest.fixture(scope="module")
@alone()
def built(not_run: Callable[[str, str], NoReturn]) -> None:
    """Jars and the class file in build/compat/streams."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            not_run("Kafka Streams", f"{tool} is not on the PATH")
    done = BUILD / "complete"
    sources = [HERE / "pom.xml", HERE / "WordCount.java"]
    if done.exists() and done.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    fetch = ["mvn", "-q", "-B", "-f", str(sources[0]), "dependency:copy-dependencies", f"-DoutputDirectory={BUILD}/lib"]
    for command in (fetch, ["javac", "-cp", f"{BUILD}/lib/*", "-d", str(BUILD), str(sources[1])]):
        made = subprocess.run(command, capture_output=True, text=True, timeout=400)
        if made.returncode:
            not_run("Kafka Streams", made.stdout[-1000:] + made.stderr[-1000:])
    done.touch()


class Application:
    """The word count as a process that can be killed and started again with its state."""

    def __init__(self, bootstrap: str, guarantee: str, directory: Path, pause_ms: int) -> None:
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={directory}"]
        java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{BUILD}/lib/*:{BUILD}", "WordCount"]
        self._command = [*java, bootstrap, TOPIC, guarantee, str(directory / "state"), str(pause_ms)]
        self._log = directory / "streams.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", {"log.retention.check.interval.ms": "1000"}) as process:
        yield process


def fill(bootstrap: str) -> Counter[str]:
    """Lines of random words; how often each word is in them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = (TOPIC, f"{TOPIC}-counts")
    for future in admin.create_topics([NewTopic(name, PARTITION_COUNT, 1) for name in names]).values():
        future.result(30)
    draw, expected = random.Random(1), Counter()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(LINE_COUNT):
        words = draw.choices(WORDS, k=4)
        expected.update(words)
        producer.produce(TOPIC, " ".join(words).encode(), partition=number % PARTITION_COUNT)
    assert producer.flush(60) == 0
    return expected


def counts(bootstrap: str) -> dict[str, list[int]]:
    """Word → its counts in the order written, as a read_committed reader sees them now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    consumer.assign([TopicPartition(f"{TOPIC}-counts", number, 0) for number in range(PARTITION_COUNT)])
    found: dict[str, list[int]] = defaultdict(list)
    ended: set[int] = set()

    def at_end() -> bool:
        for message in consumer.consume(1000, 0.5):
            if message.error() is None:
                found[message.key().decode()].append(int.from_bytes(message.value(), "big"))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == PARTITION_COUNT

    wait_until(at_end, 60, "the end of the counts")
    consumer.close()
    return found


def written(bootstrap: str) -> int:
    return sum(map(len, counts(bootstrap).values()))


def reach(bootstrap: str, count: float) -> None:
    wait_until(lambda: written(bootstrap) >= count, DONE_TIMEOUT_S, f"{count:.0f} counts", 0.2)


def finished(bootstrap: str, expected: Counter[str]) -> bool:
    found = counts(bootstrap)
    return all(found[word] and found[word][-1] >= number for word, number in expected.items())


def check_internal_topics(bootstrap: str) -> None:
    """The changelog is compacted; the repartition topic is deleted from as it is read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(f"app-{TOPIC}")]
    (changelog,) = [name for name in names if name.endswith("-changelog")]
    (repartition,) = [name for name in names if name.endswith("-repartition")]
    resource = ConfigResource(ResourceType.TOPIC, changelog)
    assert admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value == "compact"
    asked = {TopicPartition(repartition, number): OffsetSpec.earliest() for number in range(PARTITION_COUNT)}

    def purged() -> bool:
        return all(future.result(30).offset > 0 for future in admin.list_offsets(asked).values())

    wait_until(purged, 60, "DeleteRecords on the repartition topic")


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_word_count(built: None, broker: BrokerProcess, tmp_path: Path, guarantee: str) -> None:
    expected = fill(broker.bootstrap)
    application = Application(broker.bootstrap, guarantee, tmp_path, pause_ms=0)
    application.start()
    try:
        wait_until(lambda: finished(broker.bootstrap, expected), DONE_TIMEOUT_S, "all words counted", 0.5)
        assert counts(broker.bootstrap) == {word: list(range(1, number + 1)) for word, number in expected.items()}
        check_internal_topics(broker.bootstrap)
        application.stop()
    finally:
        print(application.said())
        application.kill()


def test_exactly_once_while_application_and_broker_are_killed(
    built: None, broker: BrokerProcess, tmp_path: Path
) -> None:
    expected = fill(broker.bootstrap)
    total = sum(expected.values())
    application = Application(broker.bootstrap, "exactly_once_v2", tmp_path, pause_ms=2)
    application.start()
    try:
        for share, victim in ((0.1, "application"), (0.25, "broker"), (0.4, "application"), (0.6, "both")):
            reach(broker.bootstrap, share * total)
            if victim in ("application", "both"):
                application.kill()
            if victim in ("broker", "both"):
                broker.kill()
                broker.start()
            if victim in ("application", "both"):
                application.start()
        wait_until(lambda: finished(broker.bootstrap, expected), DONE_TIMEOUT_S, "all words counted", 0.5)
        assert counts(broker.bootstrap) == {word: list(range(1, number + 1)) for word, number in expected.items()}
        application.stop()
    finally:
        print(application.said())
        application.kill()

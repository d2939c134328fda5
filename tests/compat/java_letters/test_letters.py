"""Letters of Spring, Connect and Streams themselves are listed and go back; Spring and Connect read ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.failures import Message, Policy, RetryHere, run
from kafkalite.wire.record.columns import Record
from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY, wait_until

HERE = Path(__file__).parent
BUILD = REPOSITORY / "build" / "compat" / "letters"
TIMEOUT_S = 120
pytestmark = pytest.mark.slow
NAME = "Spring Kafka, Connect, Streams"
STAMP = 1_700_000_000_000

Java = Callable[..., list[str]]


@alone()
def build() -> None:
    """Build jars and class files in build/compat/letters, again when a source is newer."""
    done = BUILD / "complete"
    sources = [HERE / "pom.xml", HERE / "Letters.java"]
    if done.exists() and done.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    fetch = ["mvn", "-q", "-B", "-f", str(sources[0]), "dependency:copy-dependencies", f"-DoutputDirectory={BUILD}/lib"]
    compile_ = ["javac", "-cp", f"{BUILD}/lib/*", "-d", str(BUILD), str(sources[1])]
    for command in (fetch, compile_):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    done.touch()


@pytest.fixture(scope="module")
def java(not_run: Callable[[str, str], NoReturn]) -> Java:
    """`java(bootstrap, what, family, topic)` runs Letters; its lines."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            not_run(NAME, f"{tool} is not on the PATH (apt-get install openjdk-17-jdk-headless maven)")
    try:
        build()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        not_run(NAME, f"could not be built: {error} {getattr(error, 'stderr', '')}")

    def call(*words: str) -> list[str]:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{BUILD}/lib/*:{BUILD}"]
        done = subprocess.run([*command, "Letters", *words], capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout.splitlines()

    return call


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 2}
    with Broker(flush_on_acks_all="false", **settings) as broker, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("orders", 1)
        rows = [Record(-1, STAMP, b"k", b"%d" % number, (("trace", b"7"),)) for number in range(40)]
        client.produce("orders", 0, rows)
        yield broker


@pytest.mark.parametrize(
    ("family", "exception", "error"),
    [
        ("spring", "java.lang.IllegalStateException", "listener failed; no such customer"),
        ("connect", "java.lang.IllegalStateException", "no such customer"),
        ("streams", "java.lang.IllegalStateException", "no such customer"),
    ],
)
def test_their_letters_are_listed_and_go_back(
    broker: Broker, java: Java, capsys: pytest.CaptureFixture[str], family: str, exception: str, error: str
) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("theirs", 1)
        java(broker.bootstrap_servers, "write", family, "theirs")
        at = ("anybody", "--topic", "theirs", "-b", broker.bootstrap_servers)
        assert main(["letters", "list", *at, "--json"]) == 0
        (row,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert (row["record"], row["family"], row["exception"]) == ("orders-0-5", family, exception)
        assert error in row["error"]
        for sent in ("1 dead letter was sent\n", "0 dead letters were sent\n"):
            assert main(["letters", "redrive", *at, "--yes"]) == 0
            assert capsys.readouterr().out == sent
        (back,) = [one for chunk in client.read("orders", 0, 40) for one in chunk.columns.records()]
        assert (back.key, back.value) == (b"k", b"5")
        assert back.headers == (("trace", b"7"), ("dlq.redriven", b"1"))


def handle(record: Message) -> None:
    if record.value == b"5":
        raise ValueError("no such customer")


def test_they_read_our_letters(broker: Broker, java: Java) -> None:
    policy = Policy(
        group="billing", topics=["orders"], strategy=RetryHere(1, then="dead letter"), compat=("spring", "connect")
    )
    stop = threading.Event()
    with Client(broker.bootstrap_servers) as client:
        member = threading.Thread(target=run, args=(policy, handle, broker.bootstrap_servers), kwargs={"stop": stop})
        member.start()
        try:
            wait_until(lambda: len(client.topics()) > 3, TIMEOUT_S, "topics are made")
            wait_until(lambda: client.end_offset("dlq.billing.orders", 0) > 0, TIMEOUT_S, "the letter", 0.1)
        finally:
            stop.set()
            member.join()
    spring = java(broker.bootstrap_servers, "read", "spring", "dlq.billing.orders")
    assert spring == [
        "value=5",
        "kafka_dlt-original-topic=orders",
        "kafka_dlt-original-consumer-group=billing",
        "kafka_dlt-original-timestamp-type=CreateTime",
        "kafka_dlt-exception-fqcn=ValueError",
        "kafka_dlt-exception-message=no such customer",
        "kafka_dlt-original-partition=0",
        "kafka_dlt-original-offset=5",
        f"kafka_dlt-original-timestamp={STAMP}",
    ]
    connect = java(broker.bootstrap_servers, "read", "connect", "dlq.billing.orders")
    assert connect == [
        "value=5",
        *(
            f"__connect.errors.{name}={value}"
            for name, value in {
                "topic": "orders",
                "partition": "0",
                "offset": "5",
                "connector.name": "billing",
                "exception.class.name": "ValueError",
                "exception.message": "no such customer",
            }.items()
        ),
    ]

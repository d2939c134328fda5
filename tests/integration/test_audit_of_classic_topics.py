"""The paper's own case: topics of Kafka 0.7, without headers and keys, whose marks are in a field of the payload."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalite.audit import AuditedClassicConnector, AuditedClassicProducer
from kafkalite.broker import Broker
from kafkalite.classic import ConsumerConfig, ConsumerConnector, ProducerData
from kafkalite.cli import main
from kafkalite.client import Client
from tests.kit.processes.broker import wait_until
from tests.kit.processes.zookeeper import ZooKeeper

pytestmark = pytest.mark.integration

SCHEMA = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "page", "type": "string"}, {"name": "audit", "type": "string"}],
}


@pytest.fixture
def live() -> Iterator[Broker]:
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "log.flush.interval": 1,
        "flush.on.acks.all": False,
        "transaction.state.log.num.partitions": 1,
    }
    with Broker(settings) as running:
        yield running


@pytest.fixture
def offline() -> Iterator[Broker]:
    with Broker({"flush.on.acks.all": False, "transaction.state.log.num.partitions": 1}) as running:
        yield running


def classic(broker: Broker) -> dict[str, str]:
    assert broker.classic_endpoint is not None
    return {"broker.list": f"0:127.0.0.1:{broker.classic_endpoint.port}"}


def await_messages(client: Client, topic: str, count: int) -> None:
    """0.7 acknowledges nothing."""
    wait_until(lambda: topic in client.topics() and client.end_offset(topic, 0) > 0, 60, f"{topic} has something")
    wait_until(lambda: sum(len(c.columns) for c in client.read(topic, 0)) == count, 60, f"{count} in {topic}")


def audit(live: Broker, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Any]:
    capsys.readouterr()
    status = main(["audit", "--live", live.bootstrap_servers, "--json", "-q", "--grace", "0", *options])
    return status, json.loads(capsys.readouterr().out)


def test_one_message_that_a_mirror_lost_is_named_within_its_window(
    live: Broker, offline: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    live.create_topic("clicks", 1, message_format="classic")
    with AuditedClassicProducer(classic(live), mark_field="audit", server="web1", window_s=0.001) as producer:
        for at in range(20):
            producer.send(
                ProducerData("clicks", [b'{"page": "/%d"}' % (10 * at + row) for row in range(10)], partition=0)
            )
    with Client(live.bootstrap_servers) as source, Client(offline.bootstrap_servers) as target:
        await_messages(source, "clicks", 200)
        await_messages(source, "kafkalite.audit.classic", 1)
        target.admin.create_topic("clicks", 1)
        (chunk,) = list(source.read("clicks", 0))
        kept = np.delete(np.arange(200), 123)
        target.produce("clicks", 0, chunk.columns.chosen(kept))
    whole = ("--mark-field", "clicks=audit")
    assert audit(live, capsys, *whole)[0] == 0
    status, found = audit(live, capsys, *whole, "--offline", offline.bootstrap_servers)
    (difference,) = found["differences"]
    assert (status, difference["stage"], difference["server"], difference["missing"]) == (1, "offline", "web1", 1)
    assert difference["expected"] < 200  # it is one window of several
    assert [row["missing"] for row in found["messages"]] == [[[123, 123]]]


def test_a_mirror_copies_all_of_a_topic_of_07_and_avro_s_field_is_read(
    live: Broker, offline: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def put(page: str, mark: str) -> bytes:
        """Avro's strings of less than 64 bytes: their length, doubled, and the text."""
        return b"".join(bytes([2 * len(text)]) + text.encode() for text in (page, mark))

    schema = tmp_path / "visit.avsc"
    schema.write_text(json.dumps(SCHEMA))
    live.create_topic("visits", 1, message_format="classic")
    with AuditedClassicProducer(classic(live), put=put, server="web1", window_s=0.5) as producer:
        producer.send(ProducerData("visits", [f"/{at}" for at in range(50)], partition=0))
    both = ["--from", live.bootstrap_servers, "--to", offline.bootstrap_servers]
    with Client(live.bootstrap_servers) as source:
        await_messages(source, "visits", 50)
        await_messages(source, "kafkalite.audit.classic", 1)
    assert main(["mirror", *both, "--name", "all", "--topics", "visits", "-e", "-q"]) == 0
    with Client(offline.bootstrap_servers) as target:
        wait_until(
            lambda: target.end_offset("visits", 0, isolation=1) == target.end_offset("visits", 0), 60, "it is committed"
        )
    options = ["--mark-field", "audit", "--mark-schema", f"visits={schema}", "--topics", "visits"]
    wait_until(
        lambda: main(["audit", "--live", live.bootstrap_servers, *options, "--grace", "0"]) != 2, 120, "a minute"
    )
    status, found = audit(live, capsys, *options, "--offline", offline.bootstrap_servers, "--mirror", "all")
    assert (status, found["expected"], list(found["stages"])) == (0, 50, ["live", "mirror", "offline"])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--registry", "http://127.0.0.1:1"], "--registry requires --mark-field"),
        (["--mark-schema", "a=b"], "--mark-schema requires --mark-field"),
        (["--mark-field", "a=b", "--mark-field", "a=c"], "once per topic"),
        (["--mark-field", "="], "expected [TOPIC=]VALUE"),
        (["--mark-field", "a", "--mark-schema", "/no/such"], "No such file"),
        (["--mark-field", "a", "--mark-schema", "SCHEMA"], "the schema is not valid JSON"),
        (["--mark-field", "a", "--registry", "nonsense"], "--registry"),
    ],
)
def test_flags_that_cannot_be(options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schema"
    file.write_text("{")
    given = [str(file) if word == "SCHEMA" else word for word in options]
    assert main(["audit", "--live", "127.0.0.1:1", *given]) == 2
    assert why in capsys.readouterr().err


def takes(made: ConsumerConnector, count: int) -> None:
    """Take `count` messages and commit them."""
    with made as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        for _ in range(count):
            next(stream)
        connector.commit_offsets()


@pytest.mark.slow
@pytest.mark.zookeeper
def test_consumers_of_the_old_kind_are_a_stage_and_what_they_passed_over_is_missing(
    zookeeper: ZooKeeper, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three members of one group after each other, of which the second does not say what it took."""
    settings = {
        "listeners": "kafka://127.0.0.1:0,kafka07://127.0.0.1:0",
        "log.flush.interval": "1",
        "node.id": "0",
        "zookeeper.connect": zookeeper.address,
    }
    group = ConsumerConfig(groupid="hadoop", zk_connect=zookeeper.address, auto_offset_reset="smallest")
    with Broker(settings) as live, Client(live.bootstrap_servers) as client:
        live.create_topic("clicks", 1, message_format="classic")
        with AuditedClassicProducer({"zk.connect": zookeeper.address}, mark_field="audit", window_s=0.001) as producer:
            for at in range(200):
                producer.send(ProducerData("clicks", [b'{"page": "/%d"}' % at]))
        await_messages(client, "clicks", 200)
        options = ("--consumer", "hadoop", "--mark-field", "clicks=audit")
        takes(AuditedClassicConnector(group), 100)
        takes(ConsumerConnector(group), 10)
        takes(AuditedClassicConnector(group), 90)
        wait_until(lambda: len(list(client.read("kafkalite.audit.classic", 0))) > 0, 60, "reports")
        status, told = audit(live, capsys, *options)
        assert (status, {row["stage"] for row in told["differences"]}) == (1, {"hadoop"})
        missing = sorted(
            number for row in told["messages"] for span in row["missing"] for number in range(span[0], span[1] + 1)
        )
        assert missing == list(range(100, 110))

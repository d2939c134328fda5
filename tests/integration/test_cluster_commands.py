"""`kafkalite cluster describe|move|elect|retire` over a cluster of Apache Kafka's own brokers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.model import TopicPartition
from kafkalite.placement.moving import THROTTLED, Mover, is_throttled
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.slow

WAIT_S = 120
RACKS = {1: "a", 2: "b", 3: "b"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, KafkaBroker]]:
    directory = tmp_path_factory.mktemp("cluster")
    with KafkaController(directory / "controller") as controller:
        brokers = {
            number: KafkaBroker(
                directory / f"broker-{number}",
                node_id=number,
                controller_port=controller.controller_port,
                cluster_id=controller.cluster_id,
                settings={"broker.rack": rack},
                java_options=("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            )
            for number, rack in RACKS.items()
        }
        try:
            for broker in brokers.values():
                broker.launch()
            for broker in brokers.values():
                broker.wait_ready(WAIT_S)
            yield brokers
        finally:
            for broker in brokers.values():
                broker.close()


def asked(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, object]:
    capsys.readouterr()
    assert main(["cluster", *arguments, "--json"]) == status
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def replicas(client: Client, topic: str) -> list[tuple[int, ...]]:
    return [partition.replicas for partition in client.topic(topic).partitions]


def test_a_cluster_is_raised_drained_spread_and_shrunk(
    cluster: dict[int, KafkaBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = ("-b", cluster[1].bootstrap)
    with Client(cluster[1].bootstrap) as client:
        wait_until(lambda: len(client.brokers()) == len(RACKS), WAIT_S, "all brokers are in service")
        client.admin.create_topic("events", 6, replication_factor=1)
        client.admin.create_topic("other", 1, replication_factor=1)
        for number in range(6):
            client.produce("events", number, [b"x" * 500] * 200)

        found = asked(capsys, "describe", *bootstrap)
        assert [(each["id"], each["rack"], each["fenced"]) for each in found["brokers"]] == [  # type: ignore[index,attr-defined]
            (number, rack, False) for number, rack in RACKS.items()
        ]
        assert found["partitions"] == 7
        assert not found["under_replicated"]
        assert not found["unknown"]
        assert [each["node_id"] for each in found["quorum"]["voters"]] == [3000]  # type: ignore[index,call-overload]

        plan = asked(capsys, "move", *bootstrap, "--topic", "events", "--replication-factor", "2", "--dry-run")
        assert plan["copies"] == 6
        assert plan["size"] > 6 * 200 * 500  # type: ignore[operator]
        assert all(len(row) == 1 for row in replicas(client, "events"))

        command = ("move", *bootstrap, "--topic", "events", "--replication-factor", "2", "--throttle", "50000000")
        moved = asked(capsys, *command, "--at-once", "2")
        assert len(moved["moved"]) == 6  # type: ignore[arg-type]
        assert all(len({RACKS[broker] for broker in row}) == 2 for row in replicas(client, "events"))
        assert len(replicas(client, "other")[0]) == 1
        assert not is_throttled(client)
        assert not [
            entry
            for entry in client.admin.describe_topic_configs("events")
            if "throttled" in entry.name and entry.source == "topic"
        ]

        asked(capsys, "move", *bootstrap, "--drain", "3")
        assert not any(3 in row for topic in ("events", "other") for row in replicas(client, topic))
        assert asked(capsys, "describe", *bootstrap)["brokers"][2]["replicas"] == 0  # type: ignore[index]

        asked(capsys, "move", *bootstrap, "--spread")
        held = Counter(broker for topic in ("events", "other") for row in replicas(client, topic) for broker in row)
        assert held[1] == 6 or held[1] == 7, "each partition has one in rack a"
        assert abs(held[2] - held[3]) <= 1
        wait_until(lambda: not asked(capsys, "describe", *bootstrap)["not_preferred"], WAIT_S, "preferred leaders lead")

        asked(capsys, "move", *bootstrap, "--replication-factor", "1")
        assert all(len(row) == 1 for row in replicas(client, "events"))
        for number in range(6):
            assert client.end_offset("events", number) == 200


def test_what_is_under_way_is_taken_back_or_gone_on_with(
    cluster: dict[int, KafkaBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = ("-b", cluster[1].bootstrap)
    with Client(cluster[1].bootstrap) as client:
        client.admin.create_topic("large", 1, replication_factor=1)
        value = bytes(range(256)) * 400
        for _ in range(20):
            client.produce("large", 0, [value] * 5)
        key = TopicPartition("large", 0)
        before = replicas(client, "large")[0]
        target = tuple(number for number in RACKS if number not in before)[:1]

        def interrupted(_progress: object) -> None:
            raise KeyboardInterrupt

        mover = Mover(client, {key: before}, {key: target}, throttle=1000, told=interrupted)
        with pytest.raises(KeyboardInterrupt):
            mover.run()
        assert asked(capsys, "describe", *bootstrap)["moving"] == {
            "large-0": {"adding": list(target), "removing": list(before)}
        }
        assert asked(capsys, "move", *bootstrap, "--cancel")["taken_back"] == ["large-0"]
        assert replicas(client, "large")[0] == before
        assert not is_throttled(client)

        # Of one that has come to its end by itself.
        client.admin.alter_topic_configs("large", dict.fromkeys(THROTTLED, "0:1"))
        assert asked(capsys, "move", *bootstrap, "--cancel")["taken_back"] == []
        own = [row.name for row in client.admin.describe_topic_configs("large", THROTTLED) if row.source == "topic"]
        assert not own

        with pytest.raises(KeyboardInterrupt):
            Mover(client, {key: before}, {key: target}, throttle=1000, told=interrupted).run()
        asked(capsys, "move", *bootstrap, "--drain", str(before[0]), "--throttle", "100000000")
        assert replicas(client, "large")[0] == target
        assert not is_throttled(client)


def test_a_stopped_broker_is_retired(cluster: dict[int, KafkaBroker], capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap = ("-b", cluster[1].bootstrap)
    assert main(["cluster", "retire", "3", *bootstrap]) == 2
    asked(capsys, "move", *bootstrap, "--drain", "3")
    assert main(["cluster", "retire", "3", *bootstrap]) == 2
    assert "is running; stop it first" in capsys.readouterr().err
    cluster[3].stop()

    def fenced() -> bool:
        rows = asked(capsys, "describe", *bootstrap)["brokers"]
        return any(each["id"] == 3 and each["fenced"] for each in rows)  # type: ignore[attr-defined]

    wait_until(fenced, WAIT_S, "broker 3 is out of service")
    assert asked(capsys, "retire", *bootstrap, "3") == {"retired": 3}
    assert [each["id"] for each in asked(capsys, "describe", *bootstrap)["brokers"]] == [1, 2]  # type: ignore[attr-defined]


def test_what_cannot_be_is_refused_in_a_sentence(
    cluster: dict[int, KafkaBroker], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = ("-b", cluster[1].bootstrap)
    for arguments, why in (
        ((), "nothing to move"),
        (("--cancel", "--spread"), "--cancel cancels moves"),
        (("--replication-factor", "9"), "9 replicas"),
        (("--spread", "--topic", "nothing"), "no topic matches"),
        (("--spread", "--topic", "("), "--topic ("),
        (("--spread", "--brokers", "1,x"), "expected ids"),
    ):
        assert main(["cluster", "move", *bootstrap, *arguments]) == 2
        assert why in capsys.readouterr().err
    assert main(["cluster", "move", *bootstrap, "--drain", "77"]) == 1
    assert "broker 77 does not exist" in capsys.readouterr().err

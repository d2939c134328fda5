"""Measure how long a producer cannot write when a leader fails, for kafkalite and Apache Kafka in one cluster.

`python -m benchmarks.failover [--rounds 7] [--replicas 3]` starts a controller of Apache Kafka, two kafkalite brokers
and two Apache Kafka brokers on this machine. One topic is led by kafkalite, before and after the failure, and another
by Apache Kafka. Its third replica is on a broker of the other kind. With `--replicas 2` there is none, and the new
leader waits for no replica.

A producer writes to each topic with acks=all and one record in flight, and looks up the leader again 2 ms after an
error. In turns, the leader gets kill -9 or SIGTERM. The result is the longest time between two acknowledgements. The
broker is then restarted, and leads again.

After kill -9 the controllers must first detect the failure. This takes up to `broker.session.timeout.ms` (3 s here)
from the last heartbeat (every 0.5 s). Results with three replicas are written to benchmarks/results/failover.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.path.harness import Row, write_result
from kafkalite.client.connection import Connection
from kafkalite.client.errors import ClientError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkalite.wire.protocol.messages.elect_leaders import ElectLeadersRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.kit.harness.log_harness import make_batch
from tests.kit.processes.apache_kafka import HEAP, KafkaBroker, KafkaController
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until

SESSION_MS = 3000
RETRY_S = 0.002
SETTLE_S = 1.0
WAIT_S = 300
OURS, JAVA = "kafkalite", "Apache Kafka"
KINDS = ("kill -9", "SIGTERM")
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Writer:
    """Writes one record after the other to one partition, whichever broker leads it. It asks `broker` for the
    leader."""

    def __init__(self, topic: str, port: int) -> None:
        self.acknowledged: list[float] = []
        self._topic, self._port = topic, port
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Stop; return the longest time between two acknowledgements in seconds."""
        self._stopping = True
        self._thread.join()
        times = self.acknowledged
        return max(after - before for before, after in itertools.pairwise(times))

    def _run(self) -> None:
        while not self._stopping:
            with contextlib.suppress(ClientError, LookupError):
                self._write()
            time.sleep(RETRY_S)

    def _write(self) -> None:
        """Write until an error occurs."""
        found = metadata(self._port, self._topic)
        ports = {each.node_id: each.port for each in found.brokers}
        port, topic_id = ports[found.topics[0].partitions[0].leader_id], found.topics[0].topic_id
        data = [PartitionProduceData(index=0, records=make_batch())]
        request = ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
        )
        with contextlib.closing(Connection.connect("127.0.0.1", port, client_id="writer")) as leader:
            while not self._stopping:
                answer = leader.request(api.PRODUCE, request)
                if answer.responses[0].partition_responses[0].error_code:
                    return
                self.acknowledged.append(time.monotonic())


@dataclass
class Side:
    """Brokers of one kind: `leader` is the one that fails; `asked` is the other, which leads then."""

    name: str
    topic: str
    leader: BrokerProcess | KafkaBroker
    asked: BrokerProcess | KafkaBroker
    times: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def leaders(self) -> set[int]:
        """Return the ids of the leaders of all partitions; -1 for none."""
        found = metadata(self.asked.port, self.topic).topics[0].partitions
        return {each.leader_id for each in found}

    def whole(self) -> bool:
        """Return whether all replicas are in sync."""
        found = metadata(self.asked.port, self.topic).topics[0].partitions
        return bool(found) and all(len(each.isr_nodes) == len(each.replica_nodes) for each in found)

    def round(self, kind: str, number: int) -> None:
        """Stop the leader and restart it."""
        writer = Writer(self.topic, self.asked.port)
        wait_until(lambda: len(writer.acknowledged) > 100, WAIT_S, "records are written")
        time.sleep(SETTLE_S)
        process = self.leader.process
        assert process is not None
        count = len(writer.acknowledged)
        (process.kill if kind == KINDS[0] else process.terminate)()
        wait_until(lambda: process.poll() is not None, WAIT_S, "it ends")
        wait_until(lambda: not self.leaders() & {-1, number}, WAIT_S, "another one leads")
        count = max(count, len(writer.acknowledged))
        wait_until(lambda: len(writer.acknowledged) > count + 50, WAIT_S, "records are written again")
        self.times[kind].append(writer.stop())
        self.leader.launch()
        self.leader.wait_ready(WAIT_S)
        wait_until(self.whole, WAIT_S, "all are in sync", 0.1)
        lead_again(self.asked.port)
        wait_until(lambda: self.leaders() == {number}, WAIT_S, "it leads again", 0.1)


def ask(port: int, key: int, request: object) -> Any:
    with contextlib.closing(Connection.connect("127.0.0.1", port, client_id="benchmark")) as connection:
        return connection.request(key, request)


def metadata(port: int, topic: str) -> MetadataResponse:
    found: MetadataResponse = ask(port, api.METADATA, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    return found


def lead_again(port: int) -> None:
    """Wait until each partition is led by its preferred leader."""
    ask(port, api.ELECT_LEADERS, ElectLeadersRequest(election_type=0, topic_partitions=None))


def make_topic(port: int, name: str, replicas: list[int], partitions: int) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=n, broker_ids=replicas) for n in range(partitions)]
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=assignments,
        configs=[CreatableTopicConfig(name="min.insync.replicas", value=str(len(replicas) - 1))],
    )
    (made,) = ask(port, api.CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics
    if made.error_code:
        raise RuntimeError(f"cannot create topic {name}: {made.error_message}")


def run(directory: Path, rounds: int, partitions: int, replica_count: int) -> Row:
    controller_settings = {
        "broker.session.timeout.ms": str(SESSION_MS),
        "auto.leader.rebalance.enable": "false",
        "default.replication.factor": "3",
    }
    controller = KafkaController(directory / "controller", controller_settings)
    with contextlib.ExitStack() as stack:
        stack.callback(controller.close)
        controller.start()
        brokers: dict[int, BrokerProcess | KafkaBroker] = {}
        for number in (1, 2):
            port = free_port()
            settings = {
                "process.roles": "broker",
                "node.id": str(number),
                "controller.quorum.bootstrap.servers": controller.address,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "broker.session.timeout.ms": str(SESSION_MS),
                **SETTINGS,
            }
            brokers[number] = BrokerProcess(directory / f"broker-{number}", settings, port)
        for number in (3, 4):
            brokers[number] = KafkaBroker(
                directory / f"broker-{number}",
                SETTINGS,
                controller_port=controller.controller_port,
                cluster_id=controller.cluster_id,
                java_options=(HEAP, "-XX:+UseSerialGC"),
                node_id=number,
            )
        for broker in brokers.values():
            stack.callback(broker.close)
            broker.launch()
        for broker in brokers.values():
            broker.wait_ready(WAIT_S)
        sides = {
            1: Side(OURS, "led-by-kafkalite", brokers[1], brokers[2]),
            3: Side(JAVA, "led-by-java", brokers[3], brokers[4]),
        }
        for number, replicas in ((1, [1, 2, 4]), (3, [3, 4, 2])):
            make_topic(brokers[2].port, sides[number].topic, replicas[:replica_count], partitions)
        for number, side in sides.items():
            wait_until(side.whole, WAIT_S, "all are in sync")
            wait_until(lambda number=number, side=side: side.leaders() == {number}, WAIT_S, "it leads")
        for turn in range(rounds):
            for kind in KINDS:
                for number in (1, 3) if turn % 2 == 0 else (3, 1):
                    side = sides[number]
                    side.round(kind, number)
                    print(f"{turn + 1}/{rounds} {kind} {side.name}: {side.times[kind][-1] * 1000:.0f} ms", flush=True)
    rows = {f"{side.name}, {kind}": side.times[kind] for side in sides.values() for kind in KINDS}
    return {
        "session_timeout_ms": SESSION_MS,
        "partitions": partitions,
        "replicas": replica_count,
        "rows": rows,
        "medians_s": {name: statistics.median(times) for name, times in rows.items() if times},
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--partitions", type=int, default=1, help="of each topic, all led by the broker that goes")
    parser.add_argument("--replicas", type=int, choices=(2, 3), default=3, help="of each partition")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kafkalite-failover-") as directory:
        result = run(Path(directory), given.rounds, given.partitions, given.replicas)
    for name, median in result["medians_s"].items():
        times = sorted(result["rows"][name])
        print(f"{name}: median {median * 1000:.0f} ms, {times[0] * 1000:.0f} to {times[-1] * 1000:.0f}")
    if given.replicas == 3:
        write_result("failover", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())

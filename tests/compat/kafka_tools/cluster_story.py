"""What an operator does with three brokers by Apache Kafka's tools, told step by step: partitions move, leaders change,
levels of features rise, while the brokers are of any kind. A story that is played on two clusters is compared.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from tests.compat.kafka_tools.calls import MAIN_CLASSES
from tests.compat.kafka_tools.side_by_side import normalised
from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import HEAP, jars
from tests.kit.processes.broker import wait_until
from tests.kit.processes.mixed_cluster import START_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.compat.kafka_tools.one_jvm.runner import ToolRunner
    from tests.kit.processes.mixed_cluster import MixedCluster

WAIT_S: Final = 240.0
SLOWLY: Final = "20000"
"""Bytes a second at which nothing that is moved here comes to its end."""
QUICKLY: Final = "200000000"
RECORDS: Final = 6000
VALUE_BYTES: Final = 1000
COORDINATORS: Final = "1:2:3,2:3:1,3:1:2,1:3:2"
"""Of the partitions of __consumer_offsets, which controllers would place as they like."""
NOTHING_MOVES: Final = "No partition reassignments found."


def in_order(line: str) -> str:
    """A line with its set of replicas in sync in order, and without who leads, where somebody does: on a machine that
    is slow for seconds controllers choose another leader."""
    line = re.sub(r"(?<=Isr: )[\d,]+", lambda found: ",".join(sorted(found[0].split(","))), line)
    return re.sub(r"(?<=Leader: )\d+", "N", line)


def replicas_at(port: int, row: Mapping[str, Any]) -> list[int]:
    """The replicas of a plan's partition, as one broker tells them: it is the only one that a new client knows."""
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}, logger=quiet)
    found = client.list_topics(row["topic"], timeout=START_S).topics[row["topic"]].partitions
    return list(found[row["partition"]].replicas)


@dataclass
class Story:
    """One that is played; `told` is what is compared, a step's name and its lines each."""

    cluster: MixedCluster
    directory: Path
    runner: ToolRunner
    told: list[tuple[str, list[str]]] = field(default_factory=list)

    # --- steps --------------------------------------------------------------------------------------------------------

    def run(self, tool: str, line: str, *, numbers: bool = True) -> str:
        """A call; what it printed."""
        server = ["--bootstrap-server", self.cluster.bootstrap]
        ended = self.runner.run(MAIN_CLASSES[tool], *server, *line.replace("{dir}", str(self.directory)).split())
        found = normalised(ended.out + ended.err, numbers=numbers)
        self.told.append((f"{tool} {line}", [f"status {ended.status}", *map(in_order, found)]))
        return ended.out

    def elect_all(self) -> None:
        """Elect the preferred leaders of all partitions."""
        server = ["--bootstrap-server", self.cluster.bootstrap]
        arguments = ["--election-type", "preferred", "--all-topic-partitions"]
        ended = self.runner.run(MAIN_CLASSES["kafka-leader-election"], *server, *arguments)
        self.note("all preferred leaders", ended.status)

    def note(self, name: str, *lines: object) -> None:
        """What was seen beside the tools."""
        self.told.append((name, [str(line) for line in lines]))

    def produce(self, topic: str, partition: int, first: int, count: int) -> None:
        """Records whose values are numbers, acknowledged by all in sync."""
        settings = {"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "enable.idempotence": True}
        producer, told = Producer(settings, logger=quiet), []
        for number in range(first, first + count):
            producer.produce(
                topic, f"{number}".ljust(VALUE_BYTES), partition=partition, on_delivery=lambda *a: told.append(a[0])
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert {*told} == {None}

    def read(self, topic: str) -> list[str]:
        """Return the records that a consumer finds, by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "story",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            },
            logger=quiet,
        )
        consumer.subscribe([topic])
        count = len(self.cluster.isr(topic))
        found: dict[int, list[int]] = {}
        ended: set[int] = set()
        while len(ended) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None, "nothing more came"
            if message.error() is None:
                found.setdefault(message.partition(), []).append(int(message.value()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        consumer.close()
        return [
            f"{number}: {len(values)} of {min(values)} to {max(values)}" for number, values in sorted(found.items())
        ]

    def stop(self, number: int) -> None:
        self.cluster.brokers[number].stop()

    def start(self, number: int) -> None:
        self.cluster.start(number)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def see(self, name: str, topic: str, *, leaders: bool = False) -> None:
        """Replicas, those in sync, and directories of a topic, and who leads it."""
        replicas = self.cluster.isr(topic)
        self.note(
            f"{name}: {topic}", *(f"{n}: {each if leaders else each[1:]}" for n, each in sorted(replicas.items()))
        )
        held = {(each, number) for number, (_, ids, _) in replicas.items() for each in ids}
        wait_until(lambda: self.directories(topic) == held, WAIT_S, f"directories of {topic} are {sorted(held)}", 0.2)

    def directories(self, topic: str) -> set[tuple[int, int]]:
        """(broker, partition) of each partition's directory that has its own name."""
        return {
            (number, int(path.name.rpartition("-")[2]))
            for number, broker in self.cluster.brokers.items()
            for path in broker.data_dir.glob(f"{topic}-*")
            if re.fullmatch(rf"{topic}-\d+", path.name)
        }

    def wait_moved(self, plan: str = "") -> None:
        """Until the controller says that nothing is being moved, and each broker knows where a plan has brought it."""
        server = ["--bootstrap-server", self.cluster.bootstrap]
        moves = lambda: self.runner.run(MAIN_CLASSES["kafka-reassign-partitions"], *server, "--list").out  # noqa: E731
        wait_until(lambda: NOTHING_MOVES in moves(), WAIT_S, "nothing moves", 0.2)
        if plan:
            rows = json.loads((self.directory / plan.rpartition("/")[2]).read_text())["partitions"]
            for port in self.cluster.ports.values():
                wait_until(
                    lambda port=port: all(replicas_at(port, row) == row["replicas"] for row in rows),
                    *(WAIT_S, f"the broker at {port} knows where replicas are", 0.2),
                )

    def plan(self, name: str, wanted: Mapping[tuple[str, int], Sequence[int]], **more: object) -> str:
        """A file of where partitions are to be; its name as a call has it."""
        rows = [
            {"topic": topic, "partition": number, "replicas": list(replicas), **more}
            for (topic, number), replicas in wanted.items()
        ]
        (self.directory / f"{name}.json").write_text(json.dumps({"version": 1, "partitions": rows}))
        return f"--reassignment-json-file {{dir}}/{name}.json"

    # --- the story ----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """All of it."""
        self.run("kafka-topics", f"--create --topic __consumer_offsets --replica-assignment {COORDINATORS}")
        self.run("kafka-topics", "--create --topic moves --replica-assignment 1:2,2:3,3:1")
        self.run("kafka-topics", "--create --topic full --replica-assignment 1,2,3")
        self.cluster.wait_in_sync("moves")
        for number in range(3):
            self.produce("moves", number, 0, 100)
            self.produce("full", number, 0, RECORDS)
        self.see("at first", "moves")
        self.move()
        self.move_slowly()
        self.move_directories()
        self.look()
        self.elect()
        self.raise_levels()
        self.lose(2, 3)
        self.lose(3, 2)
        self.verify_replicas()
        self.note("all that is there", *self.read("moves"), *self.read("full"))

    def move(self) -> None:
        """Replicas are added, taken away, put in another order."""
        added = self.plan("added", {("moves", 0): (1, 2, 3), ("moves", 1): (2,), ("moves", 2): (2, 1)})
        self.run("kafka-reassign-partitions", f"{added} --execute")
        self.wait_moved(added)
        self.run("kafka-reassign-partitions", f"{added} --verify")
        self.see("added", "moves")
        for number in range(3):
            self.produce("moves", number, 100, 100)
        back = self.plan("back", {("moves", 0): (3, 2, 1), ("moves", 1): (3, 1), ("moves", 2): (1,)})
        self.run("kafka-reassign-partitions", f"{back} --execute")
        self.wait_moved(back)
        self.run("kafka-reassign-partitions", f"{back} --verify")
        self.see("back", "moves")
        strange = self.plan("strange", {("moves", 0): (1, 9), ("missing", 0): (1,)})
        self.run("kafka-reassign-partitions", f"{strange} --execute")
        self.run("kafka-reassign-partitions", f"{back} --cancel")

    def move_slowly(self) -> None:
        """A limit keeps what is moved from coming to its end: it is seen on its way, ended, and begun again."""
        slow = self.plan("slow", {("full", 0): (2, 1), ("full", 1): (3,), ("full", 2): (3, 1, 2)})
        self.run("kafka-reassign-partitions", f"{slow} --execute --throttle {SLOWLY}")
        time.sleep(3.0)  # in which all of it would have come, without the limit
        self.see_on_its_way("slowly")
        self.run("kafka-reassign-partitions", "--list")
        self.run("kafka-reassign-partitions", f"{slow} --verify")
        self.run("kafka-reassign-partitions", f"{slow} --execute")
        self.run("kafka-configs", "--describe --entity-type brokers")
        self.run("kafka-configs", "--describe --entity-type topics --entity-name full")
        self.run("kafka-topics", "--describe --topic full")
        self.run("kafka-topics", "--describe --under-replicated-partitions")
        self.run("kafka-reassign-partitions", f"{slow} --cancel")
        self.wait_moved()
        self.see("ended early", "full")
        self.run("kafka-configs", "--describe --entity-type brokers")
        self.run("kafka-reassign-partitions", f"{slow} --execute --throttle {SLOWLY}")
        time.sleep(3.0)
        self.see_on_its_way("slowly again")
        self.run("kafka-reassign-partitions", f"{slow} --execute --additional --throttle {QUICKLY}")
        self.wait_moved(slow)
        self.run("kafka-reassign-partitions", f"{slow} --verify --preserve-throttles")
        self.run("kafka-reassign-partitions", f"{slow} --verify")
        self.run("kafka-configs", "--describe --entity-type brokers")
        self.run("kafka-configs", "--describe --entity-type topics --entity-name full")
        self.see("quickly", "full")
        self.note("full", *self.read("full"))

    def see_on_its_way(self, name: str) -> None:
        """Note the replicas that are not in sync yet."""
        self.note(name, *(f"{number}: {each[1:]}" for number, each in sorted(self.cluster.isr("full").items())))

    def move_directories(self) -> None:
        """From one data directory to another, of which there is one at each broker."""
        replicas = self.cluster.isr("full")[0][1]
        for name, directories in (
            ("here", [str(self.cluster.brokers[each].data_dir) for each in replicas]),
            ("any", ["any" for _ in replicas]),
            ("nowhere", [str(self.directory / "nowhere") for _ in replicas]),
        ):
            wanted = self.plan(name, {("full", 0): replicas}, log_dirs=directories)
            self.run("kafka-reassign-partitions", f"{wanted} --execute")
            self.wait_moved()
            self.run("kafka-reassign-partitions", f"{wanted} --verify")

    def look(self) -> None:
        """What tools tell of a cluster at rest."""
        for name in ("moves", "full"):
            self.cluster.wait_in_sync(name)
        self.run("kafka-log-dirs", "--describe --topic-list moves,full")
        self.run("kafka-log-dirs", "--describe --broker-list 2 --topic-list moves")
        self.run("kafka-topics", "--describe --topic moves")
        self.run("kafka-topics", "--describe --under-replicated-partitions")
        self.run("kafka-get-offsets", "--topic-partitions moves,full")
        for line in ("--status", "--replication", "--replication --human-readable"):
            self.run("kafka-metadata-quorum", f"describe {line}", numbers=False)
        server = f"--bootstrap-server {self.cluster.bootstrap}"
        for line in ("cluster-id", "list-endpoints", "list-endpoints --include-fenced-brokers", "unregister --id 9"):
            self.run_alone("kafka-cluster", f"{line} {server}")

    def run_alone(self, tool: str, line: str) -> None:
        """A call whose tool wants the server behind its command."""
        ended = self.runner.run(MAIN_CLASSES[tool], *line.split())
        found = normalised(ended.out + ended.err)
        self.told.append((f"{tool} {line.split(maxsplit=1)[0]}", [f"status {ended.status}", *found]))

    def elect(self) -> None:
        """Leaders that are not the first of their replicas become so."""
        preferred = "--election-type preferred"
        self.run("kafka-leader-election", f"{preferred} --topic moves --partition 0")
        self.run("kafka-leader-election", f"{preferred} --topic moves --partition 0")
        self.elect_all()
        self.see("preferred", "moves", leaders=True)
        self.see("preferred", "full", leaders=True)
        self.stop(3)
        self.run("kafka-topics", "--describe --topic moves")
        self.run("kafka-topics", "--describe --under-replicated-partitions")
        self.run("kafka-topics", "--describe --unavailable-partitions")
        self.run("kafka-leader-election", f"{preferred} --topic moves --partition 0")
        self.run("kafka-leader-election", "--election-type unclean --topic moves --partition 0")
        self.start(3)
        for name in ("moves", "full"):
            self.cluster.wait_in_sync(name)
        self.elect_all()
        self.see("preferred again", "moves", leaders=True)

    def raise_levels(self) -> None:
        """Features rise while the brokers serve, one falls and rises."""
        self.features()
        self.run("kafka-features", "upgrade --release-version 4.1")
        self.features()
        self.run("kafka-features", "downgrade --feature transaction.version=1")
        self.features()
        self.run("kafka-features", "upgrade --feature transaction.version=2")
        self.run("kafka-features", "upgrade --feature metadata.version=99")
        self.features()
        for number in range(3):
            self.produce("moves", number, 200, 100)

    def features(self) -> None:
        """The levels that the cluster is at, as its controller has them, and each broker soon; not what it could do."""
        wanted = self.levels("--bootstrap-controller", self.cluster.controller.address)
        for port in self.cluster.ports.values():
            wait_until(
                lambda port=port: self.levels("--bootstrap-server", f"127.0.0.1:{port}").items() <= wanted.items(),
                *(WAIT_S, f"the broker at {port} knows the levels {wanted}", 0.2),
            )
        self.note("levels", *(f"{name} {level}" for name, level in sorted(wanted.items())))

    def levels(self, *server: str) -> dict[str, str]:
        """Feature → level, of those that one node knows."""
        out = self.runner.run(MAIN_CLASSES["kafka-features"], *server, "describe").out
        told = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", out))
        assert told, out
        return told

    def lose(self, last: int, behind: int) -> None:
        """The last one in sync goes away, and one that is behind it leads: what only the last one had is given up."""
        topic = f"risk{last}"
        self.run("kafka-topics", f"--create --topic {topic} --replica-assignment {last}:{behind}")
        self.cluster.wait_in_sync(topic)
        self.produce(topic, 0, 0, 10)
        self.stop(behind)
        self.produce(topic, 0, 10, 5)
        self.stop(last)
        self.start(behind)
        self.run("kafka-topics", f"--describe --topic {topic}")
        self.run("kafka-topics", "--describe --unavailable-partitions")
        self.run("kafka-leader-election", f"--election-type preferred --topic {topic} --partition 0")
        self.run("kafka-leader-election", f"--election-type unclean --topic {topic} --partition 0")
        self.produce(topic, 0, 100, 7)
        self.start(last)
        for name in (topic, "moves", "full"):
            self.cluster.wait_in_sync(name)
        self.see("lost", topic)
        self.note("what is left", *self.read(topic))
        self.elect_all()
        self.note("what is left", *self.read(topic))

    def verify_replicas(self) -> None:
        """Check that kafka-replica-verification, which runs until it is stopped, finds all replicas equal."""
        arguments = ["--broker-list", self.cluster.bootstrap, "--topics-include", "moves|full", "--time", "-2"]
        command = ["java", HEAP, "-cp", f"{jars()}/*", MAIN_CLASSES["kafka-replica-verification"], *arguments]
        with subprocess.Popen(
            [*command, "--report-interval-ms", "1000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            deadline, seen, said = time.monotonic() + START_S, "", []
            for line in process.stdout:
                said.append(line)
                reported = re.search(r"max lag is (-?\d+) for .* among (\d+) partitions", line)
                if reported:
                    seen = f"lag {reported[1]} among {reported[2]}"
                if seen.startswith("lag 0 ") or time.monotonic() > deadline:
                    break
            process.kill()
        self.note("replica verification", seen or "".join(said[-20:]))

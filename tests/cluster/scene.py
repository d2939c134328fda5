"""A cluster of one controller or three and three brokers of either kind, each on a separate host, with the clients on
another.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from kafkalite.client.connection import Connection
from kafkalite.client.errors import ClientError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from tests.cluster import plan, replicas
from tests.cluster.judge import Event, Final, History
from tests.cluster.links import Links, address
from tests.cluster.pauses import Pauses
from tests.cluster.workload import EARLY_ANSWERS, EARLY_COMMITS, KINDS, QUICK, consumer_of
from tests.directories.__main__ import environment_of, runs, tree_of
from tests.kit.checkers.ledger import Verdict
from tests.kit.harness.load import quiet
from tests.kit.processes.apache_kafka import (
    SMALL_HEAP,
    KafkaBroker,
    KafkaController,
    jars,
    quorum_of,
    topic_id_text,
)
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.kit.processes.mixed_cluster import Server

PORT = 9092
CONTROLLERS = (100, 101, 102)
CLIENTS = 200
"""Hosts."""
SESSION_S = 3.0
"""Without a word from a broker, after which the controller takes it for dead."""
PATIENCE_S = 180.0
"""Time for a cluster to be in sync again and for clients to continue: many times that of a quiet machine."""
KINDS_OF_BROKERS = {
    "java": ("java", "java", "java"),
    "mixed": ("kafkalite", "kafkalite", "java"),
    "kafkalite": ("kafkalite", "kafkalite", "kafkalite"),
    "exchanged": ("java", "java", "java"),
    "upgraded": ("older", "older", "older"),
}
EXCHANGED = ("exchanged", "upgraded")
"""Brokers that become kafkalite of this tree in their directories, and change back, among the faults."""
OLDER = "6696e069a0"
"""The commit of `older` brokers: no release before 0.2.0 has clusters."""
FORGOTTEN_EPOCHS = "forgotten-epochs"
"""A cheat: a broker that was away has lost the last epoch of each replica."""
JAVA_CLIENTS = "java"
CLIENT_KINDS = (*KINDS, JAVA_CLIENTS)
GOING_ON = (
    "acknowledged",
    "given",
    "ended committed",
    *(f"committed {group}" for group in (*plan.GROUPS, plan.COPIERS, plan.BURSTS)),
)
"""What clients tell again and again while they can do their work."""
CHEATS = (EARLY_ANSWERS, EARLY_COMMITS, FORGOTTEN_EPOCHS)
_INTERNAL = ("__consumer_offsets", "__transaction_state")
_ASKED_WITHIN_S = 10.0
CONTROLLER_SETTINGS = {
    "broker.session.timeout.ms": str(round(SESSION_S * 1000)),
    "leader.imbalance.check.interval.seconds": "10",
    "leader.imbalance.per.broker.percentage": "0",
}
BROKER_SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.wait.max.ms": "250",
    "replica.socket.timeout.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": str(plan.MIN_IN_SYNC),
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
TOPIC_SETTINGS = {"min.insync.replicas": str(plan.MIN_IN_SYNC), "segment.bytes": str(1 << 20)}


def send_signal(server: Server, number: signal.Signals) -> None:
    """To a process that may have ended."""
    if server.process is not None and server.alive:
        server.process.send_signal(number)


def kill(server: Server) -> None:
    """kill -9, also of one that is stopped; returns when it is gone."""
    if server.process is not None:
        server.process.kill()
        server.process.wait()


@dataclass
class Workers:
    """Clients' processes, and what they tell."""

    prefix: tuple[str, ...]
    bootstrap: str
    directory: Path
    seed: int
    cheat: str
    history: History = field(default_factory=History)
    pauses: Pauses = field(default_factory=Pauses)
    told: Counter[str] = field(default_factory=Counter)
    """The number of reports of each event, those of groups by group."""
    problems: list[str] = field(default_factory=list)
    _processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, *kinds: str) -> None:
        for kind in kinds:
            with (self.directory / f"{kind}.log").open("ab") as log:
                process = subprocess.Popen(
                    [*self.prefix, *self._command(kind)],
                    cwd=REPOSITORY,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    process_group=0,
                )
            self._processes[kind] = process
            thread = threading.Thread(target=self._listen, args=(kind, process), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _command(self, kind: str) -> list[str]:
        seed = str(self.seed)
        if kind != JAVA_CLIENTS:
            return [sys.executable, "-m", "tests.cluster.workload", kind, self.bootstrap, seed, self.cheat]
        source = Path(__file__).with_name("JavaClients.java")
        topics = [f"{topic}={plan.place_of(topic, 0)}" for topic in plan.TOPICS]
        plain, wide = topics[0], ",".join(topics[1 : 1 + len(plan.TRANSACTIONAL)])
        arguments = [self.bootstrap, seed, str(plan.PARTITIONS), plan.JAVA_GROUP, plain, wide]
        return ["java", *SMALL_HEAP, "-cp", f"{jars()}/*", str(source), *arguments]

    def finish(self, *kinds: str, ask: bool = True) -> None:
        """Waits until they have ended, which they are asked for."""
        for kind in kinds:
            if ask:
                with contextlib.suppress(BrokenPipeError):
                    self._input(kind).close()
        for kind in kinds:
            process = self._processes[kind]
            try:
                status = process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._signal(process, signal.SIGUSR1)  # the process dumps its stacks
                time.sleep(1.0)
                self._signal(process, signal.SIGKILL)
                status = process.wait()
            del self._processes[kind]
            if status:
                self.problems.append(f"standstill: {kind} ended with status {status}: {self.log_of(kind)[-1500:]}")
        for thread in self._threads:
            thread.join(10)

    def close(self) -> None:
        for process in self._processes.values():
            self._signal(process, signal.SIGKILL)
            process.wait()

    def ended(self) -> str:
        """A kind whose process ended with an error; empty when there is none."""
        return next((kind for kind, process in self._processes.items() if process.poll()), "")

    def ask_where(self) -> None:
        """Make each process write its stacks to its log."""
        for process in self._processes.values():
            self._signal(process, signal.SIGUSR1)

    @staticmethod
    def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
        """To a client and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def log_of(self, kind: str) -> str:
        return (self.directory / f"{kind}.log").read_text(errors="replace")

    @property
    def acknowledged(self) -> int:
        with self._lock:
            return self.history.acknowledged

    def progress(self) -> Counter[str]:
        """A copy of `told`."""
        with self._lock:
            return Counter(self.told)

    def begin_pauses(self) -> None:
        """They are measured from now on."""
        with self._lock:
            self.pauses.begin()

    def end_pauses(self) -> dict[str, float]:
        """Return the longest pauses since the last call, in seconds, by activity."""
        with self._lock:
            return self.pauses.end(time.monotonic())

    def changed(self, before: Mapping[str, int]) -> tuple[list[str], dict[str, int]]:
        """Groups of which more commits were acknowledged than before; how many there are of each."""
        with self._lock:
            commits = self.history.commits
        return sorted(group for group, count in commits.items() if count > before.get(group, 0)), commits

    def _input(self, kind: str) -> object:
        found = self._processes[kind].stdin
        assert found is not None
        return found

    def _listen(self, kind: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with (self.directory / f"{kind}.jsonl").open("a", buffering=1) as kept:
            for line in process.stdout:
                kept.write(line)
                self.take(json.loads(line))

    def take(self, event: Event) -> None:
        """Adds an event to the history."""
        at = time.monotonic()
        with self._lock:
            self.history.take(event)
            self.pauses.take(event, at)
            self.told[event["event"]] += 1
            who = event.get("group") or event.get("outcome") or ""
            self.told[f"{event['event']} {plan.kind_of(who)}"] += 1


@dataclass
class Scene:
    """The cluster. `with` starts it; its clients are started when it is whole."""

    directory: Path
    kinds: Sequence[str]
    links: Links
    seed: int
    cheat: str = ""
    """One of CHEATS, which has to be found."""
    brokers: dict[int, Server] = field(default_factory=dict)
    controller_count: int = 1
    controllers: dict[int, KafkaController] = field(default_factory=dict)
    """By host, which is their node id, too."""

    def __post_init__(self) -> None:
        self._commits_asked: dict[str, int] = {}
        self._exchanges = 0
        self._kinds_now = dict(enumerate(self.kinds, 1))
        self._other: dict[int, Server] = {}  # by number: the broker's replacement of the other kind
        hosts = CONTROLLERS[: self.controller_count]
        for number in (*hosts, CLIENTS, *range(1, len(self.kinds) + 1)):
            self.links.join(number)
        addresses = {number: f"{address(number)}:{PORT}" for number in hosts}
        quorum = quorum_of(addresses) if len(hosts) > 1 else ()
        self.servers = ",".join(addresses.values())
        self.cluster_id = topic_id_text(uuid.uuid4().bytes)
        for number in hosts:
            self.controllers[number] = KafkaController(
                self.directory / f"controller-{number}",
                CONTROLLER_SETTINGS,
                controller_port=PORT,
                cluster_id=self.cluster_id,
                host=address(number),
                prefix=self.links.prefix(number),
                node_id=number,
                quorum=quorum,
            )
        for number, kind in enumerate(self.kinds, 1):
            self.brokers[number] = self._broker(number, kind)
        self.bootstrap = ",".join(f"{address(number)}:{PORT}" for number in self.brokers)
        self.workers = Workers(self.links.prefix(CLIENTS), self.bootstrap, self.directory, self.seed, self.cheat)

    def _settings(self, number: int) -> dict[str, str]:
        return {
            "process.roles": "broker",
            "node.id": str(number),
            "controller.quorum.bootstrap.servers": self.servers,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{address(number)}:{PORT}",
            **BROKER_SETTINGS,
        }

    def _java(self, number: int) -> KafkaBroker:
        return KafkaBroker(
            self.directory / f"broker-{number}",
            self._settings(number),
            port=PORT,
            cluster_id=self.cluster_id,
            java_options=SMALL_HEAP,
            host=address(number),
            prefix=self.links.prefix(number),
            node_id=number,
        )

    def _broker(self, number: int, kind: str) -> Server:
        if kind == "java":
            return self._java(number)
        directory, prefix = self.directory / f"broker-{number}", self.links.prefix(number)
        environment = environment_of(tree_of(OLDER)) if kind == "older" else {}
        return BrokerProcess(directory, self._settings(number), PORT, prefix=prefix, environment=environment)

    def start(self) -> None:
        for controller in self.controllers.values():
            controller.launch()
        for controller in self.controllers.values():
            controller.wait_ready(PATIENCE_S)
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait_ready(PATIENCE_S)
        for number in self.brokers:
            self.check_tree(number)
        self.admin = self._admin()
        topics = [NewTopic(name, plan.PARTITIONS, plan.REPLICAS, config=TOPIC_SETTINGS) for name in plan.TOPICS]
        for made in self.admin.create_topics(topics).values():
            made.result(PATIENCE_S)
        self.workers.start(*CLIENT_KINDS)
        self.wait_whole()
        self._keep_offsets_safe()
        self.wait_progress()

    def launch(self, number: int) -> None:
        """Starts a broker again."""
        if self.cheat == FORGOTTEN_EPOCHS:
            for path in self.brokers[number].data_dir.glob("*-*/leader-epoch-checkpoint"):
                forget_last(path)
        self.brokers[number].launch()

    def exchange(self, *, clean: bool) -> tuple[int, str]:
        """Stop or kill the next broker by number, and put one of the other kind in its place, not started: the same id,
        listener, settings and directory. Return its number and its new kind."""
        number = self._exchanges % len(self.brokers) + 1
        self._exchanges += 1
        before = self.brokers[number]
        if clean:
            before.stop()
        else:
            kill(before)
        kind = "kafkalite" if self._kinds_now[number] != "kafkalite" else self.kinds[number - 1]
        self._kinds_now[number] = kind
        if number not in self._other:
            self._other[number] = self._successor(number, before)
        self.brokers[number], self._other[number] = self._other[number], before
        return number, kind

    def _successor(self, number: int, before: Server) -> Server:
        """The other kind of broker in the place of one."""
        if self.kinds[number - 1] == "older":
            return self._broker(number, "kafkalite")
        if not isinstance(before, KafkaBroker):
            successor = self._java(number)
            successor.format_options = ("--ignore-formatted",)
            return successor
        return BrokerProcess(
            before.directory,
            {"listeners": f"PLAINTEXT://{address(number)}:{PORT}"},
            PORT,
            command=(*BrokerProcess.command, "--config", str(before.config)),
            prefix=self.links.prefix(number),
        )

    def check_tree(self, number: int) -> None:
        """Raise if a kafkalite broker does not load the code of the tree that its kind says."""
        broker = self.brokers[number]
        if isinstance(broker, BrokerProcess):
            tree = tree_of(OLDER) if self._kinds_now[number] == "older" else REPOSITORY
            wait_until(lambda: runs(broker.pid, tree), PATIENCE_S, f"broker {number} with the code of {tree}")

    def wait_led(self, number: int) -> None:
        """Returns when a broker leads again what it is the first replica of."""
        topics = (*plan.TOPICS, *_INTERNAL)

        def led() -> bool:
            with contextlib.suppress(KafkaException):
                found = self.admin.list_topics(timeout=_ASKED_WITHIN_S).topics
                parts = [part for name in topics for part in found[name].partitions.values()]
                return all(part.leader == number for part in parts if part.replicas[0] == number)
            return False

        wait_until(led, PATIENCE_S, f"broker {number} leads again", 0.2)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUICK}, logger=quiet)

    def close(self) -> None:
        self.workers.close()
        for server in (*self.brokers.values(), *self.controllers.values()):
            send_signal(server, signal.SIGCONT)
            server.close()
        self.links.close()

    def _keep_offsets_safe(self) -> None:
        """The topic of offsets is made with the brokers' default of replicas in sync."""
        name, value = "min.insync.replicas", str(plan.MIN_IN_SYNC)
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, _INTERNAL[0], incremental_configs=[entry])
        for changed in self.admin.incremental_alter_configs([resource]).values():
            changed.result(PATIENCE_S)

    def active_controller(self) -> int | None:
        """The host of the one that leads the quorum, as it says itself; None while there is none that can be asked."""
        if len(self.controllers) == 1:
            return next(iter(self.controllers))
        topic = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()]
        )
        for number in self.controllers:
            with contextlib.suppress(ClientError):
                connection = Connection.connect(
                    address(number), PORT, client_id="checker", connect_timeout_s=2.0, request_timeout_s=2.0
                )
                with contextlib.closing(connection):
                    answer = connection.request(api.DESCRIBE_QUORUM, DescribeQuorumRequest(topics=[topic]))
                if not answer.error_code and not answer.topics[0].partitions[0].error_code:
                    return int(answer.topics[0].partitions[0].leader_id)
        return None

    def not_whole(self) -> str:
        """The first partition that is not in sync on all its replicas; empty when there is none."""
        for number, server in {**self.brokers, **self.controllers}.items():
            if not server.alive:
                return f"host {number} does not run: {server.log()[-1000:]}"
        if ended := self.workers.ended():
            return f"{ended} has ended: {self.workers.log_of(ended)[-1000:]}"
        try:
            topics = self.admin.list_topics(timeout=_ASKED_WITHIN_S).topics
        except KafkaException as error:
            return str(error)
        for name in (*plan.TOPICS, *_INTERNAL):
            if name not in topics or not topics[name].partitions:
                return f"{name} is not there"
            for number, part in topics[name].partitions.items():
                if part.leader < 0 or set(part.isrs) != set(part.replicas) or len(part.replicas) != plan.REPLICAS:
                    return f"{name}-{number}: leader {part.leader}, in sync {part.isrs} of {part.replicas}"
        return ""

    def wait_whole(self) -> float:
        """Seconds that it took until every partition was in sync everywhere."""
        began = time.monotonic()
        try:
            wait_until(lambda: not self.not_whole(), PATIENCE_S, "a whole cluster", 0.2)
        except TimeoutError:
            raise TimeoutError(f"standstill: not whole within {PATIENCE_S:g} s: {self.not_whole()}") from None
        return time.monotonic() - began

    def wait_progress(self, records: int = 1) -> float:
        """Return the seconds until every kind of client has made progress, and `records` more are acknowledged."""
        began, before, acknowledged = time.monotonic(), self.workers.progress(), self.workers.acknowledged

        def standing() -> list[str]:
            now = self.workers.progress()
            found = [kind for kind in GOING_ON if now[kind] == before[kind]]
            return found + (["records"] if self.workers.acknowledged < acknowledged + records else [])

        try:
            wait_until(lambda: not standing(), PATIENCE_S, "progress", 0.1)
        except TimeoutError:
            raise TimeoutError(f"standstill: within {PATIENCE_S:g} s no more of {', '.join(standing())}") from None
        return time.monotonic() - began

    def high_watermarks(self) -> dict[str, int] | None:
        """Of every partition that some replica has, by its directory's name, as the leaders tell; None: they do not."""
        parts = sorted(replicas.names([broker.data_dir for broker in self.brokers.values()]))
        wanted = {TopicPartition(*_split(name)): OffsetSpec.latest() for name in parts}
        # A client's own idea of leaders' epochs may be behind for minutes (librdkafka 2.16): a new one has none.
        admin = self._admin()  # it has to live as long as its answers
        answers = admin.list_offsets(wanted, request_timeout=_ASKED_WITHIN_S)
        with contextlib.suppress(KafkaException):
            return {f"{part.topic}-{part.partition}": each.result(PATIENCE_S).offset for part, each in answers.items()}
        return None

    def look(self) -> tuple[dict[str, int], dict[str, dict[int, replicas.Stored]]]:
        """High watermarks, and what every replica has that should be there."""
        told = wait_until(self.high_watermarks, PATIENCE_S, "high watermarks", 0.5)
        stored = {
            name: {number: replicas.read(broker.data_dir / name) for number, broker in self.brokers.items()}
            for name in told
        }
        return told, stored

    def compare(self) -> Verdict:
        """All replicas, byte by byte."""
        verdict = Verdict()
        told, stored = self.look()
        for name, high_watermark in told.items():
            found = replicas.compare(name, stored[name], high_watermark)
            for kind, texts in found.findings.items():
                verdict.findings[kind] += texts
        return verdict

    def final(self) -> tuple[Final, Verdict]:
        """Return the logs' content once no client writes, and the transactions left open."""
        told, stored = self.look()
        plain, committed, written, verdict = {}, {}, {}, Verdict()
        for place in plan.places(*plan.TOPICS):
            topic, number = plan.topic_of(place)
            name = f"{topic}-{number}"
            one = next(iter(stored[name].values()))
            if topic == plan.PLAIN:
                plain[place] = replicas.records(one, told[name])
                written[place] = replicas.written(one, told[name])
            else:
                committed[place], undecided = replicas.committed(name, one, told[name])
                for kind, texts in undecided.findings.items():
                    verdict.findings[kind] += texts
        return Final(plain, committed, self.positions(), written), verdict

    def ask(self) -> None:
        """Record the groups' positions that have changed: call it when the cluster is in sync.

        A coordinator that was cut off and does not know it yet returns stale positions, also Apache Kafka's.
        """
        at = time.monotonic()
        changed, self._commits_asked = self.workers.changed(self._commits_asked)
        for group in changed:
            positions = self._positions(group)
            self.workers.take({"event": "asked", "group": group, "at": at, "positions": positions})

    def positions(self) -> dict[str, dict[int, int]]:
        """Of all groups that have committed, by place."""
        return {group: self._positions(group) for group in self.workers.changed({})[0]}

    def _positions(self, group: str) -> dict[int, int]:
        """Of one, by place: nothing that an open transaction may change."""
        client = consumer_of(self.bootstrap, group, **{"isolation.level": "read_committed"})
        parts = [TopicPartition(plan.PLAIN, number) for number in range(plan.PARTITIONS)]

        def told() -> dict[int, int] | None:
            with contextlib.suppress(KafkaException):
                found = client.committed(parts, _ASKED_WITHIN_S)
                if all(part.error is None for part in found):
                    return {plan.place_of(part.topic, part.partition): max(part.offset, 0) for part in found}
            return None

        try:
            return wait_until(told, PATIENCE_S, f"positions of {group}")
        finally:
            client.close()


def forget_last(checkpoint: Path) -> None:
    """Takes the last entry out of a replica's leader epochs."""
    version, count, *rows = checkpoint.read_text().splitlines() or ["0", "0"]
    if rows and not checkpoint.parent.name.startswith("__cluster_metadata"):
        checkpoint.write_text("\n".join([version, str(int(count) - 1), *rows[:-1], ""]))


def settled(look: Callable[[], Verdict]) -> Verdict:
    """Repeat a look until it finds nothing, or for some seconds: two files that a broker writes cannot be
    read at once.
    """
    deadline = time.monotonic() + _ASKED_WITHIN_S
    while True:
        verdict = look()
        if verdict or time.monotonic() > deadline:
            return verdict
        time.sleep(0.5)


def _split(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)

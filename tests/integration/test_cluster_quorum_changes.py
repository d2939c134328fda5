"""Three controllers of Apache Kafka's: another one leads, the active one is killed, one hears nothing any more.

A broker finds the new leader, keeps beating, and what it passes on is answered. Without a majority brokers serve what
they lead with all their followers, and nothing of the cluster changes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from kafkalite.broker import Broker
from kafkalite.broker.cluster.lifecycle import Phase
from kafkalite.client import Client
from kafkalite.errors import ErrorCode, KafkaError
from tests.kit.harness.clustered import cluster_settings, member_of, membership
from tests.kit.processes.apache_kafka import KafkaController
from tests.kit.processes.broker import BrokerDidNotStart, BrokerProcess, free_port, wait_until
from tests.kit.processes.kafka_cluster import coordinators_with

if TYPE_CHECKING:
    from kafkalite.broker.cluster.member import Member

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WAIT_S = 300
FIRST_ID = 3000
SESSION_S = 9
"""After which controllers that can would fence a broker that they do not hear."""


class Controllers:
    """Three, of one quorum that is fixed."""

    def __init__(self, directory: Path) -> None:
        ports = [free_port() for _ in range(3)]
        self.voters = ",".join(f"{FIRST_ID + index}@127.0.0.1:{port}" for index, port in enumerate(ports))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.nodes: dict[int, KafkaController] = {}
        for index, port in enumerate(ports):
            node = KafkaController(directory / f"controller{index}", controller_port=port, voters=True)
            if self.nodes:
                node.cluster_id = self.nodes[FIRST_ID].cluster_id
            node.settings = {"node.id": str(FIRST_ID + index), "controller.quorum.voters": self.voters}
            self.nodes[FIRST_ID + index] = node


@pytest.fixture
def controllers(kafka_jars: Path, tmp_path: Path) -> Iterator[Controllers]:
    assert kafka_jars
    quorum = Controllers(tmp_path)
    with ExitStack() as stack:
        for node in quorum.nodes.values():
            stack.callback(node.close)
            node.start()
        yield quorum


@pytest.fixture
def broker(controllers: Controllers, tmp_path: Path) -> Iterator[Broker]:
    given = cluster_settings(controllers.bootstrap, tmp_path / "broker", broker_heartbeat_interval_ms=500)
    with Broker(given | {"initial.broker.registration.timeout.ms": WAIT_S * 1000}) as running:
        yield running


def leader_of(member: Member) -> int:
    return member._observer.quorum.leader_id


def in_service(member: Member) -> bool:
    return (
        member.phase is Phase.IN_SERVICE
        and not member.fenced
        and 7 in member.image.brokers
        and not member.image.brokers[7].fenced
    )


def create(broker: Broker, topic: str) -> None:
    """Asks until a controller has made it: each request is answered, by the broker where no controller was there."""
    while True:
        with Client(broker.bootstrap_servers) as client:
            try:
                client.admin.create_topic(topic, partitions=1)
            except KafkaError as error:
                if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:  # the answer before was lost with its controller
                    return
                if error.code != ErrorCode.REQUEST_TIMED_OUT:
                    raise
            else:
                return


def goes_on(broker: Broker, topic: str) -> None:
    """Check that metadata fetches, heartbeats and forwarded requests all reach the current leader."""
    member = member_of(broker)
    create(broker, topic)
    wait_until(lambda: member.image.topic(topic), WAIT_S, f"topic {topic} is known")
    wait_until(lambda: in_service(member), WAIT_S, "the broker is in service")


def test_active_controller_stops_and_the_next_is_killed(controllers: Controllers, broker: Broker) -> None:
    member = member_of(broker)
    epoch = member.epoch
    goes_on(broker, "before")
    first = leader_of(member)
    controllers.nodes[first].stop()  # in order: it hands over
    wait_until(lambda: leader_of(member) not in (first, -1), WAIT_S, "another one leads")
    goes_on(broker, "handed-over")
    controllers.nodes[first].start()
    second = leader_of(member)
    before = member.image.epoch
    controllers.nodes[second].close()  # kill -9
    wait_until(lambda: leader_of(member) not in (second, -1) and member.image.epoch > before, WAIT_S, "a third epoch")
    goes_on(broker, "killed")
    controllers.nodes[second].start()
    goes_on(broker, "whole-again")
    assert member.epoch == epoch  # it never had to register again
    assert {each.name for each in member.image.topics.values()} == {"before", "handed-over", "killed", "whole-again"}


def test_requests_that_wait_for_a_leader_are_answered(controllers: Controllers, broker: Broker) -> None:
    member = member_of(broker)
    goes_on(broker, "before")
    first = leader_of(member)
    (other,) = list(controllers.nodes.keys() - {first})[:1]
    controllers.nodes[other].close()
    controllers.nodes[first].close()  # two of three: no majority
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(create, broker, "waited")
        controllers.nodes[other].start()
        asking.result(WAIT_S)
    goes_on(broker, "after")


def test_leader_that_the_broker_cannot_reach_is_looked_for_until_it_can(
    controllers: Controllers, broker: Broker
) -> None:
    """A leader that is stopped (SIGSTOP) takes bytes and answers none: loss one way. The others elect another one."""
    member = member_of(broker)
    goes_on(broker, "before")
    first = leader_of(member)
    process = controllers.nodes[first].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: leader_of(member) not in (first, -1), WAIT_S, "another one leads")
        goes_on(broker, "silent")
    finally:
        process.send_signal(signal.SIGCONT)
    goes_on(broker, "heard-again")
    assert leader_of(member) != first


@pytest.fixture
def three(controllers: Controllers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    """Brokers 1, 2 and 3, whose coordinators' topics have three replicas."""
    with ExitStack() as stack:
        processes = []
        for number in (1, 2, 3):
            settings = membership(controllers.bootstrap, number, port := free_port()) | coordinators_with(3)
            settings["initial.broker.registration.timeout.ms"] = str(WAIT_S * 1000)
            processes.append(BrokerProcess(tmp_path / f"broker-{number}", settings, port))
            stack.callback(processes[-1].close)
            processes[-1].launch()
        for process in processes:
            process.wait_ready(WAIT_S)
        yield processes


class Clients:
    """An idempotent producer, a transactional one, and a member of a group that commits what it read."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        given = {"bootstrap.servers": bootstrap, "message.timeout.ms": WAIT_S * 1000}
        self.topic = topic
        self.plain = Producer(given | {"enable.idempotence": True})
        self.whole = Producer(given | {"transactional.id": topic, "transaction.timeout.ms": WAIT_S * 1000})
        self.whole.init_transactions(WAIT_S)
        self.member = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False}
        )
        self.member.subscribe([topic])
        self.acknowledged: set[bytes] = set()
        self.failed: list[object] = []
        self.seen: set[bytes] = set()

    def close(self) -> None:
        self.member.close()

    def put(self, text: str) -> None:
        """Into each partition, half of it in a transaction that is committed; not waited for but that."""

        def told(error: object, message: object) -> None:
            if error is None:
                self.acknowledged.add(message.value())  # type: ignore[attr-defined]
            else:
                self.failed.append(error)

        for partition in range(3):
            self.plain.produce(self.topic, f"{text}-{partition}", partition=partition, on_delivery=told)
        self.whole.begin_transaction()
        for partition in range(3):
            self.whole.produce(self.topic, f"{text}-t{partition}", partition=partition, on_delivery=told)
        self.whole.commit_transaction(WAIT_S)

    def take(self) -> None:
        """Reads until all that was acknowledged was seen, and commits."""
        assert self.plain.flush(WAIT_S) == 0
        assert self.failed == []

        def read() -> bool:
            self.seen.update(each.value() or b"" for each in self.member.consume(50, 0.5) if each.error() is None)
            return self.seen >= self.acknowledged

        wait_until(read, WAIT_S, "all that was acknowledged")
        self.member.commit(asynchronous=False)


def test_brokers_serve_what_they_have_while_no_majority_of_controllers_is_there(
    controllers: Controllers, three: list[BrokerProcess]
) -> None:
    bootstrap = ",".join(process.bootstrap for process in three)
    with Client(bootstrap) as client:
        client.admin.create_topic("orders", partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
    clients = Clients(bootstrap, "orders")
    clients.put("before")
    clients.take()
    for gone in (FIRST_ID, FIRST_ID + 1):
        controllers.nodes[gone].close()
    began = time.monotonic()
    rounds = 0
    while rounds < 10 or time.monotonic() < began + 2 * SESSION_S:
        clients.put(f"without-{rounds}")
        clients.take()
        rounds += 1
    with Client(bootstrap, request_timeout_s=WAIT_S) as client, pytest.raises(KafkaError) as refused:
        client.admin.create_topic("another", partitions=1)
    assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
    three[2].kill()
    clients.plain.produce("orders", b"waits", partition=0)
    clients.plain.flush(2 * SESSION_S)
    assert len(clients.plain) == 1  # the dead one is still counted as in sync, and no other may lead
    three[2].launch()
    with pytest.raises(BrokerDidNotStart) as waiting:
        three[2].wait_ready(SESSION_S)
    assert waiting.value.status is None  # it is not let in, and asks on
    for gone in (FIRST_ID, FIRST_ID + 1):
        controllers.nodes[gone].start()
    three[2].wait_ready(WAIT_S)
    clients.put("after")
    clients.take()
    assert len(clients.acknowledged) == (rounds + 2) * 6
    clients.close()

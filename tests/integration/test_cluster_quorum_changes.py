"""Three controllers of Apache Kafka's: another one leads, the active one is killed, one hears nothing any more.

A broker finds the new leader, keeps beating, and what it passes on is answered.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.cluster.lifecycle import Phase
from kafkalite.errors import ErrorCode, KafkaError
from tests.kit.harness.clustered import cluster_settings, member_of
from tests.kit.processes.apache_kafka import KafkaController
from tests.kit.processes.broker import free_port, wait_until

if TYPE_CHECKING:
    from kafkalite.cluster.member import Member

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WAIT_S = 300
FIRST_ID = 3000


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
    """Metadata, beats and what is passed on all reach whoever leads now."""
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


def test_requests_that_wait_while_nobody_leads_are_answered(controllers: Controllers, broker: Broker) -> None:
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

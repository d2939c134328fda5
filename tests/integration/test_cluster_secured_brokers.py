"""Brokers of a cluster that authenticate to each other over TLS: their requests are served, those of others are not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.brokers import Brokers
from kafkalite.broker.cluster.connection import ConnectionFailed
from kafkalite.broker.cluster.membership_setup import ways_of
from kafkalite.broker.cluster.security import of_brokers
from kafkalite.client.connection import Connection
from kafkalite.client.security import Security as ClientSecurity
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.security.scram import new_credential
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import add_partitions_to_txn, write_txn_markers
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness.certificates import Authority
from tests.kit.harness.clustered import cluster_settings, member_of
from tests.kit.processes.apache_kafka import KafkaBroker, KafkaController, run_tool
from tests.kit.processes.broker import free_port, wait_until

WAIT_S = 120
PASSWORD = "brokers' own"
MECHANISM = "SCRAM-SHA-512"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
CLIENTS = {"listener.security.protocol.map": "INSIDE:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
OFFSETS, TRANSACTIONS, ORDERS = bytes(range(16)), bytes(range(1, 17)), bytes(range(2, 18))


class Certificates:
    """Of brokers, by one authority."""

    def __init__(self, directory: Path, authority: Authority | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self.authority = authority or Authority()
        self.trusted = self.authority.write_pem(directory / "authority.pem")

    def settings(self, name: str) -> dict[str, str]:
        """Of the listener INSIDE, for clients of it and for itself."""
        issued = self.authority.issue(name, also_client=True).write_pem(self._directory / f"{name}.pem")
        return {
            "listener.name.inside.ssl.keystore.type": "PEM",
            "listener.name.inside.ssl.keystore.location": str(issued),
            "listener.name.inside.ssl.truststore.type": "PEM",
            "listener.name.inside.ssl.truststore.location": str(self.trusted),
            "listener.name.inside.ssl.client.auth": "required",
        }


def signing_in(password: str = PASSWORD, user: str = "broker") -> dict[str, str]:
    return {
        **CLIENTS,
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.inside.{MECHANISM.lower()}.sasl.jaas.config": (
            f'{SCRAM} username="{user}" password="{password}";'
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:broker;User:ANONYMOUS",
    }


def settings(address: str, directory: Path, node_id: int, certificates: Certificates) -> dict[str, object]:
    return {
        **cluster_settings(address, directory / f"broker-{node_id}"),
        **signing_in(),
        **certificates.settings(f"b{node_id}"),
        "node.id": node_id,
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "broker.heartbeat.interval.ms": 100,
        "broker.session.timeout.ms": 1000,
    }


def user(name: str) -> types.UserScramCredentialRecord:
    kept = new_credential(MECHANISM, PASSWORD)
    return types.UserScramCredentialRecord(
        name=name,
        mechanism=2,
        salt=kept.salt,
        stored_key=kept.stored_key,
        server_key=kept.server_key,
        iterations=kept.iterations,
    )


def topic(name: str, topic_id: bytes, *leaders: int) -> list[object]:
    """One partition for each leader, its only replica."""
    partitions = [
        types.PartitionRecord(
            partition_id=at,
            topic_id=topic_id,
            replicas=[node],
            isr=[node],
            leader=node,
            leader_epoch=0,
            partition_epoch=0,
        )
        for at, node in enumerate(leaders)
    ]
    return [types.TopicRecord(name=name, topic_id=topic_id), *partitions]


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController("aaaaaaaaaaaaaaaaaaaaaQ") as scripted:
        levels = {"metadata.version": 27, "transaction.version": 2}
        scripted.append(*(types.FeatureLevelRecord(name=name, feature_level=at) for name, at in levels.items()))
        scripted.append(user("broker"), user("ann"))
        yield scripted


def transact(bootstrap: str, name: str, transactional_id: str, values: list[str]) -> None:
    """A transaction that is committed over the partitions of a topic."""
    given = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    producer = Producer({**given, "transaction.timeout.ms": WAIT_S * 1000, "message.timeout.ms": WAIT_S * 1000})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for at, value in enumerate(values):
        producer.produce(name, value=value, partition=at % 2)
    producer.commit_transaction(WAIT_S)


def committed(bootstrap: str, name: str, count: int) -> list[str]:
    """Return `count` committed messages of both partitions."""
    given = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**given, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, number, 0) for number in (0, 1)])
    found: list[str] = []

    def read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
        return len(found) >= count

    wait_until(read, WAIT_S, "the transaction's end is in both partitions")
    consumer.close()
    return sorted(found)


def test_a_transaction_ends_at_both_brokers(controller: ScriptedController, tmp_path: Path) -> None:
    """The coordinator is one of them: verification goes one way over the secured listener, markers the other."""
    certificates = Certificates(tmp_path / "tls")
    controller.append(
        *topic("__transaction_state", TRANSACTIONS, 7),
        *topic("orders", ORDERS, 7, 8),
        *topic("__consumer_offsets", OFFSETS, 8),
    )
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(Broker(settings(controller.address, tmp_path, node, certificates))) for node in (7, 8)
        ]
        values = [f"v{number}" for number in range(20)]
        transact(brokers[0].bootstrap_servers, "orders", "t1", values)
        assert committed(brokers[0].bootstrap_servers, "orders", 20) == sorted(values)
        second = brokers[1].endpoints["INSIDE"]
        principals = {c.principal for worker in brokers[1]._parts.workers for c in worker._connections.values()}
        assert "User:broker" in principals  # the coordinator's lane
        brokers[0].reload_certificates()
        more = [f"w{number}" for number in range(20)]
        transact(brokers[0].bootstrap_servers, "orders", "t2", more)
        assert committed(brokers[1].bootstrap_servers, "orders", 40) == sorted(values + more)
        check_what_others_may_not(second.port, certificates)


def check_what_others_may_not(port: int, certificates: Certificates) -> None:
    """Ann signs in, and is no broker."""
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": "ann",
        "sasl.password": PASSWORD,
    }
    tls = {key.removeprefix("listener.name.inside."): text for key, text in certificates.settings("ann").items()}
    del tls["ssl.client.auth"]
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with closing(
        Connection.connect("127.0.0.1", port, client_id="ann", security=ClientSecurity({**given, **tls}))
    ) as connection:
        name = add_partitions_to_txn.AddPartitionsToTxnTopic(name="orders", partitions=[1])
        asked = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id="t1", producer_id=1, producer_epoch=0, verify_only=True, topics=[name]
        )
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[asked])
        assert connection.request(api.ADD_PARTITIONS_TO_TXN, request).error_code == denied
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=1,
            topics=[write_txn_markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[1])],
        )
        request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
        answer = connection.request(api.WRITE_TXN_MARKERS, request)
        assert answer.markers[0].topics[0].partitions[0].error_code == denied


def test_a_broker_that_cannot_authenticate_gets_the_reason_and_is_not_served(
    controller: ScriptedController, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path / "tls")
    with Broker(settings(controller.address, tmp_path, 8, certificates)) as broker:
        image = member_of(broker).image
        address = image.brokers[8].addresses["INSIDE"]
        wanted = settings(controller.address, tmp_path, 7, certificates)
        others = Certificates(tmp_path / "others", Authority("Others"))
        for changed, words in (
            (signing_in(password="wrong"), r"the broker at .* refused this broker's authentication"),
            (others.settings("b7"), "TLS handshake with the broker at"),
        ):
            security = of_brokers(BrokerConfig.load(overrides={**wanted, **changed}))
            way = Brokers(lambda: image, "INSIDE", security)
            found = way.address(8)
            assert found is not None
            assert found.port == address.port
            with pytest.raises(ConnectionFailed, match=words):
                way.connect(found, "b7", WAIT_S)
        assert Brokers(lambda: image, "OUTSIDE").address(8) is None


def test_certificates_that_cannot_be_read_again_leave_the_old(
    controller: ScriptedController, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(tmp_path / "tls")
    with Broker(settings(controller.address, tmp_path, 8, certificates)) as broker:
        image = member_of(broker).image
        config = BrokerConfig.load(overrides=settings(controller.address, tmp_path, 7, certificates))
        ways = ways_of(config)
        way = Brokers(lambda: image, "INSIDE", ways.inner)
        address = way.address(8)
        assert address is not None
        os.truncate(certificates.trusted, 0)
        ways.reload_certificates()
        assert "could not reload the certificates for connections to other brokers" in caplog.text
        way.connect(address, "b7", WAIT_S).close()


def test_broker_that_has_no_name_for_others_does_not_start(tmp_path: Path) -> None:
    wanted = settings("127.0.0.1:1", tmp_path, 7, Certificates(tmp_path / "tls"))
    key = f"listener.name.inside.{MECHANISM.lower()}.sasl.jaas.config"
    wanted[key] = f"{SCRAM};"
    with pytest.raises(ConfigError, match="with which the broker authenticates to other brokers") as refused:
        Broker(wanted).start()
    assert refused.value.key == key


@pytest.mark.slow
def test_a_transaction_ends_at_ours_and_at_a_java_broker(kafka_jars: Path, tmp_path: Path) -> None:
    """Either of both coordinates some of ten transactions, each over a partition of both."""
    assert kafka_jars
    certificates = Certificates(tmp_path / "tls")
    scram = (f"--add-scram={MECHANISM}=[name=broker,password={PASSWORD}]",)
    authorizer = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:broker;User:ANONYMOUS"}
    few = {
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with ExitStack() as stack:
        controller = stack.enter_context(
            KafkaController(tmp_path / "controller", format_options=scram, settings=authorizer)
        )
        ours = {**settings(controller.address, tmp_path, 7, certificates), **few}
        broker = stack.enter_context(Broker(ours))
        java = KafkaBroker(
            tmp_path / "java",
            controller_port=controller.controller_port,
            cluster_id=controller.cluster_id,
            node_id=2,
        )
        listeners = f"PLAINTEXT://{java.bootstrap},INSIDE://127.0.0.1:{free_port()}"
        java.settings = {
            **signing_in(),
            **certificates.settings("b2"),
            **few,
            "listeners": listeners,
            "advertised.listeners": listeners,
        }
        stack.enter_context(java)
        placed = ("--create", "--topic", "orders", "--replica-assignment", "7,2")
        tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap_servers)
        run_tool(*tool, *placed)
        values = []
        for number in range(10):
            values += [f"{number}-{side}" for side in range(2)]
            transact(java.bootstrap, "orders", f"t{number}", values[-2:])
        assert committed(broker.bootstrap_servers, "orders", 20) == sorted(values)
        state = member_of(broker).image.topic("__transaction_state")
        assert state is not None
        assert {each.leader for each in state.partitions.values()} == {2, 7}

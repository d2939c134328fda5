"""Controllers of Apache Kafka's whose listener has TLS, SASL, or both; and brokers that they do not let in."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.cluster.connection import ConnectionFailed, ControllerConnection
from kafkalite.broker.cluster.quorum import Address
from kafkalite.broker.cluster.security import Security, of_controllers
from kafkalite.errors import ConfigError, StartupError
from kafkalite.settings.broker import BrokerConfig
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from tests.kit.harness.certificates import Authority
from tests.kit.harness.clustered import cluster_settings, member_of
from tests.kit.harness.sasl_broker import PASSWORD as SASL_PASSWORD
from tests.kit.harness.sasl_broker import SaslBroker, SaslTlsBroker
from tests.kit.processes.apache_kafka import KafkaController
from tests.kit.processes.broker import wait_until

WAIT_S = 120
PASSWORD = "broker's own"
SESSION_MS = 3000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PREFIX = "listener.name.controller."


def stores(directory: Path, authority: Authority, name: str) -> dict[str, str]:
    """Settings of a Java process with a certificate, or of ours."""
    directory.mkdir(exist_ok=True)
    issued = authority.issue(name, also_client=True)
    return {
        f"{PREFIX}ssl.keystore.type": "PEM",
        f"{PREFIX}ssl.keystore.location": str(issued.write_pem(directory / f"{name}.pem")),
        f"{PREFIX}ssl.truststore.type": "PEM",
        f"{PREFIX}ssl.truststore.location": str(authority.write_pem(directory / "authority.pem")),
    }


def controller_settings(protocol: str, mechanism: str) -> dict[str, str]:
    """Return the controller's security settings; it is also a client of itself."""
    given = {"listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:PLAINTEXT"}
    if protocol.startswith("SASL"):
        kind = mechanism.lower()
        users = f' user_controller="{PASSWORD}" user_b7="{PASSWORD}"' if mechanism == "PLAIN" else ""
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        given |= {
            "sasl.enabled.mechanisms": mechanism,
            f"{PREFIX}sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.controller.protocol": mechanism,
            f"{PREFIX}{kind}.connections.max.reauth.ms": str(SESSION_MS),
            f"{PREFIX}{kind}.sasl.jaas.config": f'{module} username="controller" password="{PASSWORD}"{users};',
        }
    return given


def broker_settings(protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, object]:
    given: dict[str, object] = {"listener.security.protocol.map": f"CONTROLLER:{protocol},PLAINTEXT:PLAINTEXT"}
    if protocol.startswith("SASL"):
        module = PLAIN if mechanism == "PLAIN" else SCRAM
        given["sasl.mechanism.controller.protocol"] = mechanism
        given[f"{PREFIX}{mechanism.lower()}.sasl.jaas.config"] = f'{module} username="b7" password="{password}";'
    return given


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")],
)
def test_broker_joins_controllers_that_ask_who_it_is(
    kafka_jars: Path, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    assert kafka_jars
    authority, tls = Authority(), protocol.endswith("SSL")
    given, ours = controller_settings(protocol, mechanism), broker_settings(protocol, mechanism)
    options: tuple[str, ...] = ()
    if tls:
        given |= stores(tmp_path / "tls", authority, "server") | {f"{PREFIX}ssl.client.auth": "required"}
        ours |= stores(tmp_path / "tls", authority, "b7")
    if mechanism.startswith("SCRAM"):
        options = tuple(f"--add-scram={mechanism}=[name={name},password={PASSWORD}]" for name in ("controller", "b7"))
    controller = KafkaController(tmp_path / "controller", settings=given, format_options=options, voters=True)
    with controller:
        quorum = {"controller.quorum.voters": f"3000@{controller.address}"}
        wanted = cluster_settings(controller.address, tmp_path / "broker") | quorum
        with Broker(wanted | ours) as broker:
            member = member_of(broker)
            begun = member.image.offset
            # Sessions expire and are renewed: metadata fetches, heartbeats and forwarding continue.
            wait_until(lambda: member.image.offset > begun + 4 * SESSION_MS / 500, WAIT_S, "metadata of two sessions")
            request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=member.epoch)
            assert member.ask(api.ALLOCATE_PRODUCER_IDS, request).done is False
            wait_until(
                lambda: broker._parts.transactions.producer_ids.take() is not None, WAIT_S, "ids from the controller"
            )
            assert not member.fenced
            assert not member.image.brokers[7].fenced
        refused = {**wanted, "log.dirs": str(tmp_path / "other"), "initial.broker.registration.timeout.ms": 3000}
        if mechanism:
            words = "refused this broker's authentication: .*[Aa]uthentication failed"
            refused |= ours | broker_settings(protocol, mechanism, "another")
        else:
            words = "TLS handshake with the controller"
            refused |= ours | stores(tmp_path / "others", Authority("Others"), "b7")
        with pytest.raises(StartupError, match=words):
            Broker(refused).start()
        assert controller.alive


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"sasl.mechanism.controller.protocol": "GSSAPI"}, "sasl.mechanism.controller.protocol"),
        ({}, f"{PREFIX}plain.sasl.jaas.config"),
        ({f"{PREFIX}plain.sasl.jaas.config": f"{SCRAM} username=a password=b;"}, f"{PREFIX}plain.sasl.jaas.config"),
        ({f"{PREFIX}plain.sasl.jaas.config": f"{PLAIN} user_a=b;"}, f"{PREFIX}plain.sasl.jaas.config"),
    ],
)
def test_broker_that_cannot_say_who_it_is_does_not_start(given: dict[str, str], key: str, tmp_path: Path) -> None:
    wanted = cluster_settings("127.0.0.1:1", tmp_path) | broker_settings("SASL_PLAINTEXT", "PLAIN")
    del wanted[f"{PREFIX}plain.sasl.jaas.config"]
    with pytest.raises(ConfigError) as refused:
        Broker(wanted | given).start()
    assert refused.value.key == key


def test_certificates_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    wanted = cluster_settings("127.0.0.1:1", tmp_path) | broker_settings("SSL", "")
    with pytest.raises(ConfigError, match="nowhere"):
        Broker(wanted | {f"{PREFIX}ssl.truststore.location": "nowhere.pem"}).start()


def secured(listener: str, protocol: str, mechanism: str, user: str, **more: str) -> Security:
    """That of a broker whose controllers' listener has this name."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    texts = {
        **cluster_settings("127.0.0.1:1", Path("unused")),
        "controller.listener.names": listener,
        "listener.security.protocol.map": f"{listener}:{protocol},PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": mechanism,
        key: f'{module} username="{user}" password="{SASL_PASSWORD}";',
    }
    security = of_controllers(BrokerConfig.load(overrides=texts | more))
    assert security is not None
    return security


def address_of(broker: SaslBroker, listener: str) -> Address:
    return Address("127.0.0.1", broker.broker.endpoints[listener].port)


@pytest.mark.parametrize(
    ("mechanism", "user"), [("PLAIN", "alice"), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "carol")]
)
def test_connection_signs_in_by_each_mechanism(tmp_path: Path, mechanism: str, user: str) -> None:
    with SaslBroker(tmp_path) as broker:
        security = secured("SASL", "SASL_PLAINTEXT", mechanism, user)
        connection = ControllerConnection.connect(address_of(broker, "SASL"), "b7", 60, security)
        answer = connection.request(api.METADATA, 9, MetadataRequest(topics=None), 60)
        assert answer.cluster_id == broker.broker.logs.cluster_id
        assert broker.principals() == {f"User:{user}"}
        connection.close()
        wrong = secured("SASL", "SASL_PLAINTEXT", mechanism, "nobody")
        with pytest.raises(ConnectionFailed, match="refused this broker's authentication"):
            ControllerConnection.connect(address_of(broker, "SASL"), "b7", 60, wrong)
        unsigned = ControllerConnection.connect(address_of(broker, "SASL"), "b7", 60)
        with pytest.raises(ConnectionFailed):
            unsigned.request(api.METADATA, 9, MetadataRequest(topics=None), 60)


def test_connection_has_tls_and_a_certificate_and_signs_in_again(tmp_path: Path) -> None:
    with SaslTlsBroker(tmp_path, connections_max_reauth_ms="3000") as broker:
        trusted = {"ssl.truststore.location": str(broker.authority_file)}
        own = {"listener.name.sasl_ssl.ssl.keystore.location": str(broker.alice_file)}
        security = secured("SASL_SSL", "SASL_SSL", "PLAIN", "alice", **trusted, **own)
        address = address_of(broker, "SASL_SSL")
        connection = ControllerConnection.connect(address, "b7", 60, security)
        before = broker.sign_in_count()

        def signed_in_again() -> bool:
            assert connection.request(api.METADATA, 9, MetadataRequest(topics=None), 60).brokers
            return broker.sign_in_count() >= before + 2

        wait_until(signed_in_again, WAIT_S, "two more sessions")
        threading.Thread(target=connection.abort).start()
        with pytest.raises(ConnectionFailed):  # at once, or when it is asked again
            wait_until(lambda: not signed_in_again(), WAIT_S, "it is aborted")
        with pytest.raises(ConnectionFailed, match="TLS handshake with the controller"):
            ControllerConnection.connect(address, "b7", 60, secured("SASL_SSL", "SASL_SSL", "PLAIN", "alice", **own))

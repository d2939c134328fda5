"""The broker of the test kit with a listener where clients sign in: users, faults, restarts."""

from __future__ import annotations

import pytest

from kafkalite.client import Client, ConnectionLost, Security, SignInRefused
from kafkalite.errors import KafkaError
from kafkalite.testing import KafkaBroker

SETTINGS = {
    "listeners": "sasl://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "flush.on.acks.all": False,
}


def client(broker: KafkaBroker, mechanism: str = "SCRAM-SHA-256", password: str = "secret") -> Client:  # noqa: S107
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }
    return Client(broker.bootstrap_servers, security=Security(settings), retry_timeout_s=2.0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_signs_in_and_meets_the_faults_that_were_asked_for(mechanism: str) -> None:
    with KafkaBroker(SETTINGS, in_process=True) as broker:
        broker.add_user("alice", "secret")
        broker.create_topic("orders")
        with client(broker, mechanism) as alice:
            fault = broker.fail("ListOffsets", "KAFKA_STORAGE_ERROR", times=None)
            with pytest.raises(KafkaError):
                alice.end_offset("orders", 0)
            assert fault.count
            broker.heal()
            assert alice.end_offset("orders", 0) == 0
            broker.add_user("alice", "another")
            assert alice.end_offset("orders", 0) == 0, "who has signed in stays"
        with client(broker, mechanism) as late, pytest.raises(SignInRefused):
            late.topics()
        with client(broker, mechanism, "another") as alice:
            assert "orders" in alice.topics()


def test_users_outlive_a_crash() -> None:
    with KafkaBroker(SETTINGS, in_process=True) as broker:
        broker.add_user("alice", "secret")
        broker.restart(kill=True)
        with client(broker) as alice:
            assert alice.topics() == {}
        with Client(broker.bootstrap_servers, retry_timeout_s=0.5) as nobody, pytest.raises(ConnectionLost):
            nobody.topics()

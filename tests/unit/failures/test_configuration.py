"""Other clients' configurations, as those clients document them: divided, and refused where a member depends on it."""

import threading
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException

from kafkalite import failures
from kafkalite.failures.adapters.aio import AioPort
from kafkalite.failures.adapters.configuration import divided
from kafkalite.failures.adapters.confluent import CONSUMER_ONLY, ConfluentPort

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    from kafka import KafkaConsumer, KafkaProducer

    from kafkalite.failures.adapters.kafka_python import KafkaPythonPort, own_settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:importlib.resources._legacy")


class Handed:
    """An object that is no mapping."""


@pytest.mark.parametrize(
    ("make", "kind", "error"),
    [
        (lambda: ConfluentPort({"enable.auto.commit": True}, "x"), ValueError, "the policy commits offsets"),
        (lambda: ConfluentPort({"enable.auto.commit": "true"}, "x"), ValueError, "it has to be false"),
        (lambda: ConfluentPort({"auto.offset.reset": "latest"}, "x"), ValueError, "the first records of a topic"),
        (lambda: ConfluentPort({"transactional.id": "mine"}, "x"), ValueError, "name the member with member="),
        (lambda: ConfluentPort(Consumer({"group.id": "billing"}), "x"), TypeError, "pass its configuration instead"),
        (lambda: KafkaPythonPort({"isolation_level": "read_uncommitted"}, "x"), ValueError, "has to be read_committed"),
        (lambda: KafkaPythonPort({"value_deserializer": int}, "x"), ValueError, "use the policy's decode="),
        (lambda: KafkaPythonPort({"bootstrap.servers": "x"}, "x"), TypeError, "did you mean bootstrap_servers?"),
        (lambda: AioPort({"key_deserializer": int}), ValueError, "keys stay bytes"),
        (lambda: AioPort({"loop": None}), TypeError, "the configuration has no loop"),
        (lambda: AioPort(Handed()), TypeError, "pass its configuration instead"),  # type: ignore[arg-type]
    ],
)
def test_what_a_member_cannot_have_is_refused(make: Callable[[], object], kind: type[Exception], error: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert error in str(caught.value)


def test_offsets_that_librdkafka_never_adds_to_a_transaction_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka#5456: the call may wait for the group's coordinator for ever, whatever its timeout is."""
    over = threading.Event()

    class Stuck:
        def send_offsets_to_transaction(self, *_: object) -> None:
            over.wait()

    class Refused:
        def send_offsets_to_transaction(self, *_: object) -> None:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))

    monkeypatch.setattr("kafkalite.failures.adapters.confluent.OFFSETS_TIMEOUT_S", 0.0)
    monkeypatch.setattr("kafkalite.failures.adapters.confluent.OFFSETS_SLACK_S", 0.1)
    port = ConfluentPort({}, "t")
    with pytest.raises(KafkaException) as caught:
        port._add_offsets(Stuck(), {}, None)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT
    over.set()
    monkeypatch.setattr("kafkalite.failures.adapters.confluent.OFFSETS_SLACK_S", 60.0)
    with pytest.raises(KafkaException) as caught:
        port._add_offsets(Refused(), {}, None)
    assert caught.value.args[0].code() == KafkaError.ILLEGAL_GENERATION


def test_settings_go_to_who_knows_them() -> None:
    config = {"group_id": "billing", "client_id": "c", "fetch_min_bytes": 1, "compression_type": "lz4"}
    same = {**config, "enable_auto_commit": False, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    wanted = ({"client_id": "c", "fetch_min_bytes": 1}, {"client_id": "c", "compression_type": "lz4"}, "billing")
    aio = [kind.__init__.__code__.co_varnames for kind in (AIOKafkaConsumer, AIOKafkaProducer)]
    assert divided(same, KafkaConsumer.DEFAULT_CONFIG, KafkaProducer.DEFAULT_CONFIG) == wanted
    assert divided(same, *aio) == wanted
    dotted = {"group.id": "billing", "client.id": "c", "fetch.min.bytes": 1, "enable.auto.commit": "False"}
    both = divided(dotted, None, None, CONSUMER_ONLY)
    assert both == ({"client.id": "c", "fetch.min.bytes": 1}, {"client.id": "c"}, "billing")


@pytest.mark.parametrize(
    "port", [ConfluentPort({"group.id": "x"}, "t"), KafkaPythonPort({"group_id": "x"}, "t"), AioPort({"group_id": "x"})]
)
def test_another_group_than_the_policys_is_refused(port: ConfluentPort | KafkaPythonPort | AioPort) -> None:
    with pytest.raises(ValueError, match="has group 'x'; the policy has group 'billing'"):
        port.open("billing", ["orders"], *[lambda _: None] * 3)
    port.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"client": "java"}, "client is 'java'; it may be 'kafkalite', 'confluent-kafka', 'kafka-python', 'aiokafka'"),
        ({"consumer": {}}, "name one with client="),
        ({"client": "aiokafka", "fetch_size": 1}, "fetch_size are options of kafkalite's client"),
    ],
)
def test_options_of_another_client_are_refused(options: dict[str, object], error: str) -> None:
    bill = failures.handler(topics="orders", group="billing", retry=["1 s"])(lambda order: None)
    with pytest.raises(ValueError, match=r".") as caught:
        bill.run("127.0.0.1:1", **options)
    assert error in str(caught.value)


def test_a_consumer_of_kafka_python_is_asked_for_what_differs_from_its_defaults() -> None:
    class Made:
        """A KafkaConsumer's settings, without a connection."""

        config = {**KafkaConsumer.DEFAULT_CONFIG, "group_id": "billing", "security_protocol": "SSL"}  # noqa: RUF012

    found = own_settings(Made())
    assert found["security_protocol"] == "SSL"
    with pytest.raises(ValueError, match="enable_auto_commit is True"):
        divided(found, KafkaConsumer.DEFAULT_CONFIG, KafkaProducer.DEFAULT_CONFIG)

"""Other clients' configurations, as those clients document them: divided, and refused where a member depends on it."""

import asyncio
import gc
import ssl
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException

from kafkalite import failures
from kafkalite.client import Security
from kafkalite.failures.adapters import aio
from kafkalite.failures.adapters.adoption import security_of
from kafkalite.failures.adapters.aio import AioPort
from kafkalite.failures.adapters.configuration import divided
from kafkalite.failures.adapters.confluent import CONSUMER_ONLY, ConfluentPort
from tests.kit.harness.certificates import PASSWORD, Authority

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    from kafka import KafkaConsumer, KafkaProducer

    from kafkalite.failures.adapters.kafka_python import KafkaPythonPort, own_settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:importlib.resources._legacy")


class Handed:
    """An object that is no mapping."""


HANDED: Any = Handed()


@pytest.mark.parametrize(
    ("make", "kind", "error"),
    [
        (lambda: ConfluentPort({"enable.auto.commit": True}, "x"), ValueError, "the member commits offsets itself"),
        (
            lambda: ConfluentPort({"enable.auto.commit": "true"}, "x"),
            ValueError,
            "enable.auto.commit must be false, not 'true'",
        ),
        (lambda: ConfluentPort({"auto.offset.reset": "latest"}, "x"), ValueError, "the first records of a topic"),
        (
            lambda: ConfluentPort({"transactional.id": "mine"}, "x"),
            ValueError,
            "set member= instead, the name of the member",
        ),
        (lambda: ConfluentPort(Consumer({"group.id": "billing"}), "x"), TypeError, "pass its configuration instead"),
        (lambda: KafkaPythonPort({"isolation_level": "read_uncommitted"}, "x"), ValueError, "must be read_committed"),
        (lambda: KafkaPythonPort({"value_deserializer": int}, "x"), ValueError, "use decode= of the policy instead"),
        (lambda: KafkaPythonPort({"bootstrap.servers": "x"}, "x"), TypeError, "did you mean bootstrap_servers?"),
        (lambda: AioPort({"key_deserializer": int}), ValueError, "keys are passed as bytes"),
        (lambda: AioPort({"loop": None}), TypeError, "the configuration has no loop"),
        (lambda: AioPort(HANDED), TypeError, "must be an AIOKafkaConsumer or a dict"),
        (lambda: KafkaPythonPort(HANDED, "x"), TypeError, "must be a KafkaConsumer or a dict"),
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
    with pytest.raises(ValueError, match="has group 'x', but the policy has group 'billing'"):
        port.open("billing", ["orders"], *[lambda _: None] * 3)
    port.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"client": "java"},
            "client must be one of 'kafkalite', 'confluent-kafka', 'kafka-python', 'aiokafka', not 'java'",
        ),
        ({"consumer": {}}, "name the client, such as"),
        ({"client": "aiokafka", "fetch_size": 1}, "fetch_size apply only to kafkalite's client"),
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
    with pytest.raises(ValueError, match="enable_auto_commit must be false, not True"):
        divided(found, KafkaConsumer.DEFAULT_CONFIG, KafkaProducer.DEFAULT_CONFIG)


NEEDED = {"enable_auto_commit": False, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}


def made(**given: Any) -> AIOKafkaConsumer:
    """One that was created and not started; it can only be created inside a loop."""

    async def make() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(*given.pop("topics", ()), **given)

    return asyncio.run(make())


def test_each_setting_of_an_aiokafka_consumer_is_read() -> None:
    context = ssl.create_default_context()
    given = {
        "bootstrap_servers": "h:1",
        "client_id": "c",
        "group_id": "billing",
        "group_instance_id": "m1",
        "fetch_max_wait_ms": 7,
        "retry_backoff_ms": 8,
        "session_timeout_ms": 9000,
        "consumer_timeout_ms": 250,
        "max_poll_records": 3,
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "bob",
        "sasl_plain_password": "secret",
        **NEEDED,
    }
    consumer = made(**given)
    assert aio.settings_of(consumer) == given
    port = AioPort(consumer)
    assert (port._consumer_config, port._named_group) == (
        {name: value for name, value in given.items() if name not in {*NEEDED, "group_id"}},
        "billing",
    )
    port.close()
    del consumer
    gc.collect()  # would warn of a consumer that nobody has closed


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"group_id": "billing"},
            "offsets itself. isolation_level must be read_committed, not 'read_uncommitted': records",
        ),
        ({"group_id": "billing"}, "enable_auto_commit must be false, not True: the member commits offsets itself"),
        ({**NEEDED}, "the consumer has no group_id"),
        ({**NEEDED, "group_id": "billing", "topics": ["orders"]}, "the policy sets the topics"),
        (
            {**NEEDED, "group_id": "billing", "auto_offset_reset": "latest"},
            "auto_offset_reset must be earliest, not 'latest'",
        ),
        ({**NEEDED, "group_id": "billing", "value_deserializer": int}, "use decode= of the policy instead"),
    ],
)
def test_an_aiokafka_consumer_that_cannot_serve_is_refused(given: dict[str, Any], error: str) -> None:
    consumer = made(**given)
    with pytest.raises(ValueError, match=r".") as caught:
        AioPort(consumer)
    assert error in str(caught.value)
    consumer._closed = True


def test_a_started_aiokafka_consumer_is_refused() -> None:
    consumer = made(group_id="billing", **NEEDED)
    consumer._fetcher = object()
    with pytest.raises(ValueError, match="the consumer is started"):
        AioPort(consumer)
    consumer._closed = True


def test_a_consumer_of_confluent_kafka_is_refused_with_what_to_pass() -> None:
    bill = failures.handler(topics="orders", group="billing", retry=["1 s"])(lambda order: None)
    with pytest.raises(TypeError, match="pass its configuration instead, the dict that you give to Consumer"):
        bill.run(consumer=Consumer({"group.id": "billing"}))


TLS = {"security_protocol": "SSL"}
SASL = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


def test_security_of_a_consumer_is_adopted(tmp_path: Path) -> None:
    authority = Authority()
    ca, both = str(authority.write_pem(tmp_path / "ca.pem")), tmp_path / "me.pem"
    me = authority.issue("bob", client=True)
    me.write_pem(both)
    context = ssl.create_default_context()
    assert security_of({"bootstrap_servers": "h"}) is None
    users = {"sasl.username": "bob", "sasl.password": "secret"}
    wanted = Security({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **users})
    assert security_of({**SASL, "sasl_plain_username": "bob", "sasl_plain_password": "secret"}) == wanted
    dotted = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", **users, "linger.ms": 5}
    assert security_of(dotted) == wanted
    tls = {"security.protocol": "SSL", "ssl.truststore.location": ca}
    assert security_of({**TLS, "ssl_cafile": ca, "ssl_check_hostname": True}) == Security(tls)
    assert security_of({"security.protocol": "ssl", "ssl.ca.location": ca}) == Security(tls)
    unchecked = Security({**tls, "ssl.endpoint.identification.algorithm": ""})
    assert security_of({**TLS, "ssl_cafile": ca, "ssl_check_hostname": False}) == unchecked
    text = both.read_text()
    pem = {"ssl.keystore.type": "PEM"}
    store = {"ssl.keystore.certificate.chain": text, "ssl.keystore.key": text, **pem}
    assert security_of({**TLS, "ssl_cafile": ca, "ssl_certfile": str(both)}) == Security({**tls, **store})
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    key.write_bytes(me.encrypted_key_pem)
    chain.write_bytes(me.chain_pem)
    apart = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key), "ssl.key.password": PASSWORD}
    store = {"ssl.keystore.certificate.chain": chain.read_text(), "ssl.keystore.key": key.read_text(), **pem}
    wanted = Security({**tls, **store, "ssl.key.password": PASSWORD})
    assert security_of({"security.protocol": "SSL", "ssl.ca.location": ca, **apart}) == wanted
    found = security_of({"security.protocol": "SSL", "ssl.ca.pem": Path(ca).read_text()})
    assert found is not None
    none = {"security.protocol": "SSL", "ssl.ca.location": ca, "ssl.endpoint.identification.algorithm": "none"}
    assert security_of(none) == unchecked
    assert security_of({**TLS, "ssl_context": context}) == Security({"security.protocol": "SSL"}, context=context)


@pytest.mark.parametrize(
    "more", [{"ssl_crlfile": "x"}, {"ssl.engine.location": "x"}, {"enable.ssl.certificate.verification": False}]
)
def test_security_that_cannot_be_adopted_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"cannot be adopted .* pass security= as well"):
        security_of({**TLS, **more})


def test_servers_and_security_come_from_the_consumer_unless_the_call_names_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Asked(Exception):
        pass

    def client(servers: object, *, security: object, **_: object) -> None:
        raise Asked(servers, security)

    monkeypatch.setattr("kafkalite.failures.running.Client", client)
    bill = failures.handler(topics="orders", group="billing", retry=["1 s"])(lambda order: None)
    signed = {**SASL, "sasl_plain_username": "bob", "sasl_plain_password": "secret"}
    own = Security({"security.protocol": "PLAINTEXT"})
    for servers, given, security, wanted in (
        (None, {}, None, ("127.0.0.1:9092", None)),
        (None, {"bootstrap_servers": "theirs:1"}, None, ("theirs:1", None)),
        (None, {"bootstrap_servers": "theirs:1", **signed}, None, ("theirs:1", security_of(signed))),
        (None, {"bootstrap_servers": "theirs:1", **signed}, own, ("theirs:1", own)),
        ("mine:1", signed, None, ("mine:1", security_of(signed))),
        ("mine:1", {"bootstrap_servers": "theirs:1", **signed}, None, ("mine:1", None)),
    ):
        with pytest.raises(Asked) as caught:
            bill.run(servers, client="kafka-python", consumer=given, security=security)
        assert caught.value.args == wanted

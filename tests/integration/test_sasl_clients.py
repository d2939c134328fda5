"""Other people's clients, and ours, sign in by each mechanism, with TLS and without."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkalite.client import Client, ConnectionLost, Security, SignInRefused
from kafkalite.errors import ConfigError
from tests.kit.harness import round_trips
from tests.kit.harness.issuer import Issuer, TokenEndpointServer
from tests.kit.harness.round_trips import LINES
from tests.kit.harness.samples import sample
from tests.kit.harness.sasl_broker import PASSWORD, SaslBroker, SaslTlsBroker
from tests.kit.processes.apache_kafka import NotAvailable, run_tool
from tests.kit.processes.broker import wait_until

USERS = {"PLAIN": "alice", "SCRAM-SHA-256": "bob", "SCRAM-SHA-512": "carol"}
LISTENERS = pytest.mark.parametrize("listener", ["SASL", "SASL_SSL"], ids=["plain text", "tls"])
FEW_LISTENERS = pytest.mark.parametrize("listener", sample(["SASL_SSL", "SASL"], 1), ids=["tls", "plain text"])
MECHANISMS = pytest.mark.parametrize("mechanism", USERS)


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslTlsBroker]:
    with SaslTlsBroker(tmp_path_factory.mktemp("sasl")) as broker:
        yield broker


def protocol(listener: str) -> str:
    return "SASL_SSL" if listener == "SASL_SSL" else "SASL_PLAINTEXT"


def librdkafka(sasl: SaslTlsBroker, listener: str, mechanism: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": sasl.address(listener),
        "security.protocol": protocol(listener),
        "ssl.ca.location": str(sasl.authority_file),
        "sasl.mechanism": mechanism,
        "sasl.username": USERS[mechanism],
        "sasl.password": PASSWORD,
    }


def java(sasl: SaslTlsBroker, listener: str, mechanism: str) -> Path:
    """A client's .properties file."""
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    lines = [
        f"security.protocol={protocol(listener)}",
        f"sasl.mechanism={mechanism}",
        f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required \\",
        f'  username="{USERS[mechanism]}" password="{PASSWORD}";',
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={sasl.authority_file}",
    ]
    path = sasl.directory / f"{listener}-{mechanism}.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


@LISTENERS
@MECHANISMS
def test_librdkafka(sasl: SaslTlsBroker, listener: str, mechanism: str) -> None:
    round_trips.librdkafka(librdkafka(sasl, listener, mechanism), f"librdkafka-{listener}-{mechanism}")


def test_librdkafka_signs_in_again_and_again(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connections_max_reauth_ms="1500") as sasl:
        settings = {
            "bootstrap.servers": sasl.address(),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "bob",
            "sasl.password": PASSWORD,
        }
        producer = Producer({**settings, "linger.ms": 0})
        done: list[object] = []

        def write() -> bool:
            producer.produce("again", b"x", on_delivery=lambda error, _message: done.append(error))
            producer.poll(0.01)
            return sasl.sign_in_count() >= 6

        wait_until(write, 120, "the client to sign in six times")
        assert producer.flush(60) == 0
        assert set(done) == {None}


@pytest.mark.slow
def test_java_signs_in_again_and_again(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connections_max_reauth_ms="1500") as sasl:
        sasl.broker.create_topic("again")
        config = tmp_path / "client.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="carol" password="{PASSWORD}";\n'
        )
        try:
            run_tool(
                "org.apache.kafka.tools.ProducerPerformance", "--topic", "again", "--num-records", "6000",
                "--throughput", "300", "--record-size", "100", "--producer.config", str(config),
                "--producer-props", f"bootstrap.servers={sasl.address()}", "acks=all",
            )  # fmt: skip
        except NotAvailable as error:
            pytest.skip(str(error))
        assert sasl.broker.logs.topics["again"].partitions[0].log_end_offset == 6000
        assert sasl.sign_in_count() >= 4


@FEW_LISTENERS
@MECHANISMS
def test_kcat(sasl: SaslTlsBroker, listener: str, mechanism: str) -> None:
    """Debian's librdkafka puts its part of SCRAM's nonce twice, as all did before 2.6.1."""
    round_trips.kcat(librdkafka(sasl, listener, mechanism), f"kcat-{listener}-{mechanism}")


@FEW_LISTENERS
@MECHANISMS
@pytest.mark.filterwarnings("ignore")  # its own
def test_kafka_python(sasl: SaslTlsBroker, listener: str, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": sasl.address(listener),
        "security_protocol": protocol(listener),
        "ssl_cafile": str(sasl.authority_file),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USERS[mechanism],
        "sasl_plain_password": PASSWORD,
    }
    round_trips.kafka_python(settings, f"kafka-python-{listener}-{mechanism}")


@FEW_LISTENERS
@MECHANISMS
def test_aiokafka(sasl: SaslTlsBroker, listener: str, mechanism: str) -> None:
    from aiokafka.helpers import create_ssl_context

    settings = {
        "bootstrap_servers": sasl.address(listener),
        "security_protocol": protocol(listener),
        "ssl_context": create_ssl_context(cafile=str(sasl.authority_file)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USERS[mechanism],
        "sasl_plain_password": PASSWORD,
    }

    round_trips.aiokafka(settings, f"aiokafka-{listener}-{mechanism}")


@FEW_LISTENERS
@pytest.mark.parametrize("mechanism", sample(USERS, 1))
def test_kafkas_own_tools(sasl: SaslTlsBroker, listener: str, mechanism: str) -> None:
    topic = f"java-{listener}-{mechanism}"
    config = str(java(sasl, listener, mechanism))
    where = ["--bootstrap-server", sasl.address(listener)]
    try:
        run_tool(
            "org.apache.kafka.tools.ConsoleProducer", *where, "--producer.config", config, "--topic", topic,
            text="\n".join(LINES),
        )  # fmt: skip
    except NotAvailable as error:
        pytest.skip(str(error))
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--consumer.config", config, "--topic", topic,
        "--from-beginning", "--max-messages", str(len(LINES)), "--timeout-ms", "60000",
    )  # fmt: skip
    assert done.splitlines() == LINES


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def bearers(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """A broker whose clients show tokens of the issuer's."""
    with SaslBroker(tmp_path_factory.mktemp("bearers"), **issuer.settings()) as broker:
        yield broker


def test_librdkafka_with_bearer_tokens(bearers: SaslBroker, issuer: Issuer) -> None:
    asked: list[str] = []

    def tokens(_config: str) -> tuple[str, float]:
        asked.append(issuer.token("dora", lifetime_s=4))
        return asked[-1], time.time() + 4

    settings = {
        "bootstrap.servers": bearers.address(),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": tokens,
    }
    producer = Producer({**settings, "linger.ms": 0})
    done: list[object] = []
    before = bearers.sign_in_count()

    def write() -> bool:
        producer.produce("bearers", b"x", on_delivery=lambda error, _message: done.append(error))
        producer.poll(0.01)
        return len(asked) >= 3 and bearers.sign_in_count() >= before + 4

    wait_until(write, 120, "tokens to be renewed, and shown")
    assert producer.flush(60) == 0
    assert set(done) == {None}
    assert "User:dora" in bearers.principals()


@pytest.mark.filterwarnings("ignore")  # its own
def test_kafka_python_with_bearer_tokens(bearers: SaslBroker, issuer: Issuer) -> None:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return issuer.token("dora")

    settings = {
        "bootstrap_servers": bearers.address(),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = KafkaProducer(**settings)
    for line in LINES:
        producer.send("bearers-python", line.encode())
    producer.flush(60)
    producer.close()
    assert bearers.broker.logs.topics["bearers-python"].partitions[0].log_end_offset == len(LINES)


def test_aiokafka_with_bearer_tokens(bearers: SaslBroker, issuer: Issuer) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return issuer.token("dora")

    async def write() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bearers.address(),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        ) as producer:
            for line in LINES:
                await producer.send("bearers-aio", line.encode())
            await producer.flush()

    asyncio.run(asyncio.wait_for(write(), 120))
    assert bearers.broker.logs.topics["bearers-aio"].partitions[0].log_end_offset == len(LINES)


@pytest.mark.slow
def test_java_with_a_bearer_token(
    bearers: SaslBroker, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(issuer.token("dora"))
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        "sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.FileJwtRetriever\n"
    )
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}"
                       f" -Dorg.apache.kafka.sasl.oauthbearer.allowed.files={token}")  # fmt: skip
    try:
        run_tool(
            "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bearers.address(), "--producer.config",
            str(config), "--topic", "bearers-java", text="\n".join(LINES),
        )  # fmt: skip
    except NotAvailable as error:
        pytest.skip(str(error))
    assert bearers.broker.logs.topics["bearers-java"].partitions[0].log_end_offset == len(LINES)


def test_our_client_with_bearer_tokens_and_without_good_ones(bearers: SaslBroker, issuer: Issuer) -> None:
    texts = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    with Client(bearers.address(), security=Security(texts, token=lambda: issuer.token("dora"))) as client:
        client.topics()
        assert "User:dora" in bearers.principals()
    for bad in (issuer.token("dora", lifetime_s=-100), "nonsense", ""):
        with pytest.raises(SignInRefused):
            Client(bearers.address(), security=Security(texts, token=lambda bad=bad: bad)).topics()  # type: ignore[misc]


def test_our_client_asks_a_token_endpoint(bearers: SaslBroker, issuer: Issuer) -> None:
    with TokenEndpointServer(issuer, "the client", "s:cret") as endpoint:
        texts = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
            "sasl.oauthbearer.client.credentials.client.id": "the client",
            "sasl.oauthbearer.client.credentials.client.secret": "s:cret",
        }
        security = Security(texts)
        for _ in range(3):
            with Client(bearers.address(), security=security) as client:
                client.topics()
        assert endpoint.requests == ["grant_type=client_credentials"], "a token is kept while it is good"
        for more, reason in (
            ({"sasl.oauthbearer.client.credentials.client.secret": "wrong"}, "HTTP status 401"),
            ({"sasl.oauthbearer.token.endpoint.url": endpoint.url + "/elsewhere"}, "HTTP status 302"),
            ({"sasl.oauthbearer.token.endpoint.url": endpoint.url + "/nothing"}, "no valid access_token"),
        ):
            with pytest.raises(SignInRefused, match=reason):
                Client(bearers.address(), security=Security(texts | more)).topics()


def kafkalite(*arguments: str, text: str = "", status: int = 0) -> str:
    """Runs a command; its output, or what it says on stderr when it is to fail."""
    command = [sys.executable, "-m", "kafkalite", *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, env=os.environ | {"COLUMNS": "100"}
    )
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@FEW_LISTENERS
@pytest.mark.parametrize("mechanism", sample(USERS, 1))
def test_our_commands(sasl: SaslTlsBroker, listener: str, mechanism: str) -> None:
    topic = f"ours-{listener}-{mechanism}"
    where = ["-b", sasl.address(listener), "--command-config", str(java(sasl, listener, mechanism))]
    kafkalite("topics", "create", topic, *where)
    kafkalite("produce", "-t", topic, *where, text="\n".join(LINES) + "\n")
    assert kafkalite("consume", "-t", topic, "-o", "beginning", "-e", *where).splitlines() == LINES


def signs_in(sasl: SaslTlsBroker, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
    settings = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    try:
        with Client(sasl.address(), security=Security({"security.protocol": "SASL_PLAINTEXT", **settings})) as client:
            client.topics()
    except SignInRefused:
        return False
    return True


def test_users_by_our_command(sasl: SaslTlsBroker, tmp_path: Path) -> None:
    where = ["-b", sasl.address("SASL_SSL"), "--command-config", str(java(sasl, "SASL_SSL", "SCRAM-SHA-256"))]
    kafkalite("users", "add", "dan", "--password-file", "-", *where, text="first\n")
    listed = kafkalite("users", "list", *where)
    assert [line.split() for line in listed.splitlines() if line.startswith("dan")] == [
        ["dan", "SCRAM-SHA-256", "4096"],
        ["dan", "SCRAM-SHA-512", "4096"],
    ]
    assert signs_in(sasl, "dan", "first")
    kafkalite("users", "delete", "dan", *where)
    assert not signs_in(sasl, "dan", "first")
    assert "user 'dan' has no password" in kafkalite("users", "delete", "dan", *where, status=2)


@pytest.mark.slow
def test_users_by_our_command_and_by_kafkas(sasl: SaslTlsBroker, tmp_path: Path) -> None:
    where = ["-b", sasl.address("SASL_SSL"), "--command-config", str(java(sasl, "SASL_SSL", "SCRAM-SHA-256"))]
    kafkalite("users", "add", "dora", "--password-file", "-", *where, text="first\n")
    assert signs_in(sasl, "dora", "first")
    kafkas = ["--bootstrap-server", sasl.address("PLAINTEXT"), "--entity-type", "users", "--entity-name", "dora"]
    try:
        run_tool(
            "kafka.admin.ConfigCommand", *kafkas, "--alter", "--add-config",
            "SCRAM-SHA-512=[iterations=8192,password=second]",
        )  # fmt: skip
    except NotAvailable as error:
        pytest.skip(str(error))
    assert signs_in(sasl, "dora", "second")
    assert not signs_in(sasl, "dora", "first")
    assert signs_in(sasl, "dora", "first", "SCRAM-SHA-256")
    described = run_tool("kafka.admin.ConfigCommand", *kafkas, "--describe")
    assert "SCRAM-SHA-512=iterations=8192" in described
    run_tool("kafka.admin.ConfigCommand", *kafkas, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert not signs_in(sasl, "dora", "second")
    kafkalite("users", "delete", "dora", *where)
    assert not signs_in(sasl, "dora", "first", "SCRAM-SHA-256")


def test_first_user_of_a_directory_is_made_before_its_first_start(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    for user in ("bob", "gone"):
        kafkalite("users", "add", user, "--data-dir", data, "--password-file", str(password))
    kafkalite("users", "delete", "gone", "--data-dir", data)
    with SaslBroker(tmp_path) as sasl:
        sasl.broker.create_topic("there")
        assert "is in use by another broker" in kafkalite("users", "list", "--data-dir", data, status=2)
        with sasl.connect() as client:
            assert client.scram("bob")[0].error_code == 0
        assert sasl.broker.logs.clean_start
    assert "bob" in kafkalite("users", "list", "--data-dir", data, "--json")
    with SaslBroker(tmp_path) as sasl:
        assert sasl.broker.logs.clean_start
        assert "there" in sasl.broker.logs.topics


def security(sasl: SaslBroker, **settings: str) -> Security:
    texts = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "bob"}
    return Security({**texts, "sasl.password": PASSWORD, **{k.replace("_", "."): v for k, v in settings.items()}})


def test_our_client_signs_in_again_while_answers_are_owed(tmp_path: Path) -> None:
    with SaslBroker(tmp_path, connections_max_reauth_ms="1500") as sasl:
        sasl.broker.create_topic("again")
        with Client(sasl.address(), security=security(sasl)) as client, client.producer() as producer:
            sent = 0

            def write() -> bool:
                nonlocal sent
                producer.send("again", 0, [str(sent).encode()])
                sent += 1
                return sasl.sign_in_count() >= 4

            wait_until(write, 120, "the client to sign in four times")
            producer.flush()
            found = [bytes(value) for chunk in client.read("again", 0) for value in chunk.columns.values]
        assert found == [str(i).encode() for i in range(sent)]


def test_our_client_is_refused_in_one_sentence(sasl: SaslTlsBroker) -> None:
    for settings, reason in (
        ({"sasl_password": "wrong"}, "invalid credentials"),
        ({"sasl_username": "nobody"}, "invalid credentials"),
    ):
        with pytest.raises(SignInRefused, match=reason):
            Client(sasl.address(), security=security(sasl, **settings)).topics()
    with pytest.raises(SignInRefused, match="does not use SASL"):
        Client(sasl.address("PLAINTEXT"), security=security(sasl)).topics()
    with pytest.raises(
        ConnectionLost, match=r"at the first request; if its listener requires SASL, set security.protocol"
    ):
        Client(sasl.address(), retry_timeout_s=1.0).topics()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({}, "sasl.mechanism"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "a"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "x.ScramLoginModule required;"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url"),
        ({"sasl.mechanism": "PLAIN", "sasl.login.class": "x.Y"}, "sasl.login.class"),
    ],
)
def test_settings_of_a_client_that_are_wrong(settings: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        Security({"security.protocol": "SASL_SSL", **settings})
    assert error.value.key == key

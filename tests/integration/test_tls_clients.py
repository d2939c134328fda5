"""Other people's clients, and ours, through TLS: with and without client certificates, PEM and PKCS#12."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client import BrokerUnreachable, Client, Security
from tests.kit.harness import round_trips
from tests.kit.harness.certificates import PASSWORD
from tests.kit.harness.round_trips import LINES
from tests.kit.harness.samples import sample
from tests.kit.harness.tls_broker import TlsBroker
from tests.kit.processes.apache_kafka import NotAvailable, run_tool

LISTENERS = pytest.mark.parametrize("listener", ["SSL", "MUST"], ids=["server certificate", "client certificate too"])


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    directory = tmp_path_factory.mktemp("tls")
    with TlsBroker(directory) as broker:
        broker.alice.write_pkcs12(directory / "alice.p12")
        broker.authority.write_pkcs12(directory / "authority.p12")
        (directory / "alice.chain").write_bytes(broker.alice.chain_pem)
        (directory / "alice.key").write_bytes(broker.alice.encrypted_key_pem)
        yield broker


def librdkafka(tls: TlsBroker, listener: str) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": tls.address(listener),
        "security.protocol": "SSL",
        "ssl.ca.location": str(tls.authority_file),
    }
    if listener == "MUST":
        settings["ssl.certificate.location"] = str(tls.directory / "alice.chain")
        settings["ssl.key.location"] = str(tls.directory / "alice.key")
        settings["ssl.key.password"] = PASSWORD
    return settings


def java(tls: TlsBroker, listener: str, kind: str) -> Path:
    """A client's .properties file."""
    lines = ["security.protocol=SSL", f"ssl.truststore.type={kind}"]
    if kind == "PEM":
        lines.append(f"ssl.truststore.location={tls.authority_file}")
        if listener == "MUST":
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={tls.alice_file}"]
    else:
        lines += [f"ssl.truststore.location={tls.directory / 'authority.p12'}", f"ssl.truststore.password={PASSWORD}"]
        if listener == "MUST":
            lines += ["ssl.keystore.type=PKCS12", f"ssl.keystore.location={tls.directory / 'alice.p12'}"]
            lines += [f"ssl.keystore.password={PASSWORD}", f"ssl.key.password={PASSWORD}"]
    path = tls.directory / f"{listener}-{kind}.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


@LISTENERS
def test_librdkafka(tls: TlsBroker, listener: str) -> None:
    round_trips.librdkafka(librdkafka(tls, listener), f"librdkafka-{listener}")


@LISTENERS
def test_kcat(tls: TlsBroker, listener: str) -> None:
    round_trips.kcat(librdkafka(tls, listener), f"kcat-{listener}")


@LISTENERS
@pytest.mark.filterwarnings("ignore")  # its own
def test_kafka_python(tls: TlsBroker, listener: str) -> None:
    settings = {
        "bootstrap_servers": tls.address(listener),
        "security_protocol": "SSL",
        "ssl_cafile": str(tls.authority_file),
    }
    if listener == "MUST":
        settings |= {
            "ssl_certfile": str(tls.directory / "alice.chain"),
            "ssl_keyfile": str(tls.directory / "alice.key"),
            "ssl_password": PASSWORD,
        }
    round_trips.kafka_python(settings, f"kafka-python-{listener}")


@pytest.mark.parametrize("listener", sample(["MUST", "SSL"], 1))
@pytest.mark.parametrize("kind", sample(["PEM", "PKCS12"], 1))
def test_kafkas_own_tools(tls: TlsBroker, listener: str, kind: str) -> None:
    topic = f"java-{listener}-{kind}"
    config = str(java(tls, listener, kind))
    where = ["--bootstrap-server", tls.address(listener)]
    try:
        run_tool(
            "org.apache.kafka.tools.TopicCommand", *where, "--command-config", config, "--create", "--topic", topic
        )
    except NotAvailable as error:
        pytest.skip(str(error))
    run_tool(
        "org.apache.kafka.tools.ConsoleProducer", *where, "--producer.config", config, "--topic", topic,
        text="\n".join(LINES),
    )  # fmt: skip
    done = run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *where, "--consumer.config", config, "--topic", topic,
        "--from-beginning", "--max-messages", str(len(LINES)), "--timeout-ms", "60000",
    )  # fmt: skip
    assert done.splitlines() == LINES


def kafkalite(*arguments: str, text: str = "", status: int = 0) -> str:
    """Runs a command; its output, or what it says on stderr when it is to fail."""
    command = [sys.executable, "-m", "kafkalite", *arguments]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=120, env=os.environ | {"COLUMNS": "100"}
    )
    assert done.returncode == status, done.stderr
    return done.stderr if status else done.stdout


@LISTENERS
@pytest.mark.parametrize("kind", sample(["PEM", "PKCS12"], 1))
def test_our_commands(tls: TlsBroker, listener: str, kind: str) -> None:
    topic = f"ours-{listener}-{kind}"
    where = ["-b", tls.address(listener), "--command-config", str(java(tls, listener, kind))]
    kafkalite("topics", "create", topic, *where)
    kafkalite("produce", "-t", topic, *where, text="\n".join(LINES) + "\n")
    assert kafkalite("consume", "-t", topic, "-o", "beginning", "-e", *where).splitlines() == LINES
    assert topic in kafkalite("topics", "list", *where)


def test_mirror_between_listeners(tls: TlsBroker, tmp_path: Path) -> None:
    config = str(java(tls, "MUST", "PEM"))
    kafkalite("topics", "create", "copied", "-b", tls.address("PLAINTEXT"))
    kafkalite("produce", "-t", "copied", "-b", tls.address("PLAINTEXT"), text="one\ntwo\n")
    with TlsBroker(tmp_path) as target:
        to_config = str(java(target, "SSL", "PEM"))
        kafkalite(
            "mirror", "--from", tls.address("MUST"), "--from-config", config, "--to", target.address(),
            "--to-config", to_config, "--name", "m", "--topics", "copied", "-e", "-q",
        )  # fmt: skip
        done = kafkalite(
            "consume", "-t", "copied", "-o", "beginning", "-e", "-b", target.address(), "--command-config", to_config
        )
        assert done.splitlines() == ["one", "two"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["security.protocol=SSL"], "certificate"),
        (["security.protocol=PLAINTEXT"], "closed the connection"),
        (["security.protocol=SASL_SSL"], "sasl.mechanism: must be one of PLAIN, SCRAM-SHA-256"),
        (["security.protocol=SSL", "ssl.truststore.location=/absent"], "/absent cannot be read"),
        (["security.protocol=SSL", "ssl.trust.location=x"], "unknown setting; did you mean"),
        (["security.protocol=TLS"], "security.protocol: must be one of PLAINTEXT, SSL"),
    ],
)
def test_what_is_wrong_with_a_clients_settings_is_one_sentence(
    tls: TlsBroker, tmp_path: Path, lines: list[str], reason: str
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("\n".join(lines))
    arguments = ["topics", "list", "-b", tls.address(), "--command-config", str(config), "--timeout", "5"]
    command = [sys.executable, "-m", "kafkalite", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in {1, 2}
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_host_name_is_checked_unless_that_is_turned_off(tls: TlsBroker) -> None:
    config = java(tls, "SSL", "PEM")
    elsewhere = tls.directory / "elsewhere"
    elsewhere.mkdir()
    other = tls.authority.issue("elsewhere", hosts=("elsewhere",), addresses=()).write_pem(elsewhere / "other.pem")
    with TlsBroker(elsewhere, listener_name_ssl_ssl_keystore_location=str(other)) as b:
        arguments = ["topics", "list", "-b", b.address(), "--timeout", "5"]
        done = subprocess.run(
            [sys.executable, "-m", "kafkalite", *arguments, "--command-config", str(config)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert "IP address mismatch" in done.stderr
        relaxed = elsewhere / "relaxed.properties"
        relaxed.write_text(config.read_text() + "ssl.endpoint.identification.algorithm=\n")
        kafkalite(*arguments, "--command-config", str(relaxed))


def test_client_refuses_a_broker_whose_certificate_was_revoked(tls: TlsBroker, tmp_path: Path) -> None:
    lists = tmp_path / "revoked.pem"
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tls.authority_file),
        "ssl.crl.location": str(lists),
    }
    lists.write_bytes(tls.authority.revocations(tls.alice))
    with Client(tls.address(), security=Security(settings)) as client:
        assert client.brokers()
    lists.write_bytes(tls.authority.revocations(tls.server))
    with pytest.raises(BrokerUnreachable, match="certificate revoked"):
        Client(tls.address(), security=Security(settings)).brokers()


def test_large_records_pass_both_ways_through_a_small_socket(tls: TlsBroker) -> None:
    security = Security({"security.protocol": "SSL", "ssl.truststore.location": str(tls.authority_file)})
    with Client(tls.address(), security=security) as client:
        client.admin.create_topic("large")
        values = [bytes([i % 251]) * 700_000 for i in range(20)]
        for value in values:
            client.produce("large", 0, [value])
        found = [value for chunk in client.read("large", 0) for value in chunk.columns.values]
    assert [bytes(value) for value in found] == values

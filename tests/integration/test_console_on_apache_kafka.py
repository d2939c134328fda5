"""The console before Apache Kafka itself, by SASL_SSL: every page is there, and lag is what Kafka's own tool says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.client import Client
from kafkalite.client.security import Security
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from tests.integration.test_console import LOOPBACK, ask, data
from tests.kit.harness.certificates import Authority
from tests.kit.harness.console_client import Visitor
from tests.kit.harness.console_scene import SCRIPT, fill, fill_further
from tests.kit.processes.apache_kafka import ApacheKafka, jars, run_tool
from tests.kit.processes.broker import free_port, wait_until
from tests.kit.processes.maven import NotAvailable

pytestmark = [pytest.mark.compat, pytest.mark.integration, pytest.mark.slow]

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PASSWORD = "a-secret-of-hers"
PAGES = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages/0/2",
    "/groups",
    "/groups/billing",
    "/letters",
    "/letters/dlq.billing.orders",
    "/policies",
    "/policies/shipping",
    "/track?id=c-2&groups=1",
    "/transactions",
    "/brokers",
    "/brokers/1",
    "/replicas?show=all",
    "/quorum",
    "/rights",
    "/search?q=o",
)


class Secured:
    """Apache Kafka with a listener that wants TLS and a password, and the file by which clients come in."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        trusted = authority.write_pem(directory / "authority.pem")
        server = authority.issue("server").write_pem(directory / "server.pem")
        port = free_port()
        self.servers = f"127.0.0.1:{port}"
        self.config = directory / "client.properties"
        self.config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="ann" password="{PASSWORD}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={trusted}\n"
        )
        self.kafka = ApacheKafka(directory / "kafka")
        listeners = f"PLAINTEXT://127.0.0.1:{self.kafka.port},SASL_SSL://{self.servers}"
        self.kafka.format_options = ("--add-scram", f"SCRAM-SHA-256=[name=ann,password={PASSWORD}]")
        self.kafka.settings = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self.kafka.controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ann;User:ANONYMOUS",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    try:
        jars()
    except NotAvailable as missing:
        pytest.skip(f"THE CONSOLE WAS NOT TRIED WITH APACHE KAFKA: {missing}")
    found = Secured(tmp_path_factory.mktemp("console"))
    with found.kafka:
        yield found


@pytest.fixture(scope="module")
def console(secured: Secured) -> Iterator[ConsoleServer]:
    security = Security.from_file(secured.config)
    with Client(secured.servers, security=security) as client:
        fill(client)
        fill_further(client)
    with ConsoleServer(secured.servers, [LOOPBACK], security=security) as server:
        wait_until(lambda: server.sampler.latest is not None, 60, "the first look")
        yield server


def test_every_page_is_there_and_tells_no_secret(console: ConsoleServer) -> None:
    for path in PAGES:
        page = ask(console, path)
        assert page.status == 200, (path, page.text)
        assert PASSWORD not in page.text
        assert SCRIPT not in page.text
        assert PASSWORD not in ask(console, path, accept="application/json").text
    assert data(console, "/brokers/1")["disks"][0]["total"] > 0
    assert [user["user"] for user in data(console, "/rights")["users"]] == ["ann"]
    assert data(console, "/rights")["enforced"]


def test_lag_is_what_its_own_tool_says(secured: Secured, console: ConsoleServer) -> None:
    with Client(secured.servers, security=Security.from_file(secured.config)) as client:
        client.produce("orders", 0, [b"%d" % n for n in range(500)])
        client.groups.commit("slow", {TopicPartition("orders", 0): 123, TopicPartition("orders", 1): 0})
    table = run_tool(
        GROUP_TOOL, "--bootstrap-server", secured.servers, "--command-config", str(secured.config),
        "--describe", "--group", "slow",
    )  # fmt: skip
    rows = [line.split() for line in table.splitlines() if line.startswith("slow")]
    lags = {int(row[2]): int(row[5]) for row in rows}
    assert sum(lags.values()) == 382

    def seen() -> bool:
        sample = console.sampler.latest
        return sample is not None and "slow" in sample.groups and sample.groups["slow"].lag == sum(lags.values())

    wait_until(seen, 60, "the lag in the console")
    page = data(console, "/groups/slow")
    assert {row["partition"]: row["lag"] for row in page["partitions"]} == lags


def test_every_action_is_done_there_too(secured: Secured, console: ConsoleServer) -> None:
    """Over TLS and with a password: the same forms as before kafkalite."""
    visitor = Visitor(console)
    visitor.send("/new-topic", {"name": "acted", "count": 1, "settings": "retention.ms=7200000"})
    sent = visitor.send("/produce", {"topic": "acted", "key_kind": "text", "key": "k", "value": "v", "partition": 0})
    assert (sent["partition"], sent["offset"]) == (0, 0)
    visitor.send("/topics/acted/alter", {"was": "retention.ms=7200000", "settings": "retention.ms=3600000"})
    visitor.send("/topics/acted/grow", {"total": 2})
    for _ in range(3):
        visitor.send("/produce", {"topic": "acted", "value": "more", "partition": 1})
    with Client(secured.servers, security=Security.from_file(secured.config)) as client:
        assert len(client.topic("acted").partitions) == 2
        assert client.admin.describe_topic_configs("acted", ["retention.ms"])[0].value == "3600000"
        client.groups.commit("acting", {TopicPartition("acted", 1): 3})
        planned = visitor.send("/groups/acting/reset-from-file", {"csv": "acting,acted,1,1\nacted,0,9"})
        assert [(row["before"], row["after"]) for row in planned["plan"]] == [(None, 1), (3, 1)]
        assert visitor.send("/groups/acting/reset", {"plan": planned["plan_text"]})["moved"] == 2
        assert client.groups.committed("acting")[TopicPartition("acted", 1)].offset == 1
        visitor.send("/groups/acting/delete", {"confirm": "acting"})
        job = visitor.send("/topics/acted/export", {"format": "ndjson"})["job"]
        wait_until(lambda: visitor.data(f"/jobs/{job}")["job"]["state"] != "running", 60, "the export")
        assert visitor.data(f"/jobs/{job}")["job"]["result"]["records"] == 4
        page = visitor.data("/topics/acted/trim?partition=1&before=2")
        assert page["lost"] == 2
        visitor.send("/topics/acted/trim", {"plan": page["plan_text"], "confirm": "acted"})
        assert client.start_offset("acted", 1) == 2
        with client.producer(transactional_id="acting") as producer:
            producer.begin_transaction()
            producer.send("acted", 0, [b"held"])
            producer.flush()
            (held,) = visitor.data("/transactions")["held"]
            place = f"/transactions/acted/0/{held['start']}/abort"
            assert (held["id"], held["hangs"]) == ("acting", False)
            visitor.send(place, {"confirm": "acted-0", "producer": held["producer"]})
            assert client.transactions.open_in(TopicPartition("acted", 0)) == ()
            producer.abort_transaction()
        visitor.send("/topics/acted/delete", {"confirm": "acted"})
        wait_until(lambda: "acted" not in client.topics(), 60, "the topic is gone")

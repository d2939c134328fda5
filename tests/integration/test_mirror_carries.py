"""What `kafkalite mirror` carries beside records and groups: settings of topics, rules, quotas; and what it says."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.mirror import Mirror, SyncOptions, TopicFilter
from kafkalite.mirror.rules import filter_of
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.processes.apache_kafka import ApacheKafka
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
KAFKA = pytest.mark.slow, pytest.mark.compat
RULES = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
KAFKA_RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Sides(NamedTuple):
    source: str
    target: str


@pytest.fixture(
    scope="module",
    params=[
        "kafkalite to kafkalite",
        pytest.param("apache to kafkalite", marks=KAFKA),
        pytest.param("kafkalite to apache", marks=KAFKA),
    ],
)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    settings = {"flush.on.acks.all": False, "transaction.state.log.num.partitions": 2, **RULES}
    with Broker(settings) as own:
        if request.param == "kafkalite to kafkalite":
            with Broker(settings) as other:
                yield Sides(own.bootstrap_servers, other.bootstrap_servers)
            return
        request.getfixturevalue("kafka_jars")
        with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=KAFKA_RULES) as kafka:
            there, here = kafka.bootstrap, own.bootstrap_servers
            yield Sides(there, here) if request.param[0] == "a" else Sides(here, there)


@pytest.fixture
def clients(sides: Sides) -> Iterator[tuple[Client, Client]]:
    with Client(sides.source, retry_timeout_s=60) as one, Client(sides.target, retry_timeout_s=60) as two:
        yield one, two


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def mirror(sides: Sides, topic: str, *options: str) -> int:
    both = ["--from", sides.source, "--to", sides.target, "--name", topic, "--topics", topic, "-e", "-q"]
    return main(["mirror", *both, *options])


def own_settings(client: Client, topic: str) -> dict[str, str | None]:
    return {row.name: row.value for row in client.admin.describe_topic_configs(topic) if row.source == "topic"}


def rule(user: str, name: str, operation: AclOperation = AclOperation.READ) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.PREFIXED, f"User:{user}", "*", operation, AclPermission.ALLOW)


def test_changed_settings_are_followed(sides: Sides, clients: tuple[Client, Client], topic: str) -> None:
    one, two = clients
    left_out = {"min.insync.replicas": "1", "message.timestamp.type": "LogAppendTime"}
    one.admin.create_topic(topic, 3, configs={"retention.ms": "100000", "cleanup.policy": "compact", **left_out})
    assert mirror(sides, topic) == 0
    assert len(two.topic(topic).partitions) == 3
    assert own_settings(two, topic) == {"retention.ms": "100000", "cleanup.policy": "compact"}
    one.admin.alter_topic_configs(topic, {"retention.ms": "200000", "cleanup.policy": None, "segment.ms": "70000"})
    two.admin.alter_topic_configs(topic, {"min.insync.replicas": "1", "max.message.bytes": "5000"})
    assert mirror(sides, topic) == 0
    assert own_settings(two, topic)["retention.ms"] == "100000", "nobody asked for it"
    one.admin.add_partitions(topic, 5)
    assert mirror(sides, topic, "--sync-topic-configs") == 0
    assert own_settings(two, topic) == {"retention.ms": "200000", "segment.ms": "70000", "min.insync.replicas": "1"}
    assert len(two.topic(topic).partitions) == 5
    one.admin.alter_topic_configs(topic, {"retention.ms": "300000", "segment.ms": "80000"})
    given = ["--config-properties-exclude", "retention.*", "--config-properties-exclude", "min[.]insync[.]replicas"]
    assert mirror(sides, topic, "--sync-topic-configs", *given) == 0
    found = own_settings(two, topic)
    assert (found["retention.ms"], found["segment.ms"]) == ("200000", "80000")


def test_rules_are_carried_and_taken_away_again(
    sides: Sides, clients: tuple[Client, Client], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    one.admin.create_topic(topic, 1)
    one.acls.create([rule("reader", topic), rule("writer", topic, AclOperation.WRITE)])
    two.acls.create([rule("own", topic)])
    assert mirror(sides, topic, "--sync-acls", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["acls"]) == len(one.acls.find())
    assert set(two.acls.find()) == {*one.acls.find(), rule("own", topic)}
    stop = threading.Event()

    def work() -> None:
        with Client(sides.source) as from_, Client(sides.target) as to:
            wanted = SyncOptions(acls=True, quotas=True, interval_s=0.05)
            worker = Mirror(from_, to, name=topic, topics=TopicFilter(topic), sync=wanted)
            worker.run(stop)
            worker.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        one.acls.create([rule("late", topic)])
        one.quotas.alter((("user", "late"),), {"producer_byte_rate": 1000.0, "consumer_byte_rate": 5.0})
        wait_until(lambda: rule("late", topic) in two.acls.find(), TIMEOUT_S, "the rule")
        wait_until(lambda: len(two.quotas.list_all().get((("user", "late"),), {})) == 2, TIMEOUT_S, "the quotas")
        one.acls.delete([filter_of(rule("late", topic)), filter_of(rule("reader", topic))])
        one.quotas.alter((("user", "late"),), {"producer_byte_rate": None, "consumer_byte_rate": 7.0})
        wait_until(lambda: rule("reader", topic) not in two.acls.find(), TIMEOUT_S, "the rule's end")
        wait_until(
            lambda: two.quotas.list_all()[("user", "late"),] == {"consumer_byte_rate": 7.0}, TIMEOUT_S, "the quotas"
        )
    finally:
        stop.set()
        thread.join()
    assert set(two.acls.find()) == {rule("writer", topic, AclOperation.WRITE), rule("own", topic)}
    two.acls.delete([filter_of(acl) for acl in two.acls.find()])
    one.acls.delete([filter_of(acl) for acl in one.acls.find()])


def test_quotas_are_carried(
    sides: Sides, clients: tuple[Client, Client], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    one.admin.create_topic(topic, 1)
    entities = [(("user", topic),), (("user", None),), (("user", topic), ("client-id", "c")), (("ip", "127.0.0.9"),)]
    for entity in entities:
        key = "connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate"
        one.quotas.alter(entity, {key: 1e9})
    assert mirror(sides, topic, "--sync-quotas", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["quotas"]) >= 4
    there = two.quotas.list_all()
    assert {entity: there[entity] for entity in one.quotas.list_all()} == one.quotas.list_all()


def test_users_that_need_a_password_are_listed(
    sides: Sides, clients: tuple[Client, Client], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = clients
    one.admin.create_topic(topic, 1)
    one.users.set_password("alice", "secret", "SCRAM-SHA-256")
    one.users.set_password("both", "secret", "SCRAM-SHA-512")
    two.users.set_password("both", "secret", "SCRAM-SHA-512")
    wait_until(lambda: {"alice", "both"} <= one.users.list_all().keys(), TIMEOUT_S, "the users")
    wait_until(lambda: "both" in two.users.list_all(), TIMEOUT_S, "the user")
    assert mirror(sides, topic, "--list-users", "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["users_missing"] == {"alice": ["SCRAM-SHA-256"]}
    assert "user alice (SCRAM-SHA-256) is missing in the target" in printed.err
    assert "secret" not in printed.out + printed.err


def test_a_part_that_is_refused_is_said_and_the_others_are_carried(
    tmp_path: Path, sides: Sides, clients: tuple[Client, Client], topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A target without an authoriser."""
    one, _ = clients
    one.admin.create_topic(topic, 1)
    one.produce(topic, 0, [b"x"])
    with Broker(log_dirs=str(tmp_path / "data"), transaction_state_log_num_partitions=2) as bare:
        both = ["--from", sides.source, "--to", bare.bootstrap_servers, "--name", topic, "--topics", topic, "-e", "-q"]
        assert main(["mirror", *both, "--sync-acls", "--sync-quotas", "--sync-topic-configs"]) == 0
        printed = capsys.readouterr()
        assert "ACLs not synchronized: " in printed.err
        assert "1 records in 1 transactions" in printed.out


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--groups", "("], "not a regular expression"),
        (["--groups-exclude", "["], "not a regular expression"),
        (["--config-properties-exclude", "*"], "not a regular expression"),
        (["--sync-interval", "0"], "not a positive number of seconds"),
        (["--name", "n" * 230, "--sync-group-offsets"], "is not a valid mirror name"),
    ],
)
def test_what_cannot_begin(
    sides: Sides, topic: str, capsys: pytest.CaptureFixture[str], options: list[str], text: str
) -> None:
    assert mirror(sides, topic, *options) == 2
    error = capsys.readouterr().err
    assert text in error
    assert len(error.splitlines()) == 1

"""Members and letters through TLS, signed in, where a broker asks who may: each client, the commands, and the rights
that docs/failures.md names."""

import asyncio
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from kafkalite.cli import main
from kafkalite.client import Client, Security
from kafkalite.errors import KafkaError, StartupError
from kafkalite.failures import Ledger, Message, Policy, RetryTopics, Runner, handler, run
from kafkalite.failures.adapters.aio import AioPort
from kafkalite.failures.adapters.columnar import ColumnarPort
from kafkalite.failures.adapters.confluent import ConfluentPort
from kafkalite.failures.rows import State
from kafkalite.failures.runner import Port
from tests.kit.harness.failing_groups import records
from tests.kit.harness.guarded_side import ROOT, Side, kafkalite
from tests.kit.harness.samples import sample
from tests.kit.harness.sasl_broker import PASSWORD
from tests.kit.processes.broker import REPOSITORY, wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    from kafka import KafkaConsumer

    from kafkalite.failures.adapters.kafka_python import KafkaPythonPort

pytestmark = [
    pytest.mark.integration,
    pytest.mark.compat,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:importlib.resources._legacy"),
]
TIMEOUT_S = 60.0
MEMBER, OPERATOR = "bob", "alice"
PAGE = REPOSITORY / "docs" / "failures.md"
POLICY = """
group = "billing"
topics = ["orders"]
fatal = ["ValueError"]
[strategy]
kind = "RetryTopics"
delays = ["1 s"]
"""


def librdkafka(side: Side) -> dict[str, str]:
    return {
        "bootstrap.servers": side.address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": MEMBER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(side.sasl.authority_file),
    }


def kafka_python(side: Side) -> dict[str, str]:
    return {
        "bootstrap_servers": side.address,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": MEMBER,
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": str(side.sasl.authority_file),
    }


def aiokafka(side: Side) -> dict[str, object]:
    from aiokafka.helpers import create_ssl_context

    context = create_ssl_context(cafile=str(side.sasl.authority_file))
    more = {name: value for name, value in kafka_python(side).items() if not name.startswith("ssl")}
    return {**more, "ssl_context": context}


PORTS: dict[str, Callable[[Side, Client], Port]] = {
    "kafkalite": lambda side, client: ColumnarPort(client, "kafkalite-failures-billing-m1"),
    "confluent": lambda side, _: ConfluentPort(librdkafka(side), "kafkalite-failures-billing-m1"),
    "kafka-python": lambda side, _: KafkaPythonPort(kafka_python(side), "kafkalite-failures-billing-m1"),
    "aiokafka": lambda side, _: AioPort(aiokafka(side)),
}


def rules_of_the_page(user: str) -> Iterator[list[str]]:
    """The flags of each command of docs/failures.md that gives rights."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"kafkalite acls add --allow-principal User:{user} "):
            words = line.split()
            yield words[5 : words.index("--data-dir")]


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    found = Side(tmp_path / "side")
    with found.sasl:
        with found.client(ROOT) as client:
            client.admin.create_topic("orders", 1)
            client.produce("orders", 0, [b"%d" % number for number in range(10)])
        yield found


def handle(record: Message) -> None:
    if record.value == b"3":
        raise ValueError("never")
    if record.value == b"5" and not record.attempt:
        raise RuntimeError("not yet")


def play(side: Side, port: str) -> None:
    """A member until all is handled."""
    policy = Policy(group="billing", topics=["orders"], strategy=RetryTopics(["1 s"]), fatal=[ValueError])
    stop = threading.Event()
    with side.client(MEMBER) as client, client.twin() as control, side.client(ROOT) as root:
        runner = Runner(policy, handle, PORTS[port](side, client), control, member="m1")
        member = threading.Thread(target=runner.run, args=(stop,))
        member.start()
        ledger = Ledger(root, "billing")

        def states() -> list[State]:
            done = root.groups.committed("billing")
            ledger.refresh()  # in this order: what is committed has its rows
            return [row.state for _, row in ledger.records()] if any(row.offset == 10 for row in done.values()) else []

        try:
            wait_until(lambda: states() == [State.DEAD], TIMEOUT_S, "all is handled", 0.1)
        finally:
            stop.set()
            member.join()


@pytest.mark.parametrize("port", sample(PORTS, 1))
def test_rights_of_the_page_are_enough_for_a_member_by_each_client(side: Side, port: str) -> None:
    for flags in rules_of_the_page("billing"):
        side.allow(MEMBER, *flags)
    play(side, port)


def consumer_of(side: Side, client: str) -> object:
    """A consumer of the client, or its configuration where it does not show its settings."""
    config = aiokafka(side) if client == "aiokafka" else kafka_python(side)
    given: dict[str, object] = {**config, "group_id": "billing", "enable_auto_commit": False}
    given |= {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    if client == "confluent-kafka":
        return librdkafka(side)
    if client == "kafka-python":
        return KafkaConsumer(**given)

    async def made() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(**given)

    return asyncio.run(made())


@pytest.mark.parametrize("client", sample(("aiokafka", "confluent-kafka", "kafka-python"), 2))
def test_the_member_connects_as_the_consumer_does(side: Side, client: str) -> None:
    """Servers, TLS and SASL are named once, in the consumer."""
    for flags in rules_of_the_page("billing"):
        side.allow(MEMBER, *flags)
    stop = threading.Event()
    bill = handler(topics="orders", group="billing", retry=["1 s"], fatal=ValueError)(handle)
    options: dict[str, object] = {"client": client} if client == "confluent-kafka" else {}
    member = threading.Thread(target=lambda: bill.run(stop=stop, consumer=consumer_of(side, client), **options))
    member.start()
    with side.client(ROOT) as root:
        ledger = Ledger(root, "billing")

        def is_dead() -> bool:
            ledger.refresh()
            return [row.state for _, row in ledger.records()] == [State.DEAD]

        try:
            wait_until(lambda: not member.is_alive() or is_dead(), TIMEOUT_S, "the dead letter", 0.1)
            assert member.is_alive()
        finally:
            stop.set()
            member.join()


@pytest.mark.slow
def test_each_right_of_the_page_is_needed(side: Side, tmp_path: Path) -> None:
    """What a member says at its start while rights are missing, until there is the last."""
    policy = Policy(group="billing", topics=["orders"], strategy=RetryTopics(["1 s"]), fatal=[ValueError])
    own, group, retry, dead, ledger, transactions = rules_of_the_page("billing")
    steps = [
        (own, "orders"),
        (retry, "retry.billing.orders.1s"),
        (dead, "dlq.billing.orders"),
        (ledger, "kafkalite.failures.billing"),
        (transactions, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (group, "GROUP_AUTHORIZATION_FAILED"),
    ]
    for flags, reason in steps:
        with pytest.raises((KafkaError, StartupError)) as refusal:
            run(policy, handle, side.address, security=Security(side.settings(MEMBER)))
        assert reason in f"{refusal.value} {getattr(refusal.value, 'name', '')}"
        side.allow(MEMBER, *flags)
    play(side, "kafkalite")


@pytest.mark.slow
def test_a_check_names_the_rights_for_topics_that_a_user_lacks(
    side: Side, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "billing.toml").write_text(POLICY)
    check = ("letters", "check", "--policy", str(tmp_path / "billing.toml"), "-b", side.address, "--command-config")
    assert main([*check, side.configs[OPERATOR]]) == 1
    assert capsys.readouterr().out.startswith("a topic of the policy cannot be checked: topic orders")
    for flags in rules_of_the_page("billing"):
        side.allow(MEMBER, *flags)
    play(side, "kafkalite")
    assert kafkalite(*check, side.configs[MEMBER]) == "no problems found\n"
    side.allow(OPERATOR, "--topic", "*", "--operation", "describe", "--operation", "describe-configs")
    assert main([*check, side.configs[OPERATOR], "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        f"{topic}: this user lacks the ACL for {lacking}"
        for topic, lacking in (
            ("dlq.billing.orders", "write"),
            ("kafkalite.failures.billing", "read and write"),
            ("orders", "read"),
            ("retry.billing.orders.0s", "read and write"),
            ("retry.billing.orders.1s", "read and write"),
        )
    ]


@pytest.mark.slow
def test_rights_of_the_page_are_enough_for_whoever_looks_after_letters(side: Side) -> None:
    for flags in rules_of_the_page("billing"):
        side.allow(MEMBER, *flags)
    play(side, "kafkalite")
    where = ("-b", side.address, "--command-config", side.configs[OPERATOR])
    assert "TOPIC_AUTHORIZATION_FAILED" in kafkalite("letters", "list", "billing", *where, status=1)
    for flags in rules_of_the_page("ops"):
        side.allow(OPERATOR, *flags)
    assert "orders-0-3" in kafkalite("letters", "list", "billing", *where)
    assert "1 dead letter was sent" in kafkalite("letters", "redrive", "billing", "--yes", *where)
    kafkalite("letters", "resolve", "billing", "orders-0-3", *where)
    assert "redriven" in kafkalite("failures", "status", "billing", *where)
    with side.client(ROOT) as client:
        assert [record.value for record in records(client, "retry.billing.orders.0s")] == [b"3"]

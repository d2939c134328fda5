"""Dead letters in topics by exception class: all that reads dead letters finds them there."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalite import failures
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.console.server import ConsoleServer
from kafkalite.failures.dead_topics import RoutedTopics, routed_topics
from kafkalite.failures.letters import LetterBox
from kafkalite.failures.topics import faults
from kafkalite.model import TopicPartition
from kafkalite.track.front import whole_path
from kafkalite.track.searches import Hit
from kafkalite.web.server import parse_address
from kafkalite.wire.record.columns import Record
from tests.kit.harness.console_client import Visitor
from tests.kit.harness.failing_groups import MemberThread, is_done, records, rows_of, small_broker
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 120.0
OTHERS = [pytest.param(client, marks=pytest.mark.slow) for client in ("aiokafka",)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with small_broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap_servers) as client:
        yield client


class Shop:
    """A group that has worked once: orders (one partition) and returns (three), six dead letters in three topics."""

    def __init__(self, client: Client, servers: str, member: str = "kafkalite", **options: Any) -> None:
        name = f"shop-{time.monotonic_ns()}"
        self.client, self.group, self.repaired = client, name, False
        self.orders, self.returns = f"{name}-orders", f"{name}-returns"
        self.unknown, self.wrong = f"{name}-unknown", f"{name}-wrong"
        self.places = [TopicPartition(self.orders, 0), *(TopicPartition(self.returns, n) for n in range(3))]
        for topic, count in ((self.orders, 1), (self.returns, 3)):
            client.admin.create_topic(topic, count)
        for place in self.places:
            values = [b"key", b"other", b"good", b"wrong"] if place.topic == self.orders else [b"good"]
            client.produce(*place, [Record(-1, -1, b"k", value) for value in values])
        for partition in (0, 1, 2):
            client.produce(self.returns, partition, [Record(-1, -1, b"k", b"key")])

        def handle(order: failures.Message) -> None:
            if self.repaired:
                return
            match order.value:
                case b"key":
                    raise KeyError("no customer")
                case b"wrong":
                    raise ZeroDivisionError
                case b"other":
                    raise RuntimeError

        self.bill = failures.handler(
            topics=[self.orders, self.returns],
            group=name,
            strategy=failures.RetryHere(1),
            dead_topics={LookupError: self.unknown, ArithmeticError: self.wrong},
            **options,
        )(handle)
        self.work(servers, member)

    def work(self, servers: str, member: str = "kafkalite") -> None:
        """Until all that there is has been handled."""
        stop = threading.Event()
        thread = threading.Thread(target=self.bill.run, args=(servers,), kwargs={"stop": stop, "client": member})
        thread.start()
        ends = {place: self.client.end_offset(*place) for place in self.places}
        try:
            wait_until(lambda: is_done(self.client, self.group, ends), TIMEOUT_S, "all is handled", 0.1)
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("member", ["kafkalite", "confluent-kafka", *OTHERS])
def test_each_letter_is_in_the_topic_of_its_exception(client: Client, broker: Broker, member: str) -> None:
    shop = Shop(client, broker.bootstrap_servers, member)
    found = Counter((place.topic, place.partition) for place in places(client, shop))
    assert found == {
        (shop.unknown, 0): 2,
        (shop.unknown, 1): 1,
        (shop.unknown, 2): 1,
        (shop.wrong, 0): 1,
        (f"dlq.{shop.group}.{shop.orders}", 0): 1,
    }
    assert client.partition_counts([shop.unknown, shop.wrong]) == {shop.unknown: 3, shop.wrong: 3}
    assert {row.letter_topic for row in rows_of(client, shop.group).values()} == {name for name, _ in found}
    assert list(faults(shop.bill.policy, client)) == []
    assert routed_topics(client, client.topics()).items() >= {shop.unknown: shop.group, shop.wrong: shop.group}.items()


def places(client: Client, shop: Shop) -> list[TopicPartition]:
    return [entry.partition for entry in LetterBox(client, shop.group).entries() if entry.state == "dead"]


def test_letters_are_listed_redriven_and_resolved_in_every_topic(
    client: Client, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(client, broker.bootstrap_servers)

    def letters(action: str, *words: str) -> list[Any]:
        arguments = ["letters", action, shop.group, *words, "--json", "-b", broker.bootstrap_servers]
        assert main(arguments) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert Counter(row["exception"] for row in letters("list")) == {
        "KeyError": 4,
        "RuntimeError": 1,
        "ZeroDivisionError": 1,
    }
    assert sum(row["letters"] for row in letters("count")) == 6
    (shown,) = letters("show", f"{shop.orders}-0-3")
    assert shown["letter"] == f"{shop.wrong}-0-0"
    letters("redrive", "--exception", "KeyError", "--yes")
    assert len(places(client, shop)) == 2
    (resolved,) = letters("resolve", f"{shop.orders}-0-3")
    assert (resolved["letters"], resolved["left"]) == (1, 1)
    assert [place.topic for place in places(client, shop)] == [f"dlq.{shop.group}.{shop.orders}"]
    shop.repaired = True
    with MemberThread(broker.bootstrap_servers, shop.bill.policy, shop.bill.function) as member:
        member.wait_until(lambda: len(rows_of(client, shop.group)) == 2, "the redriven records are handled")


def test_letters_are_found_when_the_policy_no_longer_has_the_topic(client: Client, broker: Broker) -> None:
    shop = Shop(client, broker.bootstrap_servers)
    policy = failures.Policy(
        group=shop.group,
        topics=[shop.orders, shop.returns],
        strategy=failures.RetryHere(1),
        dead_topics={KeyError: shop.unknown},
    )
    with MemberThread(broker.bootstrap_servers, policy, lambda order: None) as member:
        member.wait_until(
            lambda: shop.wrong not in routed_topics(client, client.topics()), "the new policy is published"
        )
    assert Counter(place.topic for place in places(client, shop))[shop.wrong] == 1


def test_found_topics_follow_later_policies_and_a_recreated_ledger(client: Client, broker: Broker) -> None:
    shop = Shop(client, broker.bootstrap_servers)
    found = RoutedTopics()

    def topics_of() -> set[str]:
        names = {shop.unknown, shop.wrong, shop.bill.policy.layout.ledger} & client.topics().keys()
        return found.find(client, names).keys() & {shop.unknown, shop.wrong}

    def run(**routes: Any) -> None:
        policy = failures.Policy(
            group=shop.group, topics=[shop.orders, shop.returns], strategy=failures.RetryHere(1), **routes
        )
        with MemberThread(broker.bootstrap_servers, policy, lambda order: None) as member:
            member.wait_until(lambda: topics_of() == set(routes.get("dead_topics", {}).values()), "it is found")

    assert topics_of() == {shop.unknown, shop.wrong}
    run(dead_topics={KeyError: shop.unknown})
    run()
    assert topics_of() == set()
    run(dead_topics={KeyError: shop.wrong})
    client.admin.delete_topic(shop.bill.policy.layout.ledger)
    wait_until(lambda: topics_of() == set(), TIMEOUT_S, "the ledger is deleted")
    run(dead_topics={KeyError: shop.unknown})


def test_letters_of_another_group_in_the_same_topic_are_left_alone(client: Client, broker: Broker) -> None:
    shop = Shop(client, broker.bootstrap_servers)
    other = Shop(client, broker.bootstrap_servers)
    foreign = records(client, other.wrong)
    client.produce(shop.wrong, 0, foreign)
    box = LetterBox(client, shop.group)
    assert Counter(entry.partition.topic for entry in box.entries())[shop.wrong] == 1
    assert box.redrive().sent == 6
    box.resolve(f"{other.orders}-0-3", "me")
    assert [record.value for record in records(client, shop.wrong)][:2] == [b"wrong", b"wrong"]


def test_the_console_and_the_search_find_them(client: Client, broker: Broker) -> None:
    shop = Shop(client, broker.bootstrap_servers)
    with ConsoleServer(broker.bootstrap_servers, [parse_address("http://127.0.0.1:0", 0)]) as server:
        visitor = Visitor(server)
        rows = {row["name"]: row for row in visitor.data("/letters")["topics"]}
        assert {(name, rows[name]["records"], rows[name]["exact"]) for name in (shop.unknown, shop.wrong)} == {
            (shop.unknown, 4, True),
            (shop.wrong, 1, True),
        }
        page = visitor.data(f"/letters/{shop.unknown}")
        assert (page["group"], len(page["letters"])) == (shop.group, 4)
        assert {row["state"] for row in page["letters"]} == {"dead"}
        job = visitor.send(f"/letters/{shop.unknown}/redrive", {"letter": ["1-0"]})["job"]
        wait_until(lambda: visitor.data(f"/jobs/{job}")["job"]["state"] == "done", TIMEOUT_S, "the job is done", 0.1)
        assert len(visitor.data(f"/letters/{shop.unknown}")["letters"]) == 3
        wait_until(
            lambda: {row["topic"] for row in visitor.data("/")["letters"]} >= {shop.unknown, shop.wrong},
            TIMEOUT_S,
            "the first page has them",
            0.2,
        )
    hit = Hit(TopicPartition(shop.orders, 0), records(client, shop.orders)[3], 0, ())
    assert [str(step.hit) for step in whole_path(client, [hit])] == [f"{shop.orders}-0-3", f"{shop.wrong}-0-0"]

"""T1, T3, T5: transactions under kill -9, two producers with one id, a transaction that its producer never ends.

The checkers are those that tests/reliability/test_transaction_checkers.py shows to find planted faults.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from tests.kit.checkers.transaction_ledger import (
    Outcome,
    TransactionLedger,
    by_partition,
    judge_live,
    judge_stable_offsets,
)
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic, quiet, read_all
from tests.kit.harness.samples import sample
from tests.kit.harness.transactional_load import (
    Follower,
    StableWatch,
    TransactionalProducers,
    again,
    read_committed,
)
from tests.kit.processes.broker import BrokerProcess, wait_until
from tests.reliability.test_killed_under_load import slow

MakeBroker = Callable[..., BrokerProcess]
PARTITION_COUNT = 4
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
READ_COMMITTED = 1


@pytest.mark.parametrize("kill_count", [slow(0), 2, slow(20)])
@pytest.mark.scenario("T1")
def test_killed_while_a_quarter_is_aborted(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", PARTITION_COUNT, {"segment.bytes": "100000"})
    ledger = TransactionLedger()
    follower = Follower(broker.bootstrap, "load", PARTITION_COUNT)
    watch = StableWatch(broker.port, "load", PARTITION_COUNT)
    producers = TransactionalProducers(broker.bootstrap, "load", ledger, PARTITION_COUNT, seed=seed).start()
    for _ in range(kill_count):
        before = ledger.count(Outcome.COMMITTED)
        wait_until(lambda before=before: ledger.count(Outcome.COMMITTED) > before + 3, 60, "commits between kills")
        time.sleep(chance.uniform(0, 0.5))
        broker.kill()
        broker.start()
    enough = 60 if kill_count else 20
    wait_until(lambda: ledger.count(Outcome.COMMITTED) > enough and ledger.count(Outcome.ABORTED) > 5, 120, "enough")
    producers.stop()
    final = read_committed(broker.port, "load", PARTITION_COUNT)
    last = {partition: records[-1].offset for partition, records in final.items()}
    seen = lambda: {partition: record.offset for partition, record in follower.found}  # noqa: E731
    wait_until(lambda: seen() == last, 60, "the follower's end")
    follower.close()
    watch.close()
    for verdict in (
        ledger.judge(final),
        judge_live(by_partition(follower.found), final),
        judge_stable_offsets(watch.samples),
    ):
        assert verdict, f"seed {seed}: {verdict}"
    broker.stop()
    broker.start()
    assert read_committed(broker.port, "load", PARTITION_COUNT) == final, "the second read differs"
    offsets = [record.offset for record in read_all(broker.port, "load", PARTITION_COUNT)[0]]
    assert offsets == sorted(set(offsets))
    assert "Traceback" not in broker.log()


def producer(broker: BrokerProcess, name: str = "one-id", **settings: object) -> Producer:
    options = {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "retry.backoff.ms": 20}
    client = Producer({**options, **settings}, logger=quiet)
    again(client.init_transactions)
    return client


@pytest.mark.parametrize("turn_count", [2, slow(100)])
@pytest.mark.scenario("T3")
def test_the_first_of_two_producers_is_fenced(make_broker: MakeBroker, seed: int, turn_count: int) -> None:
    """Its open transaction is aborted, and nothing that it sends later is ever seen."""
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", 1)
    committed = []
    for turn in range(turn_count):
        elder = producer(broker)
        elder.begin_transaction()
        for number in range(chance.randint(1, 4)):
            elder.produce("load", b"elder %d/%d" % (turn, number), partition=0)
        if chance.random() < 0.7:
            elder.flush(30)  # otherwise it may still be in the client, to be sent after the second producer has begun
        younger = producer(broker)
        younger.begin_transaction()
        younger.produce("load", b"younger %d" % turn, partition=0)
        elder.produce("load", b"elder %d, late" % turn, partition=0)
        with pytest.raises(KafkaException) as refused:
            again(elder.commit_transaction)
        assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort(), refused.value
        again(younger.commit_transaction)
        committed.append(b"younger %d" % turn)
    assert [record.value for record in read_committed(broker.port, "load", 1)[0]] == committed
    broker.kill()
    broker.start()
    assert [record.value for record in read_committed(broker.port, "load", 1)[0]] == committed


@pytest.mark.parametrize("killed", sample([False, True], 1), ids=["running", "killed"])
@pytest.mark.parametrize("turn_count", [2, slow(20)])
@pytest.mark.scenario("T5")
def test_an_abandoned_transaction_is_aborted_after_its_timeout(
    make_broker: MakeBroker, turn_count: int, killed: bool
) -> None:
    """It is aborted after its timeout, and readers of committed records continue."""
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", 1)
    expected = []
    for turn in range(turn_count):
        silent = producer(broker, f"silent-{turn}", **{"transaction.timeout.ms": 1500})
        silent.begin_transaction()
        silent.produce("load", b"never %d" % turn, partition=0)
        assert silent.flush(30) == 0
        other = producer(broker, f"other-{turn}")
        other.begin_transaction()
        other.produce("load", b"seen %d" % turn, partition=0)
        again(other.commit_transaction)
        expected.append(b"seen %d" % turn)
        with wire.Connection(broker.port) as connection:
            end = connection.list_offset("load", 0, -1)[2]
            if not killed:
                assert connection.list_offset("load", 0, -1, isolation=READ_COMMITTED)[2] < end, (
                    "held up by the open transaction"
                )
        if killed:
            broker.kill()
            broker.start()
        with wire.Connection(broker.port) as connection:
            wait_until(
                lambda c=connection, e=end: c.list_offset("load", 0, -1, isolation=READ_COMMITTED)[2] > e,
                60,
                "the abort",
            )
        assert [record.value for record in read_committed(broker.port, "load", 1)[0]] == expected
        with pytest.raises(KafkaException):
            silent.commit_transaction(10)

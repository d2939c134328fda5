"""T4 and T6: requests of an earlier transaction that arrive late or again; a kill in every state of a transaction."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Sequence

import pytest

from kafkalite.broker.handlers import table
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from tests.kit.checkers.transaction_ledger import Outcome, Transaction, TransactionLedger
from tests.kit.harness import wire
from tests.kit.harness.load import create_topic
from tests.kit.harness.samples import sample
from tests.kit.harness.single_requests import Sent, TypedProducer
from tests.kit.harness.transactional_load import READ_COMMITTED, read_committed
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import BrokerProcess, wait_until

MakeBroker = Callable[..., BrokerProcess]
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
FENCED = {47, 90}
"""INVALID_PRODUCER_EPOCH, PRODUCER_FENCED."""

KNOWN = {0, 19, 45, 48, 51, 120}
"""TV1: a duplicate; not admitted because the transaction is just ending (19), or there is none (48, from Produce 11 on
120); a batch older than the last five; CONCURRENT_TRANSACTIONS."""


def needs_tv2() -> None:
    row = table.find(api.END_TXN)
    if row is None or row.newest < 5:
        pytest.skip("EndTxn 5 is not served: transactions of version 2 (KIP-890) are not offered")


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
@pytest.mark.scenario("T4")
def test_late_requests_never_touch_a_later_transaction(make_broker: MakeBroker, tv2: bool) -> None:
    """Three transactions one after the other; within each, all requests of the earlier ones come again.

    Each of the three is committed or aborted, in every combination. A late EndTxn is left out in TV1, where it hits the
    next transaction: that is the hole which TV2 closes.
    """
    if tv2:
        needs_tv2()
    broker = make_broker(settings=SETTINGS).start()
    with TypedConnection(broker.port) as connection:
        for number, outcomes in enumerate(itertools.product([True, False], repeat=3)):
            topic = f"load-{number}"
            create_topic(broker.port, topic, 1)
            expected = three_transactions(TypedProducer(connection, f"t4-{number}", topic, tv2), outcomes)
            wait_until(lambda t=topic: len(set(ends(connection, t))) == 1, 30, "the markers")
            assert [record.value for record in read_committed(broker.port, topic, 1)[0]] == expected, outcomes


def ends(connection: TypedConnection, topic: str) -> tuple[int, int]:
    """(last stable offset, log end)."""
    stable = connection.list_offset(topic, 0, -1, isolation=READ_COMMITTED)[2]
    return stable, connection.list_offset(topic, 0, -1)[2]


def three_transactions(producer: TypedProducer, outcomes: Sequence[bool]) -> list[bytes]:
    """The values of those that are committed."""
    earlier: list[tuple[int, Sent]] = []
    expected = []
    producer.init()
    for number, commit in enumerate(outcomes):
        producer.add([0])
        mine = [(number, producer.add_request([0]))] if not producer.tv2 else []
        for value in (b"%d first" % number, b"%d second" % number):
            mine.append((number, producer.write(0, [wire.Record(None, value)])))
            repeat(producer, earlier)
            expected += [value] if commit else []
        stable, end = ends(producer.connection, producer.topic)
        assert stable < end, f"transaction {number} was ended from outside"
        ended = producer.end(commit=commit)
        if producer.tv2:
            again = wait_until(lambda e=ended: answered(producer.send_late(e)), 30, "the markers")
            assert again == [0], "the same EndTxn again, before anything new, is a retry"
            mine.append((number, ended))
        earlier += mine
    repeat(producer, [entry for entry in earlier if entry[1].key != api.ADD_PARTITIONS_TO_TXN])
    return expected


def answered(code: int) -> list[int]:
    """Nothing while the transaction is still being ended (CONCURRENT_TRANSACTIONS)."""
    return [] if code == ErrorCode.CONCURRENT_TRANSACTIONS else [code]


def repeat(producer: TypedProducer, earlier: list[tuple[int, Sent]]) -> None:
    """Sends all of it again: in TV2 each is fenced by its epoch; in TV1 a batch is a known duplicate."""
    for number, sent in earlier:
        code = producer.send_late(sent)
        if producer.tv2:
            last = sent.key == api.END_TXN and code == 0 and sent.message.producer_epoch == producer.epoch - 1
            assert code in FENCED or last, f"API {sent.key} of transaction {number}, late: {code}"
        else:
            assert code in KNOWN, f"API {sent.key} of transaction {number}, late: {code}"


# ---- T6 -------------------------------------------------------------------------------------------------------------

STATES = ("begun", "added", "one-written", "both-written", "committing", "aborting", "committed", "aborted")


class Life:
    """Transactions of one producer, told to a ledger; the last one is left in some state."""

    def __init__(self, connection: TypedConnection, ledger: TransactionLedger, tv2: bool) -> None:
        self.ledger = ledger
        self.producer = TypedProducer(connection, "t6", "load", tv2)
        self.producer.init()

    def write(self, transaction: Transaction, partition: int, count: int = 3) -> None:
        rows = [self.ledger.next_record(transaction, partition, 20) for _ in range(count)]
        self.producer.write(partition, [wire.Record(key, value) for _, key, value in rows])

    def whole(self, commit: bool) -> None:
        """A transaction from its beginning to its answered end."""
        transaction = self.ledger.begin(0)
        self.producer.add([0, 1])
        for partition in (0, 1):
            self.write(transaction, partition)
        self.producer.end(commit=commit)
        self.ledger.end(transaction, Outcome.COMMITTED if commit else Outcome.ABORTED)

    def reach(self, state: str, chance: random.Random) -> None:
        """Leaves a transaction in a state; what readers may see of it is in the ledger."""
        if state in ("committed", "aborted"):
            self.whole(state == "committed")
            return
        transaction = self.ledger.begin(0)
        self.ledger.end(transaction, Outcome.ABORTED)  # the next producer with this id aborts the open transaction
        if state == "begun":
            return
        self.producer.add([0, 1])
        written = {"added": (), "one-written": (0,)}.get(state, (0, 1))
        for partition in written:
            self.write(transaction, partition)
        if state in ("committing", "aborting"):
            self.ledger.end(transaction, Outcome.UNKNOWN if state == "committing" else Outcome.ABORTED)
            self.producer.send_and_forget(self.producer.end_request(commit=state == "committing"))
            time.sleep(chance.choice((0, 0, 0.001, 0.002, 0.005, 0.02)))


@pytest.mark.slow
@pytest.mark.parametrize("tv2", sample([True, False], 1), ids=["TV2", "TV1"])
@pytest.mark.parametrize("turn_count", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.scenario("T6")
def test_killed_in_every_state(make_broker: MakeBroker, seed: int, turn_count: int, tv2: bool) -> None:
    """Last stable offset, lists of aborted transactions and what is committed are right after each kill."""
    if tv2:
        needs_tv2()
    chance = random.Random(seed)
    broker = make_broker(settings=SETTINGS).start()
    create_topic(broker.port, "load", 2, {"segment.bytes": "2000"})
    ledger = TransactionLedger()
    lowest = [0, 0]
    for state in list(STATES) * turn_count:
        with TypedConnection(broker.port) as connection:
            life = Life(connection, ledger, tv2)
            life.whole(chance.random() < 0.5)
            life.reach(state, chance)
        stable = stable_offsets(broker) if state in ("one-written", "both-written") else None
        broker.kill()
        broker.start()
        found = stable_offsets(broker)
        assert stable is None or found == stable, f"{state}: last stable offsets {stable} became {found}"
        assert all(now >= before for now, before in zip(found, lowest, strict=True)), f"{state}: {found} after {lowest}"
        lowest = found
    with TypedConnection(broker.port) as connection:
        Life(connection, ledger, tv2).whole(True)
        wait_until(lambda: stable_offsets(broker) == log_ends(broker), 30, "nothing left open")
    final = read_committed(broker.port, "load", 2)
    verdict = ledger.judge(final)
    assert verdict, f"seed {seed}: {verdict}"
    broker.kill()
    broker.start()
    assert read_committed(broker.port, "load", 2) == final, "the second read differs"


def stable_offsets(broker: BrokerProcess) -> list[int]:
    with wire.Connection(broker.port) as connection:
        return [connection.list_offset("load", partition, -1, isolation=READ_COMMITTED)[2] for partition in (0, 1)]


def log_ends(broker: BrokerProcess) -> list[int]:
    with wire.Connection(broker.port) as connection:
        return [connection.list_offset("load", partition, -1)[2] for partition in (0, 1)]

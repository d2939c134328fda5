"""A producer that continues when its EndTxn is answered: its next request waits for the markers, in order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer

from kafkalite.broker import Broker
from kafkalite.broker.coordinator.transaction_rules import COMPLETE
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkalite.wire.protocol.messages.end_txn import EndTxnRequest
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

ROUNDS = 200
REFUSED_MAX = 5
PRODUCERS = 3
SECONDS = float(os.environ.get("KAFKALITE_SECONDS", "60"))
TIMEOUT_S = 120
BURNER = "while True: pass"


class TransactionalClient:
    """A transactional producer that sends each request explicitly, in the protocol before KIP-890."""

    def __init__(self, connection: Connection, name: str = "tx") -> None:
        self.connection = connection
        self.name = name
        given = connection.request(
            api.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        )
        assert given.error_code == 0
        self.who = (given.producer_id, given.producer_epoch)

    def send_add(self, number: int) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.who[0],
            v3_and_below_producer_epoch=self.who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[number])],
        )
        self.connection.send(api.ADD_PARTITIONS_TO_TXN, request, version_max=3)

    def send_end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.who[0], producer_epoch=self.who[1], committed=commit
        )
        self.connection.send(api.END_TXN, request, version_max=4)

    def receive(self) -> ErrorCode:
        """The code of the next answer."""
        _, answer = self.connection.receive()
        if hasattr(answer, "error_code"):
            return ErrorCode(answer.error_code)
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def add(self, number: int) -> ErrorCode:
        self.send_add(number)
        return self.receive()

    def end(self, *, commit: bool) -> ErrorCode:
        self.send_end(commit=commit)
        return self.receive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(log_dirs=str(tmp_path)) as running:
        running.create_topic("t", PRODUCERS)
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[TransactionalClient]:
    with closing(Connection.connect("127.0.0.1", broker.port, client_id="test")) as connection:
        yield TransactionalClient(connection)


def test_rounds_of_commit_add_and_abort_are_hardly_ever_refused(client: TransactionalClient) -> None:
    codes: Counter[ErrorCode] = Counter()
    for number in range(ROUNDS):
        added = client.add(number % PRODUCERS)
        codes[added] += 1
        assert added in {0, ErrorCode.CONCURRENT_TRANSACTIONS}
        if added:
            continue
        assert client.end(commit=True) == 0
        added = client.add(number % PRODUCERS)
        codes[added] += 1
        if not added:
            assert client.end(commit=False) == 0
    assert codes[ErrorCode.CONCURRENT_TRANSACTIONS] <= REFUSED_MAX, codes


def test_requests_that_are_pipelined_after_one_that_waits_take_effect_after_it(client: TransactionalClient) -> None:
    """As librdkafka sends EndTxn when the application aborts before AddPartitionsToTxn is answered."""
    assert client.add(0) == 0
    for _ in range(20):
        for commit in (True, False):
            client.send_end(commit=commit)
            client.send_add(1)
        assert [client.receive() for _ in range(4)] == [0, 0, 0, 0]
    assert client.end(commit=True) == 0


def test_request_whose_client_goes_away_while_it_waits_takes_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(log_dirs=str(tmp_path), transaction_completion_wait_max_ms=1_000_000) as broker:
        broker.create_topic("t", PRODUCERS)
        transactions = broker._parts.transactions
        assert transactions is not None
        write, held = transactions.markers.write, []
        monkeypatch.setattr(transactions.markers, "write", lambda *arguments: held.append(arguments))
        with closing(Connection.connect("127.0.0.1", broker.port, client_id="test")) as connection:
            client = TransactionalClient(connection)
            assert (client.add(0), client.end(commit=True)) == (0, 0)
            transaction = transactions.find("tx")
            assert transaction is not None
            client.send_add(1)
            wait_until(lambda: transaction.waits, TIMEOUT_S, "the request to wait")
        wait_until(lambda: not transaction.waits, TIMEOUT_S, "the request to be dropped")
        write(*held[0])
        wait_until(lambda: transaction.now.state in COMPLETE, TIMEOUT_S, "the end of the transaction")
        assert transaction.coming is None


class Work:
    """A librdkafka producer's transactions, some of them aborted, most right after their first record."""

    def __init__(self, broker: Broker, number: int, until: float) -> None:
        self.committed = 0
        self.aborted = 0
        self.failures: list[str] = []
        self.fatal: list[str] = []
        self._number = number
        self._until = until
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"tx-{number}"})
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        draw = random.Random(self._number)
        self._producer.init_transactions(TIMEOUT_S)
        while time.monotonic() < self._until and not self.fatal:
            try:
                self._one(draw)
            except KafkaException as error:
                cause = error.args[0]
                (self.fatal if cause.fatal() else self.failures).append(str(cause))
                if cause.txn_requires_abort():
                    self._producer.abort_transaction(TIMEOUT_S)

    def _one(self, draw: random.Random) -> None:
        self._producer.begin_transaction()
        for _ in range(draw.choice((1, 1, 5))):
            self._producer.produce("t", b"v", partition=draw.randrange(PRODUCERS))
        if draw.random() < 0.5:
            self._producer.poll(draw.choice((0, 0.001, 0.01)))
            self._producer.abort_transaction(TIMEOUT_S)
            self.aborted += 1
        else:
            self._producer.commit_transaction(TIMEOUT_S)
            self.committed += 1


@pytest.mark.slow
@pytest.mark.timeout(2 * (SECONDS + TIMEOUT_S))
def test_three_producers_next_to_a_busy_processor_meet_no_fatal_error(broker: Broker) -> None:
    burner = subprocess.Popen([sys.executable, "-c", BURNER])
    try:
        until = time.monotonic() + SECONDS
        works = [Work(broker, number, until) for number in range(PRODUCERS)]
        for work in works:
            work.thread.start()
        for work in works:
            work.thread.join(SECONDS + TIMEOUT_S)
            assert not work.thread.is_alive()
    finally:
        burner.kill()
        burner.wait()
    for work in works:
        print(f"committed {work.committed}, aborted {work.aborted}, not fatal {work.failures}")
    assert [work.fatal for work in works] == [[]] * PRODUCERS
    assert all(work.committed and work.aborted for work in works)

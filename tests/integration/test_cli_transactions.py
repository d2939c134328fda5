"""`kafkalite transactions` against a broker of this process."""

import json

import pytest

from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.errors import OffsetOutOfRange, TransactionalIdNotFound
from kafkalite.model import TopicPartition
from tests.kit.processes.broker import wait_until

WHERE = TopicPartition("orders", 0)


@pytest.fixture
def broker():
    with Broker(flush_on_acks_all="false", transaction_state_log_num_partitions=2) as running:
        running.create_topic("orders")
        yield running


def call(broker, capsys, *arguments):
    status = main(["transactions", *arguments, "-b", broker.bootstrap_servers])
    return status, capsys.readouterr().out


def test_list_describe_and_abort(broker, capsys):
    with Client(broker.bootstrap_servers) as client, client.producer(transactional_id="till") as producer:
        producer.begin_transaction()
        producer.send("orders", 0, [b"x"])
        producer.flush()
        _, out = call(broker, capsys, "list", "--state", "Ongoing", "--json")
        assert json.loads(out) == [{"transactional_id": "till", "producer_id": 0, "state": "Ongoing"}]
        assert call(broker, capsys, "list", "--older-than", "3600000", "--json") == (0, "[]\n")
        _, out = call(broker, capsys, "list")
        assert out.splitlines()[1].split() == ["till", "0", "Ongoing"]
        _, out = call(broker, capsys, "describe", "--json")
        (row,) = json.loads(out)
        assert (row["producer_epoch"], row["partitions"]) == (0, [{"topic": "orders", "partition": 0}])
        _, out = call(broker, capsys, "describe", "till")
        assert out.splitlines()[1].endswith("orders-0")
        _, out = call(broker, capsys, "open", "--topic", "orders:0", "--json")
        assert [row["start_offset"] for row in json.loads(out)] == [0]
        status, out = call(broker, capsys, "abort", "--topic", "orders:0", "--start-offset", "0")
        assert (status, out) == (0, "aborted the transaction of producer 0 in orders-0\n")
        log = broker.logs.topics["orders"].partitions[0]
        assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
        assert client.transactions.open_in(WHERE) == ()
        producer.abort_transaction()
        wait_until(lambda: client.transactions.describe("till").state == "CompleteAbort", 30, "the end")


def test_what_is_not_there_is_said(broker, capsys):
    with Client(broker.bootstrap_servers) as client:
        with pytest.raises(TransactionalIdNotFound):
            client.transactions.describe("nobody")
        with pytest.raises(OffsetOutOfRange):
            client.transactions.abort(WHERE, 3)
    assert call(broker, capsys, "describe", "nobody")[0] == 1
    assert call(broker, capsys, "open", "--topic", "orders")[0] == 2

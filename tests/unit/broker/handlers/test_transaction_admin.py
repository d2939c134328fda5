"""ListTransactions and DescribeTransactions: filters, patterns, unknown ids."""

import pytest

from kafkalite.broker.coordinator.transaction_coordinator import Transaction
from kafkalite.broker.coordinator.transaction_rules import Metadata, TransactionState
from kafkalite.errors import ErrorCode
from kafkalite.model import TopicPartition
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafkalite.wire.protocol.messages.list_transactions import ListTransactionsRequest
from tests.kit.harness.handler_calls import HandlerCalls, versions


@pytest.fixture
def broker():
    calls = HandlerCalls()
    calls.transactions.start()
    calls.groups.start()
    now_ms = calls.clock.time_ms()
    for producer_id, (name, state, age_ms) in enumerate(
        [("app-1", 1, 5000), ("app-2", 1, 50), ("app-3", 4, 9000), ("other", 2, 100), ("gone", 6, 100)]
    ):
        partitions = frozenset((TopicPartition("t", 1), TopicPartition("t", 0))) if state in (1, 2) else frozenset()
        metadata = Metadata(
            producer_id=producer_id, epoch=3, timeout_ms=60_000, state=TransactionState(state), partitions=partitions,
            start_ms=now_ms - age_ms, update_ms=now_ms,
        )  # fmt: skip
        calls.transactions._transactions[name] = Transaction(name, metadata)
    return calls


def listed(broker, version, **filters):
    answer = broker.call(api.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters))
    return (
        answer.error_code,
        sorted(row.transactional_id for row in answer.transaction_states),
        answer.unknown_state_filters,
    )


@pytest.mark.parametrize("version", versions(api.LIST_TRANSACTIONS))
def test_every_id_that_lives_is_listed(broker, version):
    assert listed(broker, version) == (0, ["app-1", "app-2", "app-3", "other"], [])
    assert listed(broker, version, state_filters=["Ongoing"]) == (0, ["app-1", "app-2"], [])
    assert listed(broker, version, state_filters=["PrepareCommit", "Odd"]) == (0, ["other"], ["Odd"])
    assert listed(broker, version, state_filters=["Odd"]) == (0, [], ["Odd"])
    assert listed(broker, version, producer_id_filters=[2, 77]) == (0, ["app-3"], [])


@pytest.mark.parametrize(("than_ms", "names"), [(0, ["app-1", "app-2", "other"]), (1000, ["app-1"]), (5000, [])])
@pytest.mark.parametrize("version", [1, 2])
def test_those_open_for_long_are_listed(broker, version, than_ms, names):
    assert listed(broker, version, duration_filter=than_ms) == (0, names, [])


@pytest.mark.parametrize(
    ("pattern", "names"),
    [("app-.*", ["app-1", "app-2", "app-3"]), ("app", []), (".*[12]", ["app-1", "app-2"]), ("", None), (None, None)],
)
def test_pattern_has_to_match_the_whole_id(broker, pattern, names):
    everything = ["app-1", "app-2", "app-3", "other"]
    assert listed(broker, 2, transactional_id_pattern=pattern) == (0, everything if names is None else names, [])


def test_pattern_that_is_none_is_refused(broker):
    assert listed(broker, 2, transactional_id_pattern="(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])


def test_ids_are_described(broker):
    request = DescribeTransactionsRequest(transactional_ids=["app-1", "app-3", "nobody", "gone", ""])
    rows = broker.call(api.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    codes = [row.error_code for row in rows]
    assert codes == [0, 0, *[ErrorCode.TRANSACTIONAL_ID_NOT_FOUND] * 2, ErrorCode.INVALID_REQUEST]
    first = rows[0]
    assert (first.transaction_state, first.producer_epoch, first.transaction_timeout_ms) == ("Ongoing", 3, 60_000)
    assert [(topic.topic, topic.partitions) for topic in first.topics] == [("t", [0, 1])]
    assert (rows[1].transaction_state, rows[1].topics) == ("CompleteCommit", [])


def test_nothing_is_listed_while_loading(broker):
    broker.transactions.shards.loaded.clear()
    assert listed(broker, 2) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])

"""A transactional producer against a failing coordinator and leaders: which errors it retries, aborts for, or ends
with.

Random runs: each committed transaction is there once and complete, each other is not there at all. The same with real
brokers is in tests/integration/test_client_transactions.py.
"""

import random
import time
from collections.abc import Iterator

import pytest

from kafkalite.client import Client, DeliveryFailed, GroupMetadata, Producer, TransactionAborted
from kafkalite.errors import (
    ErrorCode,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
)
from kafkalite.model import TopicPartition
from tests.kit.fakes.cluster import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    CLOSE,
    CLOSE_AFTER,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    SECOND_PROTOCOL,
    SILENCE,
    TXN_OFFSET_COMMIT,
    VERSIONS,
    FakeCluster,
)
from tests.kit.harness.samples import sample

OPTIONS = {"request_timeout_s": 5.0, "retry_timeout_s": 20.0, "retry_backoff_s": 0.001}
PROTOCOLS = [pytest.param(VERSIONS, id="first"), pytest.param(SECOND_PROTOCOL, id="second")]
GROUP = GroupMetadata("g", 5, "member", None)
KEY = TopicPartition("t", 0)


@pytest.fixture(params=PROTOCOLS)
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with FakeCluster(nodes=2, versions=request.param) as cluster:
        cluster.create("t", 2)
        yield cluster


@pytest.fixture
def producer(cluster: FakeCluster) -> Iterator[Producer]:
    with Client(cluster.bootstrap, **OPTIONS) as client:
        producer = client.producer(transactional_id="id")
        yield producer
        producer.close()


def write(producer: Producer, *values: bytes) -> None:
    """One transaction, with an offset."""
    with producer.transaction():
        producer.send("t", 0, list(values))
        producer.send("t", 1, list(values))
        producer.send_offsets_to_transaction({KEY: len(values)}, GROUP)


def first_is_spoken(cluster: FakeCluster) -> bool:
    return not cluster.transactions.second


PASSING = [
    pytest.param(api_key, action, id=f"{name}-{action}")
    for name, api_key, actions in (
        ("find", FIND_COORDINATOR, (CLOSE, CLOSE_AFTER, 14, 15)),
        ("init", INIT_PRODUCER_ID, (CLOSE, CLOSE_AFTER, 14, 15, 16, 51)),
        ("partitions", ADD_PARTITIONS_TO_TXN, (CLOSE, CLOSE_AFTER, 3, 14, 15, 16, 51)),
        ("offsets", ADD_OFFSETS_TO_TXN, (CLOSE, CLOSE_AFTER, 14, 16, 51)),
        ("commit", TXN_OFFSET_COMMIT, (CLOSE, CLOSE_AFTER, 3, 14, 15, 16)),
        ("end", END_TXN, (CLOSE, CLOSE_AFTER, 14, 15, 16, 51)),
        ("produce", PRODUCE, (CLOSE, CLOSE_AFTER, 6, 7, 51)),
    )
    for action in actions
]


@pytest.mark.parametrize(("api_key", "action"), PASSING)
def test_what_passes_is_repeated(cluster: FakeCluster, producer: Producer, api_key: int, action: str | int) -> None:
    cluster.fail(api_key, action, times=2)
    write(producer, b"1", b"2")
    write(producer, b"3")
    for partition in (0, 1):
        assert cluster.transactions.committed["t", partition] == [b"1", b"2", b"3"]
    assert cluster.transactions.offsets == {("g", "t", 0): 1}
    assert (5, "member") in cluster.transactions.members


SPOILING = [
    pytest.param(PRODUCE, ErrorCode.INVALID_RECORD, id="produce-invalid-record"),
    pytest.param(PRODUCE, ErrorCode.TRANSACTION_ABORTABLE, id="produce-abortable"),
    pytest.param(PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, id="produce-out-of-order"),
    pytest.param(ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED, id="partitions-not-allowed"),
    pytest.param(ADD_PARTITIONS_TO_TXN, ErrorCode.TRANSACTION_ABORTABLE, id="partitions-abortable"),
    pytest.param(TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, id="commit-old-generation"),
    pytest.param(TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID, id="commit-unknown-member"),
    pytest.param(TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID, id="commit-fenced-instance"),
    pytest.param(END_TXN, ErrorCode.TRANSACTION_ABORTABLE, id="end-abortable"),
]


@pytest.mark.parametrize(("api_key", "code"), SPOILING)
def test_what_spoils_a_transaction_spoils_only_that(cluster, producer, api_key, code) -> None:
    """The next one is written with valid sequences, in any epoch."""
    write(producer, b"before")
    if api_key == ADD_PARTITIONS_TO_TXN and not first_is_spoken(cluster):
        assert cluster.count(ADD_PARTITIONS_TO_TXN) == cluster.count(ADD_OFFSETS_TO_TXN) == 0
        return
    cluster.fail(api_key, code)
    with pytest.raises(TransactionAborted, match="must be aborted"):
        write(producer, b"spoilt")
    for value in (b"after", b"after that"):
        write(producer, value)
    for partition in (0, 1):
        assert cluster.transactions.committed["t", partition] == [b"before", b"after", b"after that"]


def test_spoilt_says_so_until_it_is_aborted(cluster, producer) -> None:
    producer.begin_transaction()
    cluster.fail(PRODUCE, ErrorCode.INVALID_RECORD)
    with pytest.raises(TransactionAborted) as caught:  # noqa: PT012  # which of the calls hears of it is left open
        producer.send("t", 0, [b"x"])
        producer.flush()
    assert isinstance(caught.value.__cause__, DeliveryFailed)
    for call in (
        producer.commit_transaction,
        lambda: producer.send("t", 0, [b"x"]),
        lambda: producer.send_offsets_to_transaction({KEY: 1}, GROUP),
    ):
        with pytest.raises(TransactionAborted):
            call()
    producer.abort_transaction()
    write(producer, b"good")


@pytest.mark.parametrize(
    ("api_key", "code", "error"),
    [
        (INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionalIdAuthorizationFailed),
        (TXN_OFFSET_COMMIT, ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (TXN_OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (END_TXN, ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (END_TXN, ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (END_TXN, ErrorCode.INVALID_TXN_STATE, InvalidTxnState),
        (PRODUCE, ErrorCode.PRODUCER_FENCED, ProducerFenced),
    ],
)
def test_what_ends_a_producer_is_raised_for_good(cluster, producer, api_key, code, error) -> None:
    cluster.fail(api_key, code)
    for _ in range(2):
        with pytest.raises(error):
            write(producer, b"x")
        if api_key == INIT_PRODUCER_ID:
            return  # nothing was begun: it may be allowed later
    assert cluster.transactions.committed == {}


def test_the_coordinator_reports_an_old_epoch(cluster, producer) -> None:
    """A leader says INVALID_PRODUCER_EPOCH of many things; the coordinator, asked to abort, knows of the newer one."""
    write(producer, b"1")
    cluster.transactions.epoch += 1
    with pytest.raises(ProducerFenced, match="newer producer"):
        write(producer, b"2")


def test_an_unanswered_commit_can_be_repeated(cluster) -> None:
    with Client(cluster.bootstrap, **{**OPTIONS, "retry_timeout_s": 0.2}) as client:
        producer = client.producer(transactional_id="id")
        write(producer, b"1")
        producer.begin_transaction()
        producer.send("t", 0, [b"2"])
        cluster.fail(END_TXN, CLOSE_AFTER, times=1000)
        with pytest.raises(Exception, match="closed the connection"):
            producer.commit_transaction()
        with pytest.raises(RuntimeError, match="being committed, not open"):
            producer.send("t", 0, [b"3"])
        cluster.faults.clear()
        producer.commit_transaction()
        write(producer, b"4")
        assert cluster.transactions.committed["t", 0] == [b"1", b"2", b"4"]
        producer.close()


def test_no_first_version_is_used_where_the_second_is_on(cluster, producer) -> None:
    write(producer, b"1")
    used = {key: version for key, version in cluster.requests if key in {PRODUCE, END_TXN, TXN_OFFSET_COMMIT}}
    if first_is_spoken(cluster):
        assert used == {PRODUCE: 11, END_TXN: 4, TXN_OFFSET_COMMIT: 4}
    else:
        assert used == {PRODUCE: 12, END_TXN: 5, TXN_OFFSET_COMMIT: 5}
        assert cluster.count(ADD_PARTITIONS_TO_TXN) == cluster.count(ADD_OFFSETS_TO_TXN) == 0


def test_the_feature_alone_decides(cluster) -> None:
    """Brokers know the second protocol before the cluster has switched it on."""
    with FakeCluster(versions=SECOND_PROTOCOL) as other, Client(other.bootstrap, **OPTIONS) as client:
        other.create("t", 2)
        other.transactions.second = False
        with client.producer(transactional_id="id") as producer:
            write(producer, b"1")
        assert {version for key, version in other.requests if key == PRODUCE} == {11}
        assert other.transactions.committed["t", 0] == [b"1"]


def test_the_time_for_a_delivery_bounds_the_wait_for_its_answer(cluster) -> None:
    """Not the request time-out, which is longer here; and the error gives the time waited."""
    with Client(cluster.bootstrap, request_timeout_s=300.0, retry_backoff_s=0.001) as client:
        cluster.fail(PRODUCE, SILENCE, times=1000)
        producer = client.producer(delivery_timeout_s=0.3)
        began = time.monotonic()
        producer.send("t", 0, [b"x", b"y"])
        with pytest.raises(DeliveryFailed, match=r"2 records for t-0 were not acknowledged within 0.3 s"):
            producer.flush()
        assert time.monotonic() - began < 200.0
        producer.close()


def disturb(source: random.Random, cluster: FakeCluster) -> None:
    """One thing that happens in a cluster's life."""
    api_key = source.choice([PRODUCE, PRODUCE, ADD_PARTITIONS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT, FIND_COORDINATOR])
    match source.randrange(8):
        case 0:
            cluster.drop_connections()
        case 1:
            with cluster.lock:
                cluster.topics["t"][source.randrange(2)].leader = source.randrange(2)
        case 2:
            cluster.fail(PRODUCE, source.choice([87, 120]), skip=source.randrange(4))
        case _:
            cluster.fail(api_key, source.choice([CLOSE, CLOSE_AFTER, 14, 15, 51]), times=source.randrange(1, 3))


@pytest.mark.parametrize("versions", PROTOCOLS)
@pytest.mark.parametrize("seed", sample(range(12), 3))
def test_whole_or_not_at_all(seed: int, versions: dict[int, tuple[int, int]]) -> None:
    source = random.Random(seed)
    expected: dict[tuple[str, int], list[bytes]] = {}
    outcomes = {"committed": 0, "given up": 0, "undone": 0}
    offset = 0
    with FakeCluster(nodes=2, versions=versions) as cluster, Client(cluster.bootstrap, **OPTIONS) as client:
        cluster.create("t", 2)
        producer = client.producer(transactional_id="id", batch_size=source.choice([60, 2000]))
        for number in range(25):
            written: dict[tuple[str, int], list[bytes]] = {}
            try:
                with producer.transaction():
                    for _ in range(source.randrange(1, 5)):
                        partition = source.randrange(2)
                        values = [b"%d-%d" % (number, i) for i in range(source.randrange(1, 20))]
                        producer.send("t", partition, values)
                        written.setdefault(("t", partition), []).extend(values)
                        if source.random() < 0.3:
                            disturb(source, cluster)
                    producer.send_offsets_to_transaction({KEY: number + 1}, GROUP)
                    assert 1 // source.choice([0, 1, 1, 1, 1])
            except ZeroDivisionError:
                outcomes["given up"] += 1
            except TransactionAborted:
                outcomes["undone"] += 1
            else:
                outcomes["committed"] += 1
                offset = number + 1
                for key, values in written.items():
                    expected.setdefault(key, []).extend(values)
        producer.close()
        assert cluster.transactions.committed == expected, f"seed {seed}, {outcomes}"
        assert cluster.transactions.offsets.get(("g", "t", 0), 0) == offset
        assert outcomes["committed"]

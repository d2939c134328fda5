"""The client against a cluster that moves leaders, loses connections, refuses, is late, or answers nonsense."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafkalite import Broker
from kafkalite.cli import reported
from kafkalite.client import (
    BrokerUnreachable,
    Client,
    ClientError,
    DeliveryFailed,
    ProtocolError,
    RequestTimeout,
    SignInRefused,
    UnsupportedApi,
    parse_bootstrap,
)
from kafkalite.client.connection import Connection
from kafkalite.client.errors import BrokerGone
from kafkalite.client.read.damage import next_readable
from kafkalite.client.read.marks import Divergence, Mark
from kafkalite.client.read.reader import Reader
from kafkalite.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidTopic,
    MessageTooLarge,
    OffsetOutOfRange,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from kafkalite.model import OFFSET_LATEST, TopicPartition
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.metadata import MetadataRequest
from kafkalite.wire.record.batches import decode
from kafkalite.wire.record.columns import Record, RecordColumns
from kafkalite.wire.record.compression import Codec
from tests.kit.fakes.cluster import (
    API_VERSIONS,
    CLOSE,
    CLOSE_AFTER,
    CREATE_TOPICS,
    FETCH,
    GARBAGE,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SILENCE,
    VERSIONS,
    FakeCluster,
)

QUICK = {"request_timeout_s": 5.0, "retry_timeout_s": 5.0, "retry_backoff_s": 0.005}
VALUES = [b"value %d" % i for i in range(1000)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(nodes=2) as cluster:
        cluster.create("t", 4)
        yield cluster


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap, **QUICK) as client:
        yield client


def read_all(client: Client, topic: str = "t", partition: int = 0, **options: object) -> list[bytes | None]:
    return [value for chunk in client.read(topic, partition, **options) for value in chunk.columns.values]


# --- connecting and versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", [("a", 1)]),
        ("a:" + "0" * 5000 + "1", [("a", 1)]),
        ("a", [("a", 9092)]),
        (" a:1 , b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9", [("::1", 9)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_bootstrap_list(text: str, found: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == found
    assert parse_bootstrap(text.split(",")) == found


@pytest.mark.parametrize("text", ["", ",", "a:", "a:x", "a:0", "a:65536", "a:²", ":9092", "a:" + "9" * 5000])
def test_bootstrap_list_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"no bootstrap server|is not host:port"):
        parse_bootstrap(text)


def test_a_broker_that_was_there_is_gone_which_is_not_to_have_never_been_there() -> None:
    """A command that had begun has failed on the way: status 1, where systemd starts it again."""
    with Broker() as broker, Client(broker.bootstrap_servers, retry_timeout_s=0.1, retry_backoff_s=0.005) as client:
        broker.create_topic("a")
        assert client.topics()
        ended = [client.topics, lambda: client.end_offset("a", 0), client.twin().topics]
        broker.stop()
        for ask, (kind, status) in zip(ended, [(BrokerGone, 1), (BrokerGone, 1), (BrokerUnreachable, 2)], strict=True):
            with pytest.raises(BrokerUnreachable, match="cannot connect to") as caught:
                ask()
            assert type(caught.value) is kind
            assert reported(lambda: throw(caught.value)) == status  # called here


def throw(error: Exception) -> int:
    raise error


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"127.0.0.1:{port}", **QUICK) as client, pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
        client.topics()


@pytest.mark.parametrize("retried", [True, False])
def test_a_broker_too_busy_to_answer_its_first_connection(cluster: FakeCluster, retried: bool) -> None:
    cluster.fail(API_VERSIONS, SILENCE, times=2)
    slow = {**QUICK, "connect_timeout_s": 0.2, "retry_first_timeout": retried}
    with Client(cluster.bootstrap.partition(",")[0], **slow) as client, client.twin() as twin:
        if retried:
            assert list(twin.topics()) == ["t"]
            return
        with pytest.raises(BrokerUnreachable, match="no Kafka broker responds at") as caught:
            twin.topics()
    assert caught.value.timed_out


def test_a_first_connection_that_is_refused_is_not_retried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    began = time.monotonic()
    refused = pytest.raises(BrokerUnreachable, match="Connection refused")
    with Client(f"127.0.0.1:{port}", retry_first_timeout=True, retry_timeout_s=60) as client, refused as caught:
        client.topics()
    assert not caught.value.timed_out
    assert time.monotonic() < began + 30


def test_something_else_listens() -> None:
    def talk() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=talk)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        wanted = pytest.raises(BrokerUnreachable, match="no Kafka broker responds at")
        with Client(address, **QUICK) as client, wanted:
            client.topics()
        thread.join()


def test_the_second_bootstrap_server_is_asked_when_the_first_is_gone(cluster: FakeCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    with Client(f"127.0.0.1:{dead},{cluster.bootstrap}", **QUICK) as client:
        assert list(client.topics()) == ["t"]


@pytest.mark.parametrize("newest", [0, 1, 2, 3])
def test_api_versions_steps_down(newest: int) -> None:
    with FakeCluster(versions={**VERSIONS, API_VERSIONS: (0, newest)}) as cluster:
        cluster.create("t")
        with Client(cluster.bootstrap, **QUICK) as client:
            assert list(client.topics()) == ["t"]
        assert [version for key, version in cluster.requests if key == API_VERSIONS] == [4, newest]


def test_oldest_versions_still_do() -> None:
    oldest = {key: (low, max(low, 1 if key == METADATA else low)) for key, (low, _) in VERSIONS.items()}
    with FakeCluster(versions=oldest) as cluster:
        cluster.create("t")
        with Client(cluster.bootstrap, **QUICK) as client:
            client.produce("t", 0, VALUES)
            assert read_all(client) == VALUES


def test_an_api_the_broker_lacks_is_named(cluster: FakeCluster, client: Client) -> None:
    with pytest.raises(UnsupportedApi, match="does not support DeleteTopics"):
        client.admin.delete_topic("t")


def test_an_api_too_new_is_named() -> None:
    with FakeCluster(versions={**VERSIONS, FETCH: (17, 18)}) as cluster:
        cluster.create("t")
        with (
            Client(cluster.bootstrap, **QUICK) as client,
            pytest.raises(UnsupportedApi, match="Fetch versions 17 to 18"),
        ):
            read_all(client, start=0, end=1)


# --- look-ups ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_in_the_middle_of_an_answer_leaves_a_client_that_works(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of that response must not be read as the next one."""
    client.topics()
    with monkeypatch.context() as patch:

        def interrupted(self: Connection, view: memoryview, sent: object) -> None:
            self._socket.recv_into(view[:2])
            raise KeyboardInterrupt

        patch.setattr(Connection, "_receive_into", interrupted)
        with pytest.raises(KeyboardInterrupt):
            client.topics()
    assert list(client.topics()) == ["t"]
    client.produce("t", 0, VALUES)
    assert read_all(client) == VALUES


def test_unknown_topic_fails_at_once(cluster: FakeCluster, client: Client) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nope"):
        client.topic("nope")
    assert cluster.count(METADATA) == 1


def test_unknown_partition_says_how_many_there_are(client: Client) -> None:
    with pytest.raises(UnknownTopicOrPartition, match=r"no partition 9 .partition count: 4"):
        client.end_offset("t", 9)


def test_metadata_error_is_raised_with_the_topic(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(METADATA, ErrorCode.INVALID_TOPIC_EXCEPTION)
    with pytest.raises(InvalidTopic, match="t:"):
        client.topic("t")


def test_topic_without_leader_is_waited_for(cluster: FakeCluster, client: Client) -> None:
    cluster.metadata_lags = 3
    assert client.end_offset("t", 0) == 0


def test_auto_creation_only_when_asked(cluster: FakeCluster, client: Client) -> None:
    cluster.auto_create = True
    with pytest.raises(UnknownTopicOrPartition):
        client.topic("made")
    assert client.topic("made", create=True).name == "made"


@pytest.mark.parametrize("action", [CLOSE, CLOSE_AFTER, 6, 5, 74, 3], ids=str)
def test_list_offsets_is_repeated(cluster: FakeCluster, client: Client, action: str | int) -> None:
    client.produce("t", 1, VALUES)
    cluster.fail(LIST_OFFSETS, action)
    assert client.end_offset("t", 1) == 1000


def test_list_offsets_asks_each_leader_once(cluster: FakeCluster, client: Client) -> None:
    keys = [TopicPartition("t", partition) for partition in range(4)]
    assert {key: row.offset for key, row in client.list_offsets(dict.fromkeys(keys, OFFSET_LATEST)).items()} == (
        dict.fromkeys(keys, 0)
    )
    assert cluster.count(LIST_OFFSETS) == 2


def test_leader_that_moved_is_followed(cluster: FakeCluster, client: Client) -> None:
    client.produce("t", 0, VALUES)
    cluster.topics["t"][0].leader = 1
    assert client.end_offset("t", 0) == 1000
    assert read_all(client) == VALUES


def test_silence_is_a_timeout(cluster: FakeCluster) -> None:
    cluster.fail(METADATA, SILENCE, times=100)
    wanted = pytest.raises(RequestTimeout, match="did not respond to Metadata in time")
    with Client(cluster.bootstrap, request_timeout_s=0.05, retry_timeout_s=0.2) as client, wanted:
        client.topic("t")


def test_nonsense_is_said_to_be_that(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(METADATA, GARBAGE)
    with pytest.raises(ProtocolError, match="Metadata"):
        client.topics()
    assert list(client.topics()) == ["t"]


def test_a_lost_cluster_is_given_up_after_the_retry_time(cluster: FakeCluster) -> None:
    with Client(cluster.bootstrap, request_timeout_s=1, retry_timeout_s=0.2, retry_backoff_s=0.01) as client:
        client.topics()
        cluster.__exit__()
        with pytest.raises(ClientError):
            client.end_offset("t", 0)


def test_create_topic_waits_for_its_leader(cluster: FakeCluster, client: Client) -> None:
    cluster.metadata_lags = 2
    client.admin.create_topic("new", 2)
    assert client.partitions("new") == [0, 1]
    with pytest.raises(TopicAlreadyExists, match="new"):
        client.admin.create_topic("new")


def test_create_topic_if_missing_leaves_a_topic_as_it_is(cluster: FakeCluster, client: Client) -> None:
    client.admin.create_topic_if_missing("new", 2)
    client.admin.create_topic_if_missing("new", 3)
    assert client.partitions("new") == [0, 1]
    assert cluster.count(CREATE_TOPICS) == 1


def test_create_topic_if_missing_bears_that_another_client_is_first(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(CREATE_TOPICS, ErrorCode.TOPIC_ALREADY_EXISTS)
    client.admin.create_topic_if_missing("new")


def test_create_topic_is_repeated_when_the_controller_moved(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(CREATE_TOPICS, ErrorCode.NOT_CONTROLLER, times=2)
    client.admin.create_topic("new")
    assert cluster.count(CREATE_TOPICS) == 3


def test_a_connection_closed_while_idle_is_made_again(cluster: FakeCluster, client: Client) -> None:
    client.topics()
    with client.producer() as producer:
        producer.send("t", 0, VALUES[:500])
        producer.flush()
        cluster.drop_connections()
        client.admin.create_topic("new")  # not repeated after a failure, so the connection must be found dead before
        producer.send("t", 0, VALUES[500:])
    assert read_all(client) == VALUES


def test_a_silent_leader_is_noticed_next_to_a_busy_one(cluster: FakeCluster) -> None:
    keys = [TopicPartition("t", 0), TopicPartition("t", 1)]
    with Client(cluster.bootstrap, request_timeout_s=0.3, retry_timeout_s=5, retry_backoff_s=0.005) as client:
        for key in keys:
            client.produce("t", key.partition, VALUES)
        cluster.fail(FETCH, SILENCE)
        with client.reader(dict.fromkeys(keys, 0), max_wait_ms=1) as reader:
            while min(reader.position(key) for key in keys) < 1000:
                reader.poll()
    assert not cluster.faults


def test_create_topic_is_not_repeated_after_a_lost_connection(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(CREATE_TOPICS, CLOSE_AFTER)
    with pytest.raises(ClientError):
        client.admin.create_topic("new")
    assert cluster.count(CREATE_TOPICS) == 1


# --- producing --------------------------------------------------------------------------------------------------------

PASSING = [CLOSE, CLOSE_AFTER, 2, 5, 6, 7, 56]


@pytest.mark.parametrize("action", PASSING, ids=str)
@pytest.mark.parametrize("skip", [0, 1, 3, 6])
def test_idempotent_producer_stores_each_record_once_and_in_order(
    cluster: FakeCluster, client: Client, action: str | int, skip: int
) -> None:
    cluster.fail(PRODUCE, action, skip=skip)
    with client.producer(batch_size=2000) as producer:
        producer.send("t", 0, VALUES)
        producer.flush()
        delivery = producer.delivery("t", 0)
    assert (delivery.record_count, delivery.first_offset, delivery.end_offset) == (1000, 0, 1000)
    assert delivery.batch_count > 8
    assert read_all(client) == VALUES
    assert not cluster.faults


def test_many_faults_in_many_partitions(cluster: FakeCluster, client: Client) -> None:
    for number in range(12):
        cluster.fail(PRODUCE, PASSING[number % len(PASSING)], skip=3)
    with client.producer(batch_size=500) as producer:
        for start in range(0, 1000, 100):
            for partition in range(4):
                producer.send("t", partition, VALUES[start : start + 100])
    assert not cluster.faults
    for partition in range(4):
        assert read_all(client, partition=partition) == VALUES


def test_leader_moves_while_batches_are_in_flight(cluster: FakeCluster, client: Client) -> None:
    with client.producer(batch_size=500) as producer:
        for start in range(0, 1000, 50):
            cluster.topics["t"][0].leader = (start // 200) % 2
            producer.send("t", 0, VALUES[start : start + 50])
    assert read_all(client) == VALUES


def test_connections_dropped_under_load(cluster: FakeCluster, client: Client) -> None:
    with client.producer(batch_size=500) as producer:
        for start in range(0, 1000, 50):
            if start % 200 == 0:
                cluster.drop_connections()
            producer.send("t", 0, VALUES[start : start + 50])
    assert read_all(client) == VALUES


def test_batches_too_large_for_the_topic_are_halved(cluster: FakeCluster, client: Client) -> None:
    cluster.batch_size_max = 700
    with client.producer() as producer:
        producer.send("t", 0, VALUES)
        producer.send("t", 0, [b"one more"])
    assert read_all(client) == [*VALUES, b"one more"]
    assert all(len(raw) <= 700 for _, raw in cluster.topics["t"][0].batches)


def test_one_record_too_large_is_a_failure(cluster: FakeCluster, client: Client) -> None:
    cluster.batch_size_max = 1000
    with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE") as caught:
        client.produce("t", 0, [b"fits", bytes(2000), b"behind it"])
    assert isinstance(caught.value.__cause__, MessageTooLarge)
    assert caught.value.unacknowledged >= 1


def test_a_final_error_names_partition_and_count(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(PRODUCE, ErrorCode.INVALID_RECORD)
    with pytest.raises(DeliveryFailed, match=r"1000 records for t-2 were not acknowledged.*INVALID_RECORD") as caught:
        client.produce("t", 2, VALUES)
    assert caught.value.unacknowledged == 1000


def test_after_a_failure_the_producer_stays_failed(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    producer = client.producer()
    producer.send("t", 0, VALUES)
    with pytest.raises(DeliveryFailed):
        producer.flush()
    with pytest.raises(DeliveryFailed):
        producer.send("t", 0, VALUES)
    producer.close()


def test_delivery_timeout_ends_retries(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR, times=10_000)
    with pytest.raises(DeliveryFailed, match="KAFKA_STORAGE_ERROR"):
        client.produce("t", 0, VALUES, delivery_timeout_s=0.2)


def test_unknown_topic_is_refused(client: Client) -> None:
    with pytest.raises(DeliveryFailed, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.produce("nope", 0, VALUES)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(cluster: FakeCluster, client: Client, acks: int) -> None:
    delivery = client.produce("t", 0, VALUES, acks=acks)
    assert delivery.record_count == 1000
    assert delivery.first_offset == (-1 if acks == 0 else 0)
    assert read_all(client) == VALUES
    assert cluster.count(INIT_PRODUCER_ID) == (1 if acks == -1 else 0)


def test_records_values_and_columns(client: Client) -> None:
    records = [Record(-1, 77, b"k", b"v", (("h", b"x"),)), Record(-1, -1, None, None)]
    client.produce("t", 0, records)
    client.produce("t", 0, [b"value", None])
    client.produce("t", 0, RecordColumns.from_records([Record(-1, 5, b"k", b"")]))
    client.produce("t", 0, [])
    back = [record for chunk in client.read("t", 0) for record in chunk.records()]
    assert [record.value for record in back] == [b"v", None, b"value", None, b""]
    assert back[0] == Record(0, 77, b"k", b"v", (("h", b"x"),))
    assert back[1].timestamp > 1_600_000_000_000
    assert back[2].timestamp > 1_600_000_000_000
    assert back[4].timestamp == 5


@pytest.mark.parametrize("acks", [1, -1])
def test_nothing_is_sent_behind_a_batch_that_failed(cluster: FakeCluster, client: Client, acks: int) -> None:
    cluster.fail(PRODUCE, ErrorCode.INVALID_RECORD, skip=2)
    with pytest.raises(DeliveryFailed, match="INVALID_RECORD"):
        client.produce("t", 0, VALUES, acks=acks, batch_size=1000, in_flight_max=1)
    stored = read_all(client)
    assert stored == VALUES[: len(stored)]
    assert len(cluster.topics["t"][0].batches) == 2


def test_init_producer_id_is_repeated(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.fail(INIT_PRODUCER_ID, CLOSE)
    client.produce("t", 0, VALUES)
    assert cluster.count(INIT_PRODUCER_ID) == 3


@pytest.mark.parametrize(
    "options", [{"acks": 2}, {"acks": 1, "idempotent": True}, {"acks": 0, "idempotent": True}], ids=str
)
def test_options_that_contradict(client: Client, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="acks"):
        client.producer(**options)


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [CLOSE, CLOSE_AFTER, 2, 3, 5, 6, 56, 74, 75, 78], ids=str)
@pytest.mark.parametrize("skip", [0, 1, 4])
def test_reading_resumes_at_its_position(cluster: FakeCluster, client: Client, action: str | int, skip: int) -> None:
    with client.producer(batch_size=500) as producer:
        producer.send("t", 0, VALUES)
    cluster.fail(FETCH, action, skip=skip)
    assert read_all(client, fetch_size=1500) == VALUES
    assert not cluster.faults


def test_reading_several_partitions_of_several_leaders(cluster: FakeCluster, client: Client) -> None:
    keys = [TopicPartition("t", partition) for partition in range(4)]
    for key in keys:
        client.produce("t", key.partition, [b"%d-%d" % (key.partition, i) for i in range(500)], batch_size=700)
    cluster.fail(FETCH, CLOSE, skip=5)
    cluster.fail(FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, skip=5)
    found: dict[TopicPartition, list[bytes | None]] = {key: [] for key in keys}
    with client.reader(dict.fromkeys(keys, 0), ends=dict.fromkeys(keys, 500), fetch_size=2000) as reader:
        for chunk in reader:
            assert chunk.columns.offsets.tolist() == list(
                range(len(found[chunk.partition]), len(found[chunk.partition]) + len(chunk.columns))
            )
            found[chunk.partition] += list(chunk.columns.values)
    for key in keys:
        assert found[key] == [b"%d-%d" % (key.partition, i) for i in range(500)]


@pytest.mark.parametrize(("start", "end"), [(0, 1), (17, 18), (123, 877), (999, 1000), (500, 500), (1000, 1000)])
def test_exactly_the_range(client: Client, start: int, end: int) -> None:
    client.produce("t", 0, VALUES, batch_size=500)
    assert read_all(client, start=start, end=end) == VALUES[start:end]


def test_offset_out_of_range_is_raised_or_reset(cluster: FakeCluster, client: Client) -> None:
    client.produce("t", 0, VALUES, batch_size=500)
    partition = cluster.topics["t"][0]
    partition.start = partition.batches[10][0]
    with pytest.raises(OffsetOutOfRange, match="t-0: cannot fetch at offset 0"):
        read_all(client, start=0)
    assert read_all(client, start=0, reset="earliest") == VALUES[partition.start :]
    key = TopicPartition("t", 0)
    with client.reader({key: 5000}, reset="latest", max_wait_ms=1) as reader:
        reader.poll()
        assert reader.position(key) == 1000


def test_damaged_batch_is_an_error_not_a_record(cluster: FakeCluster, client: Client) -> None:
    client.produce("t", 0, VALUES)
    base, raw = cluster.topics["t"][0].batches[0]
    cluster.topics["t"][0].batches[0] = (base, raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(CorruptMessage, match="CRC"):
        read_all(client)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4], ids=lambda codec: codec.name)
def test_damage_is_named_and_can_be_stepped_over(cluster: FakeCluster, client: Client, codec: Codec) -> None:
    """The records before the damage, and the other partition's records, are delivered first."""
    for partition in (0, 2):  # of the same leader
        for value in (b"a", b"b", b"c", b"d"):
            client.produce("t", partition, [value, value], codec=codec)
    base, raw = cluster.topics["t"][0].batches[2]
    cluster.topics["t"][0].batches[2] = (base, raw[:-2] + bytes([raw[-2] ^ 1]) + raw[-1:])
    bad, good = TopicPartition("t", 0), TopicPartition("t", 2)
    found: dict[TopicPartition, list[bytes | None]] = {bad: [], good: []}
    with client.reader({bad: 0, good: 0}, ends={bad: 8, good: 8}) as reader:
        with pytest.raises(CorruptMessage, match=r"t-0: the batch at offset 4 cannot be read: .*CRC"):  # noqa: PT012
            for chunk in reader:
                found[chunk.partition] += list(chunk.columns.values)
        assert found == {bad: [b"a", b"a", b"b", b"b"], good: [b"a", b"a", b"b", b"b", b"c", b"c", b"d", b"d"]}
        assert reader.position(bad) == 4
        with pytest.raises(CorruptMessage):
            next(iter(reader))
        reader.seek(bad, 6)
        assert [value for chunk in reader for value in chunk.columns.values] == [b"d", b"d"]
    with client.reader({bad: 4}, ends={bad: 6}, check_crcs=False) as reader:
        if codec == Codec.NONE:
            assert sum(len(chunk.columns) for chunk in reader) == 2


@pytest.mark.parametrize(("again", "count"), [(True, 2), (False, 1)])
def test_what_a_broker_calls_damaged_is_named_after_one_more_fetch_at_most(
    cluster: FakeCluster, client: Client, *, again: bool, count: int
) -> None:
    client.produce("t", 0, VALUES)
    cluster.fail(FETCH, ErrorCode.CORRUPT_MESSAGE, times=100)
    with pytest.raises(CorruptMessage, match="t-0: the broker reports a corrupt batch at offset 0") as caught:
        read_all(client, retry_damage=again)
    assert (caught.value.partition, caught.value.offset) == (("t", 0), 0)
    assert cluster.count(FETCH) == count


def test_damage_is_fetched_again_while_another_in_sync_replica_may_lead(cluster: FakeCluster, client: Client) -> None:
    client.produce("t", 0, VALUES)
    cluster.followers_in_sync = (1,)
    cluster.fail(FETCH, ErrorCode.CORRUPT_MESSAGE, times=5)
    assert read_all(client) == VALUES
    assert cluster.count(FETCH) > 5


@pytest.mark.parametrize("damaged", [[1], [1, 2, 4, 5], [1, 3, 4, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9]])
def test_no_good_batch_between_two_damaged_ones_is_stepped_over(
    cluster: FakeCluster, client: Client, damaged: list[int]
) -> None:
    key = TopicPartition("t", 0)
    for number in range(10):
        client.produce("t", 0, [b"%d" % number] * 3)
    for number in damaged:
        base, raw = cluster.topics["t"][0].batches[number]
        cluster.topics["t"][0].batches[number] = (base, raw[:-1] + bytes([raw[-1] ^ 1]))
    found: list[int] = []
    with client.reader({key: 0}, ends={key: 30}) as reader:
        while not reader.done:
            try:
                for chunk in reader.answers():
                    found += chunk.columns.offsets.tolist()
            except CorruptMessage as error:
                reader.seek(key, next_readable(client, key, error.offset, 30))
    assert found == [offset for offset in range(30) if offset // 3 not in damaged]


def test_the_end_of_damage_far_larger_than_a_batch_is_found_in_few_requests(
    cluster: FakeCluster, client: Client
) -> None:
    client.produce("t", 0, [b"x"] * 1_000_000)
    client.produce("t", 0, [b"y"])
    base, raw = cluster.topics["t"][0].batches[0]
    cluster.topics["t"][0].batches[0] = (base, raw[:-1] + bytes([raw[-1] ^ 1]))
    end = cluster.topics["t"][0].batches[1][0]
    assert next_readable(client, TopicPartition("t", 0), 0, end + 1) == end
    assert cluster.count(FETCH) < 600


def test_bytes_that_are_no_batch_are_an_error_not_a_loop(cluster: FakeCluster, client: Client) -> None:
    client.produce("t", 0, VALUES)
    _, raw = cluster.topics["t"][0].batches[0]
    for spoilt in (raw[:16] + b"\x07" + raw[17:], raw[:70]):
        cluster.topics["t"][0].read = lambda offset, size_max, spoilt=spoilt: spoilt
        with pytest.raises(CorruptMessage, match=r"t-0: the \d+ bytes at offset 0 contain no readable batch"):
            read_all(client)


def test_seek_pause_and_drop_need_not_wait_for_what_is_under_way(cluster: FakeCluster, client: Client) -> None:
    for partition in range(4):
        client.produce("t", partition, [b"%d" % i for i in range(100)], batch_size=50)
    keys = [TopicPartition("t", partition) for partition in range(4)]
    with client.reader(dict.fromkeys(keys, 0), fetch_size=200) as reader:
        reader.poll()  # the next fetch of each is under way now
        reader.seek(keys[0], 97)
        reader.pause([keys[1]])
        reader.drop([keys[2]])
        stood = reader.position(keys[1])
        found: dict[TopicPartition, list[bytes | None]] = {key: [] for key in keys}
        while len(found[keys[0]]) < 3 or reader.position(keys[3]) < 100:
            for chunk in reader.poll():
                found[chunk.partition] += list(chunk.columns.values)
        assert found[keys[0]] == [b"97", b"98", b"99"]
        assert (found[keys[1]], found[keys[2]]) == ([], [])
        assert reader.position(keys[1]) == stood
        assert (reader.paused, reader.partitions) == ([keys[1]], [keys[0], keys[1], keys[3]])
        reader.resume([keys[1]])
        reader.add({keys[2]: 99})
        while reader.position(keys[1]) < 100 or reader.position(keys[2]) < 100:
            for chunk in reader.poll():
                found[chunk.partition] += list(chunk.columns.values)
        assert found[keys[1]] == [b"%d" % i for i in range(stood, 100)]
        assert found[keys[2]] == [b"99"]


@pytest.mark.parametrize("seek", [None, 97])
def test_what_came_for_a_paused_partition_is_there_once_it_is_resumed(
    cluster: FakeCluster, client: Client, seek: int | None
) -> None:
    """Unless it has been sent elsewhere meanwhile."""
    for partition in (0, 2):  # of the same leader
        client.produce("t", partition, [b"%d" % i for i in range(100)], batch_size=50)
    one, other = TopicPartition("t", 0), TopicPartition("t", 2)
    with client.reader({one: 0, other: 0}, fetch_size=400) as reader:
        reader.poll()  # the next fetch of both is under way now
        stood = reader.position(one)
        assert 0 < stood < 90
        reader.pause([one])
        asked = cluster.count(FETCH)
        while cluster.count(FETCH) < asked + 2:
            assert one not in {chunk.partition for chunk in reader.poll()}
        assert reader.position(one) == stood
        cluster.fail(FETCH, SILENCE, times=1000)
        if seek is not None:
            reader.seek(one, seek)
        reader.resume([one])
        chunks = [chunk for chunk in reader.poll(0.0) if chunk.partition == one]
        if seek is None:
            assert [next(iter(chunk.columns.values)) for chunk in chunks] == [b"%d" % stood]
            assert reader.position(one) == chunks[0].next_offset > stood
        else:
            assert (chunks, reader.position(one)) == ([], seek)


def test_no_more_is_kept_for_paused_partitions_than_a_fetch_asks_for(cluster: FakeCluster, client: Client) -> None:
    keys = [TopicPartition("t", partition) for partition in (0, 2)]
    for key in keys:
        client.produce(*key, [b"%d" % i for i in range(100)], batch_size=50)
    with client.reader(dict.fromkeys(keys, 0), fetch_size=200) as reader:
        reader.poll()
        reader.pause(keys)
        reader.poll()
        kept = [position.kept for position in reader._positions.values() if position.kept is not None]
        assert len(kept) == 1
        stood = [reader.position(key) for key in keys]
        reader.resume(keys)
        found: dict[TopicPartition, list[bytes | None]] = {key: [] for key in keys}
        while any(reader.position(key) < 100 for key in keys):
            for chunk in reader.poll():
                found[chunk.partition] += list(chunk.columns.values)
        assert [found[key] for key in keys] == [[b"%d" % i for i in range(at, 100)] for at in stood]


def test_fetches_wait_for_a_short_time_while_a_partition_is_paused(cluster: FakeCluster, client: Client) -> None:
    """A resumed partition is fetched only after its leader answered the current fetch."""
    one, other = TopicPartition("t", 0), TopicPartition("t", 2)
    with client.reader({one: 0, other: 0}) as reader:
        while len(cluster.fetch_waits_ms) < 3:
            reader.poll()
        assert set(cluster.fetch_waits_ms) == {500}
        reader.pause([one])
        reader.poll()  # of a fetch that was under way
        cluster.fetch_waits_ms.clear()
        while len(cluster.fetch_waits_ms) < 8:
            reader.poll()
            reader.pause([one])  # it is already
        assert cluster.fetch_waits_ms[:6] in ([10, 20, 40, 80, 100, 100], [20, 40, 80, 100, 100, 100])
        reader.resume([one])
        cluster.fetch_waits_ms.clear()
        while 500 not in cluster.fetch_waits_ms:
            reader.poll()
        assert cluster.fetch_waits_ms.index(500) < 3


def test_poll_returns_when_woken_and_when_its_time_is_over(cluster: FakeCluster, client: Client) -> None:
    cluster.fail(FETCH, SILENCE, times=1000)
    here, there = socket.socketpair()
    with here, there, client.reader({TopicPartition("t", 0): 0}) as reader:
        assert reader.poll(0.0) == []
        there.send(b"x")
        assert reader.poll(wake=here) == []
        assert not reader.done


class ExpiredSession:
    """Signs in before every request of a connection, with an exchange of one request; refused after `count_max`."""

    def __init__(self, connection: Connection, count_max: int = 1000) -> None:
        self.connection = connection
        self.count = 0
        self.count_max = count_max
        connection._sasl, connection._session_ends = self, 0.0  # type: ignore[assignment]  # all of a login that it uses

    def sign_in(self, ask: Callable[[int, int, object], object]) -> int:
        if self.count >= self.count_max:
            raise SignInRefused("no token")
        ask(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        self.count += 1
        self.connection._session_ends = 0.0
        return 0


def test_records_of_a_response_outlive_a_sign_in_before_the_next_fetch(cluster: FakeCluster, client: Client) -> None:
    key = TopicPartition("t", 0)
    client.produce(*key, VALUES, batch_size=500)
    with client.reader({key: 0}, ends={key: 1000}, fetch_size=1500, retry_damage=False) as reader:
        session = ExpiredSession(client.leader(key, reader._lane))
        assert [value for chunk in reader for value in chunk.columns.values] == VALUES
    assert session.count == cluster.count(FETCH) > 5


def test_responses_received_before_a_sign_in_belong_to_their_requests(client: Client) -> None:
    key = TopicPartition("t", 0)
    for value in (b"one", b"two"):
        client.produce(*key, [value])
    connection = client.leader(key, "pipelined")
    for offset in (0, 1):
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        connection.send(FETCH, FetchRequest(topics=[FetchTopic(topic="t", partitions=[asked])]), version_max=12)
    session = ExpiredSession(connection)
    connection.send(METADATA, MetadataRequest(topics=None), version_max=9)
    for value in (b"one", b"two"):
        row = connection.receive()[1].responses[0].partitions[0]
        assert list(decode(row.records).values) == [value]
    assert connection.receive()[1].topics[0].name == "t"
    assert session.count == 1


def test_records_are_handed_out_before_a_refused_sign_in_is_raised(client: Client) -> None:
    key = TopicPartition("t", 0)
    client.produce(*key, [b"one"])
    with client.reader({key: 0}) as reader:
        ExpiredSession(client.leader(key, reader._lane), 1)
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"one"]]
        with pytest.raises(SignInRefused, match="no token"):
            reader.poll()
        client.produce(*key, [b"two"])
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"two"]]


def test_records_kept_while_paused_are_handed_out_before_a_refused_sign_in_is_raised(client: Client) -> None:
    key = TopicPartition("t", 0)
    for value in (b"one", b"two"):
        client.produce(*key, [value])
    with client.reader({key: 0}, fetch_size=100) as reader:  # of one batch
        ExpiredSession(client.leader(key, reader._lane), 2)
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"one"]]
        reader.pause([key])
        assert reader.poll() == []
        reader.resume([key])
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"two"]]
        with pytest.raises(SignInRefused, match="no token"):
            reader.poll()


def test_records_of_one_leader_are_handed_out_before_nonsense_of_another_is_raised(
    cluster: FakeCluster, client: Client
) -> None:
    keys = [TopicPartition("t", partition) for partition in (0, 1)]
    cluster.fail(FETCH, GARBAGE, skip=1)
    with client.reader({}) as reader:
        for key in keys:
            client.produce(*key, [b"%d" % key.partition])
            reader.add({key: 0})
            reader._send_all()
            select.select([client.leader(key, reader._lane)], [], [])
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"0"]]
        with pytest.raises(ProtocolError):
            reader.poll()
        assert list(next(iter(reader)).columns.values) == [b"1"]


@pytest.mark.parametrize("other", [1, 2], ids=["two-leaders", "one-leader"])
def test_records_are_handed_out_before_nonsense_about_the_offset_to_start_over_from_is_raised(
    cluster: FakeCluster, client: Client, other: int
) -> None:
    keys = TopicPartition("t", 0), TopicPartition("t", other)
    for key in keys:
        client.produce(*key, [b"%d" % key.partition])
    with client.reader({keys[0]: 0, keys[1]: 999}, reset="earliest") as reader:
        cluster.fail(LIST_OFFSETS, GARBAGE)
        reader._send_all()
        for key in keys:
            select.select([client.leader(key, reader._lane)], [], [])
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"0"]]
        with pytest.raises(ProtocolError):
            reader.poll()
        assert reader.failed == keys[1]
        assert list(next(iter(reader)).columns.values) == [b"%d" % other]


def test_records_are_handed_out_before_a_refused_comparison_with_the_log_is_raised(client: Client) -> None:
    keys = [TopicPartition("t", partition) for partition in (0, 2)]
    for key in keys:
        client.produce(*key, [b"%d" % key.partition])
    refusals = [SignInRefused("no token")]

    def find_divergences(_: object) -> list[Divergence]:
        if refusals:
            raise refusals.pop()
        return []

    starts = {keys[0]: 0, keys[1]: 0}
    with Reader(client, starts, marks={keys[1]: Mark(0)}, find_divergences=find_divergences) as reader:
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"0"]]
        with pytest.raises(SignInRefused, match="no token"):
            reader.poll()
        assert reader.failed == keys[1]
        assert list(next(iter(reader)).columns.values) == [b"2"]


def test_a_diverged_log_is_found_again_if_where_to_start_over_is_unknown(cluster: FakeCluster, client: Client) -> None:
    key = TopicPartition("t", 0)
    client.produce(*key, [b"one"])
    client.produce(*key, [b"two"])
    divergence = Divergence(key, 1, None)
    with Reader(
        client, {key: 1}, marks={key: Mark(0)}, find_divergences=lambda _: [divergence], reset="earliest"
    ) as reader:
        cluster.fail(LIST_OFFSETS, GARBAGE)
        assert reader.poll() == []
        with pytest.raises(ProtocolError):
            reader.poll()
        assert reader.gone_back == {}
        found = next(iter(reader)).columns.values
        assert (list(found), reader.gone_back) == ([b"one", b"two"], {key: 0})


def test_records_before_damage_are_handed_out_although_its_replicas_cannot_be_asked_for(
    cluster: FakeCluster, client: Client
) -> None:
    """And no chunk of another partition has them."""
    bad, good = TopicPartition("t", 0), TopicPartition("t", 2)
    for key, value in ((bad, b"a"), (bad, b"b"), (good, b"c")):
        client.produce(*key, [value])
    base, raw = cluster.topics["t"][0].batches[1]
    cluster.topics["t"][0].batches[1] = (base, raw[:-1] + bytes([raw[-1] ^ 1]))
    with client.reader({bad: 0}, max_wait_ms=1) as reader:
        assert [list(chunk.columns.values) for chunk in reader.poll()] == [[b"a"]]
        reader.seek(bad, 0)
        cluster.fail(METADATA, GARBAGE)
        assert list(next(iter(reader)).columns.values) == [b"a"]
        assert not cluster.faults
        reader.drop([bad])
        reader.add({good: 0})
        assert list(next(iter(reader)).columns.values) == [b"c"]


def test_a_deleted_topic_stops_no_other(cluster: FakeCluster, client: Client) -> None:
    cluster.create("other")
    keys = [TopicPartition("t", 0), TopicPartition("other", 0)]
    with client.reader(dict.fromkeys(keys, 0), max_wait_ms=1, await_topics=True) as reader:
        reader.poll()
        with cluster.lock:
            gone = cluster.topics.pop("other")
        client.produce("t", 0, [b"x"])
        while reader.position(keys[0]) < 1:
            reader.poll()
        cluster.topics["other"] = gone
        client.produce("other", 0, [b"y"])
        while reader.position(keys[1]) < 1:
            reader.poll()
    with client.reader({TopicPartition("gone", 0): 0}) as reader:
        reader.poll()
        with pytest.raises(UnknownTopicOrPartition):
            reader.poll()


def test_a_bomb_is_an_error_not_memory(client: Client) -> None:
    client.produce("t", 0, [bytes(1_000_000)] * 3, codec=Codec.ZSTD, batch_size=10_000_000)
    with pytest.raises(CorruptMessage, match="decompresses to more than 1000000 bytes"):
        read_all(client, decompressed_size_max=1_000_000)
    assert len(read_all(client, decompressed_size_max=4_000_000)) == 3


def test_looking_something_up_while_reading(client: Client) -> None:
    client.produce("t", 0, VALUES, batch_size=500)
    count = 0
    for chunk in client.read("t", 0, fetch_size=1500):
        assert client.end_offset("t", 0) == 1000
        count += len(chunk.columns)
    assert count == 1000


def test_tailing_sees_what_comes(client: Client) -> None:
    key = TopicPartition("t", 0)
    with client.reader({key: 0}, max_wait_ms=1) as reader:
        assert reader.poll() == []
        client.produce("t", 0, [b"new"])
        chunks: list[object] = []
        while not chunks:
            chunks = list(reader.poll())
        assert reader.position(key) == 1


def test_reading_gives_up_after_the_retry_time(cluster: FakeCluster) -> None:
    with Client(cluster.bootstrap, request_timeout_s=1, retry_timeout_s=0.2, retry_backoff_s=0.01) as client:
        client.produce("t", 0, VALUES)
        cluster.fail(FETCH, ErrorCode.KAFKA_STORAGE_ERROR, times=100_000)
        with pytest.raises(StorageError, match="t-0: cannot fetch at offset 0"):
            read_all(client)

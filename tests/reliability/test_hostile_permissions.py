"""Clients who want what they may not have: by id, by session, by another's transaction, while rules change."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.base.acls import AclOperation
from kafkalite.broker import Broker
from kafkalite.broker.log.journal import Journal, acls_change, encode_line
from kafkalite.broker.security.authorizer import Authorizer
from kafkalite.errors import ConfigError, ErrorCode, StartupError
from kafkalite.model import ANONYMOUS
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkalite.wire.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkalite.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.wire.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafkalite.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.kit.harness import wire
from tests.kit.harness.acl_broker import (
    ADMIN,
    CLUSTER,
    DENY,
    GROUP,
    PREFIXED,
    TOPIC,
    TRANSACTIONAL_ID,
    AclBroker,
    Asker,
    rule,
)
from tests.kit.harness.classic_client import ClassicClient
from tests.kit.oracles import classic_oracle
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.scenario("I")

READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LONG_MS = 60_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AclBroker]:
    with AclBroker(tmp_path) as running:
        yield running


def produce(*topics: str | bytes, transactional_id: str | None = None, acks: int = 1, attributes: int = 0) -> Any:
    """One record for partition 0 of each topic, by name or by id."""
    batch = wire.batch_of([wire.Record(None, b"v")], attributes=attributes)
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=LONG_MS,
        topic_data=[
            TopicProduceData(name=topic, partition_data=data)
            if isinstance(topic, str)
            else TopicProduceData(topic_id=topic, partition_data=data)
            for topic in topics
        ],
    )


def codes(answer: Any) -> list[int]:
    """Of a Produce or Fetch answer."""
    if hasattr(answer, "node_endpoints") and hasattr(answer, "session_id"):
        return [part.error_code for topic in answer.responses for part in topic.partitions]
    return [part.error_code for topic in answer.responses for part in topic.partition_responses]


def fetch(*topics: str | bytes, wait_ms: int = 0, session: tuple[int, int] = (0, -1), offset: int = 0) -> FetchRequest:
    parts = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(topic=topic, partitions=parts)
            if isinstance(topic, str)
            else FetchTopic(topic_id=topic, partitions=parts)
            for topic in topics
        ],
    )


# ---- by id instead of by name ----------------------------------------------------------------------------------------


def test_an_id_opens_no_door_that_the_name_does_not(broker: AclBroker) -> None:
    secret, mine = broker.make_topic("secret"), broker.make_topic("mine")
    broker.allow(rule("bob", ALL, TOPIC, "mine"), rule("bob", ALL, GROUP, "g"))
    assert codes(broker.ask("bob", api.PRODUCE, 13, produce(secret, mine))) == [DENIED, 0]
    assert codes(broker.ask("bob", api.FETCH, 13, fetch(secret, mine))) == [DENIED, 0]
    by_id = [MetadataRequestTopic(name=None, topic_id=secret)]
    (found,) = broker.ask("bob", api.METADATA, 12, MetadataRequest(topics=by_id)).topics
    assert (found.error_code, found.name, found.partitions) == (DENIED, None, [])
    part = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(topic_id=secret, partitions=part)])
    assert broker.ask("bob", api.OFFSET_COMMIT, 10, commit).topics[0].partitions[0].error_code == DENIED
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=secret)], timeout_ms=LONG_MS)
    (gone,) = broker.ask("bob", api.DELETE_TOPICS, 6, delete).responses
    assert (gone.error_code, gone.name) == (DENIED, None)
    broker.allow(rule("bob", DESCRIBE, TOPIC, "secret"))
    (gone,) = broker.ask("bob", api.DELETE_TOPICS, 6, delete).responses
    assert (gone.error_code, gone.name) == (DENIED, "secret")
    broker.allow(rule("bob", AclOperation.DELETE, TOPIC, "secret"))
    assert broker.ask("bob", api.DELETE_TOPICS, 6, delete).responses[0].error_code == 0


# ---- many topics in one request --------------------------------------------------------------------------------------


def test_one_of_ten_thousand_is_decided_by_itself(broker: AclBroker) -> None:
    broker.make_topic("mine")
    broker.allow(rule("bob", ALL, TOPIC, "mine"))
    names = [f"t{i}" for i in range(9_999)]
    names.insert(5_000, "mine")
    answer = broker.ask("bob", api.PRODUCE, 9, produce(*names))
    assert [topic.name for topic in answer.responses] == names
    assert codes(answer) == [0 if name == "mine" else DENIED for name in names]
    fetched = broker.ask("bob", api.FETCH, 12, fetch(*names))
    assert codes(fetched) == [0 if name == "mine" else DENIED for name in names]
    twice = broker.ask("bob", api.PRODUCE, 9, produce("theirs", "mine", "theirs", "mine"))
    assert codes(twice) == [DENIED, 0, DENIED, 0]
    broker.make_topic("theirs")
    mixed = broker.ask("bob", api.FETCH, 12, fetch("absent", "mine", "theirs", "mine", "absent", "mine", "theirs"))
    assert codes(mixed) == [DENIED, 0, DENIED, 0, DENIED, 0, DENIED]


def test_a_denied_topic_without_acks_ends_the_connection(broker: AclBroker) -> None:
    broker.make_topic("theirs")
    asker = broker.asker("bob")
    asker.send(api.PRODUCE, 9, produce("theirs", acks=0))
    with pytest.raises(ConnectionError):
        asker.receive(api.PRODUCE, 9)


# ---- fetch sessions, parked fetches ----------------------------------------------------------------------------------


def test_a_session_outlives_no_right(broker: AclBroker) -> None:
    broker.make_topic("t")
    read = rule("bob", READ, TOPIC, "t")
    broker.allow(read)
    opened = broker.ask("bob", api.FETCH, 12, fetch("t", session=(0, 0)))
    assert opened.session_id > 0
    broker.allow(rule("bob", READ, TOPIC, "t", permission=DENY))
    later = broker.ask("bob", api.FETCH, 12, fetch(session=(opened.session_id, 1)))
    assert (later.error_code, codes(later)) == (0, [DENIED])
    broker.allow(rule("mallory", ALL, TOPIC, "t"))
    stranger = broker.ask("mallory", api.FETCH, 12, fetch(session=(opened.session_id, 2)))
    assert stranger.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    broker.forbid(rule("bob", READ, TOPIC, "t", permission=DENY))
    again = broker.ask("bob", api.FETCH, 12, fetch(session=(opened.session_id, 2)))
    assert (again.error_code, codes(again)) == (0, [0])


def test_a_parked_fetch_gets_nothing_that_is_denied_meanwhile(broker: AclBroker) -> None:
    broker.make_topic("t")
    broker.allow(rule("bob", READ, TOPIC, "t"))
    asker = broker.asker("bob")
    asker.send(api.FETCH, 12, fetch("t", wait_ms=LONG_MS))
    broker.allow(rule("bob", READ, TOPIC, "t", permission=DENY))
    assert codes(broker.ask(ADMIN, api.PRODUCE, 9, produce("t"))) == [0]
    answer = asker.receive(api.FETCH, 12)
    assert codes(answer) == [DENIED]
    assert [part.records for topic in answer.responses for part in topic.partitions] == [b""]


def test_a_parked_fetch_that_is_denied_says_so_when_its_time_is_over(broker: AclBroker) -> None:
    broker.make_topic("t")
    broker.allow(rule("bob", READ, TOPIC, "t"))
    asker = broker.asker("bob")
    asker.send(api.FETCH, 12, fetch("t", wait_ms=300))
    broker.allow(rule("bob", READ, TOPIC, "t", permission=DENY))
    assert codes(asker.receive(api.FETCH, 12)) == [DENIED]


# ---- transactions and groups of others -------------------------------------------------------------------------------


def test_anothers_transactional_id_is_not_written_with(broker: AclBroker) -> None:
    broker.make_topic("t")
    broker.allow(rule("bob", ALL, TOPIC, "t"), rule("bob", WRITE, TRANSACTIONAL_ID, "bobs"))
    for name in ("theirs", None):
        answer = broker.ask("bob", api.PRODUCE, 9, produce("t", transactional_id=name, attributes=0x10))
        assert codes(answer) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    own = codes(broker.ask("bob", api.PRODUCE, 9, produce("t", transactional_id="bobs", attributes=0x10)))
    assert own == [0]
    broker.forbid(rule("bob", WRITE, TRANSACTIONAL_ID, "bobs"))
    answer = broker.ask("bob", api.PRODUCE, 9, produce("t", transactional_id="bobs", attributes=0x10))
    assert codes(answer) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]


def test_committed_offsets_of_what_one_may_not_see_are_left_out(broker: AclBroker) -> None:
    for name in ("mine", "theirs"):
        broker.make_topic(name)
    part = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    both = [OffsetCommitRequestTopic(name=name, partitions=part) for name in ("mine", "theirs")]
    assert broker.ask(ADMIN, api.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g", topics=both))
    broker.allow(rule("bob", READ, GROUP, "g"), rule("bob", READ, TOPIC, "mine"))
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = broker.ask("bob", api.OFFSET_FETCH, 8, everything).groups
    assert [topic.name for topic in group.topics] == ["mine"]
    commit = broker.ask("bob", api.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g", topics=both))
    assert [topic.partitions[0].error_code for topic in commit.topics] == [0, DENIED]


def test_a_transaction_commits_no_offsets_to_a_group_or_topic_of_others(broker: AclBroker) -> None:
    for name in ("mine", "theirs"):
        broker.make_topic(name)
    broker.allow(
        rule("bob", WRITE, TRANSACTIONAL_ID, "bobs"),
        rule("bob", READ, GROUP, "bobs"),
        rule("bob", READ, TOPIC, "mine"),
        rule("bob", DESCRIBE, TOPIC, "theirs"),
    )
    begun = InitProducerIdRequest(transactional_id="bobs", transaction_timeout_ms=LONG_MS)
    producer = broker.ask("bob", api.INIT_PRODUCER_ID, 4, begun)
    assert producer.error_code == 0
    part = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]

    def commit(group: str, transactional_id: str = "bobs") -> list[int]:
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=part) for name in ("mine", "theirs")],
        )
        answer = broker.ask("bob", api.TXN_OFFSET_COMMIT, 3, request)
        return [topic.partitions[0].error_code for topic in answer.topics]

    assert commit("theirs") == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
    assert commit("bobs", "theirs") == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    joined = AddOffsetsToTxnRequest(
        transactional_id="bobs",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id="theirs",
    )
    answer = broker.ask("bob", api.ADD_OFFSETS_TO_TXN, 3, joined)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert commit("bobs")[1] == DENIED


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Team-x", "te\u0301am-x", "", "*", "team"])
def test_groups_match_by_their_very_characters(broker: AclBroker, name: str) -> None:
    broker.allow(rule("bob", ALL, GROUP, "team-", pattern=PREFIXED), rule("bob", ALL, GROUP, "téam-", pattern=PREFIXED))
    answer = broker.ask("bob", api.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id=name, topics=[commit_of("t")]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def commit_of(topic: str) -> OffsetCommitRequestTopic:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    return OffsetCommitRequestTopic(name=topic, partitions=[part])


@pytest.mark.parametrize("name", ["*", ".", "..", "a/../../b", "x" * 250, "a\0b", "__consumer_offsets", "ä"])
def test_names_that_no_topic_can_have_are_refused_whoever_asks(broker: AclBroker, name: str) -> None:
    before = {path.name for path in (broker.directory / "data").iterdir()}
    broker.allow(rule("bob", ALL, TOPIC, "*"), rule("bob", ALL, CLUSTER))
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    for asker, expected in (("bob", None), ("mallory", DENIED)):
        code = broker.ask(asker, api.CREATE_TOPICS, 5, CreateTopicsRequest(topics=wanted)).topics[0].error_code
        assert code == expected if expected else code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        code = broker.ask(asker, api.METADATA, 9, asked).topics[0].error_code
        assert (
            code == expected
            if expected
            else code
            in (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        )
    assert {path.name for path in (broker.directory / "data").iterdir()} == before


def test_ten_thousand_guessed_names_tell_nothing(broker: AclBroker) -> None:
    broker.make_topic("t5000")
    names = [MetadataRequestTopic(name=f"t{i}") for i in range(10_000)]
    answer = broker.ask("bob", api.METADATA, 9, MetadataRequest(topics=names))
    assert {(t.error_code, t.topic_id, t.is_internal, len(t.partitions)) for t in answer.topics} == {
        (DENIED, bytes(16), False, 0)
    }
    assert len(broker.broker.logs.topics) == 1


# ---- rules that change under load ------------------------------------------------------------------------------------


def test_no_record_gets_through_behind_the_answer_that_forbids_it(broker: AclBroker) -> None:
    broker.make_topic("t")
    write = rule("bob", WRITE, TOPIC, "t")
    moments: list[tuple[float, float, int]] = []  # when it was sent and answered, code
    stop = threading.Event()

    def storm(asker: Asker) -> None:
        while not stop.is_set():
            sent = time.monotonic()
            code = codes(asker.ask(api.PRODUCE, 9, produce("t")))[0]
            moments.append((sent, time.monotonic(), code))

    threads = [threading.Thread(target=storm, args=(broker.asker("bob"),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    forbidden: list[tuple[float, float]] = []
    try:
        for _ in range(30):
            broker.allow(write)
            count = len(moments)
            wait_until(lambda c=count: any(code == 0 for *_, code in moments[c:]), 30, "a record that is allowed")
            broker.forbid(write)
            since = time.monotonic()
            count = len(moments)
            wait_until(lambda c=count: len(moments) > c + 10, 30, "records that are not")
            forbidden.append((since, time.monotonic()))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    through = [
        sent
        for (since, until), (sent, answered, code) in itertools.product(forbidden, moments)
        if since <= sent <= answered <= until and code == 0
    ]
    assert through == []
    assert {code for *_, code in moments} == {0, DENIED}


def test_a_rule_that_was_answered_is_there_after_the_start(tmp_path: Path) -> None:
    kept = rule("bob", READ, TOPIC, "t")
    with AclBroker(tmp_path) as broker:
        broker.allow(kept, rule("eve", READ, TOPIC, "t"))
        broker.forbid(rule("eve", READ, TOPIC, "t"))
    with AclBroker(tmp_path) as broker:
        assert broker.rules() == {kept}
        broker.make_topic("t")
        assert codes(broker.ask("bob", api.FETCH, 12, fetch("t"))) == [0]
        assert codes(broker.ask("eve", api.FETCH, 12, fetch("t"))) == [DENIED]


def test_a_journal_with_a_rule_twice_opens_no_door(tmp_path: Path) -> None:
    with AclBroker(tmp_path) as broker:
        broker.allow(rule("bob", READ, TOPIC, "t"))
    path = tmp_path / "data" / "metadata.journal"
    whole = path.read_bytes()
    twice = encode_line(acls_change([rule("bob", READ, TOPIC, "t")], []))
    unknown = encode_line({"op": "acls2", "add": [], "remove": []})
    for more in (twice, unknown):
        path.write_bytes(whole + more)
        with pytest.raises(StartupError, match="malformed"):
            AclBroker(tmp_path).broker.start()
    path.write_bytes(whole)
    with AclBroker(tmp_path) as broker:
        assert len(broker.rules()) == 1


def test_rules_stay_where_no_authoriser_asks_them(tmp_path: Path) -> None:
    with AclBroker(tmp_path) as broker:
        broker.allow(rule("bob", READ, TOPIC, "t"))
    with AclBroker(tmp_path, authorizer_class_name="") as broker:
        broker.make_topic("t")
        assert codes(broker.ask("mallory", api.FETCH, 12, fetch("t"))) == [0]
    with AclBroker(tmp_path) as broker:
        assert broker.rules() == {rule("bob", READ, TOPIC, "t")}
        assert codes(broker.ask("mallory", api.FETCH, 12, fetch("t"))) == [DENIED]


@pytest.mark.slow
def test_a_hundred_thousand_rules_delay_the_start_little(tmp_path: Path) -> None:
    """That it is little is the benchmark's to say; here, that it starts, and decides by all of them."""
    (tmp_path / "data").mkdir()
    journal = Journal.create(str(tmp_path / "data"), "cluster")
    for i in range(100_000):
        journal.state.acls[rule("User:u" if i % 2 else "*", READ, TOPIC, f"topic-{i}")] = None
    journal.rewrite()
    journal.close()
    with AclBroker(tmp_path) as broker:
        broker.make_topic("topic-99998")
        assert codes(broker.ask("bob", api.FETCH, 12, fetch("topic-99998", "topic-99999"))) == [0, DENIED]
        broker.forbid(rule("*", READ, TOPIC, "topic-99998"))
        assert codes(broker.ask("bob", api.FETCH, 12, fetch("topic-99998"))) == [DENIED]


# ---- subscriptions by expression -------------------------------------------------------------------------------------


def test_an_expression_means_what_one_may_see(tmp_path: Path) -> None:
    """Also of topics that come later, and of an expression that a start has read."""

    def beat(broker: AclBroker, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, rebalance_timeout_ms=10_000, topic_partitions=[], **fields
        )
        return broker.ask("bob", api.CONSUMER_GROUP_HEARTBEAT, 1, request)

    def assigned(broker: AclBroker, epoch: int) -> tuple[int, set[str]]:
        described = ConsumerGroupDescribeRequest(group_ids=["g"])
        (group,) = broker.ask(ADMIN, api.CONSUMER_GROUP_DESCRIBE, 1, described).groups
        beat(broker, epoch)
        (member,) = group.members
        return member.member_epoch, {topic.topic_name for topic in member.target_assignment.topic_partitions}

    with AclBroker(tmp_path) as broker:
        for name in ("mine-1", "theirs-1"):
            broker.make_topic(name)
        broker.allow(rule("bob", READ, GROUP, "g"), rule("bob", DESCRIBE, TOPIC, "mine-", pattern=PREFIXED))
        joined = beat(broker, 0, subscribed_topic_names=[], subscribed_topic_regex=".*-.*")
        assert joined.error_code == 0
        for name in ("mine-2", "theirs-2"):
            broker.make_topic(name)
        seen = [joined.member_epoch]

        def follows() -> bool:
            epoch, topics = assigned(broker, seen[-1])
            seen.append(epoch)
            return topics == {"mine-1", "mine-2"}

        wait_until(follows, 60, "the topic that came later")
    with AclBroker(tmp_path) as broker:
        for name in ("mine-3", "theirs-3"):
            broker.make_topic(name)

        def sees_it_again() -> bool:
            epoch, topics = assigned(broker, seen[-1])
            seen.append(epoch)
            return topics == {"mine-1", "mine-2", "mine-3"}

        wait_until(sees_it_again, 60, "the topics after the start")


# ---- Kafka 0.7 -------------------------------------------------------------------------------------------------------


@pytest.fixture
def classic(tmp_path: Path) -> Iterator[AclBroker]:
    """Whose 0.7 clients are User:ANONYMOUS."""
    listeners = "SSL://127.0.0.1:0,MUST://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,kafka07://127.0.0.1:0"
    with AclBroker(tmp_path, listeners=listeners) as running:
        yield running


def classic_client(broker: AclBroker) -> ClassicClient:
    endpoint = broker.broker.classic_endpoint
    assert endpoint is not None
    return ClassicClient(endpoint.port)


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_port_of_kafka_0_7_is_not_opened_to_other_machines_where_rules_are_asked(tmp_path: Path, host: str) -> None:
    """That listener has no authentication, so each of its clients would be anonymous."""
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:0,kafka07://{host}:0", "log.dirs": str(tmp_path)}
    asked = {**settings, "authorizer.class.name": STANDARD_AUTHORIZER}
    with pytest.raises(ConfigError, match=r"classic\.listener\.allow\.remote"), Broker(asked):
        pass
    for more in (settings, {**asked, "classic.listener.allow.remote": "true"}):
        with Broker(more) as broker:
            assert broker.classic_endpoint is not None


def test_clients_of_kafka_0_7_are_anonymous(classic: AclBroker) -> None:
    message_set = classic_oracle.encode_set([classic_oracle.OracleMessage(b"v")])
    with classic_client(classic) as client:
        client.send(classic_oracle.produce("t", 0, message_set))
        assert client.closed()
    assert "t" not in classic.broker.logs.topics
    classic.allow(rule(ANONYMOUS, WRITE, TOPIC, "t"))
    with classic_client(classic) as client:  # may write, and not make it
        client.send(classic_oracle.produce("t", 0, message_set))
        assert client.closed()
    assert "t" not in classic.broker.logs.topics
    classic.allow(rule(ANONYMOUS, AclOperation.CREATE, TOPIC, "t"))
    with classic_client(classic) as client:
        client.send(classic_oracle.produce("t", 0, message_set))
        wait_until(lambda: "t" in classic.broker.logs.topics, 30, "the topic")
        assert [client.fetch(name, 0, 0) for name in ("t", "absent")] == [(UNKNOWN, b""), (UNKNOWN, b"")]
        code, both = client.ask(classic_oracle.multifetch([("t", 0, 0, 1 << 20), ("absent", 0, 0, 1 << 20)]))
        assert (code, classic_oracle.read_multifetch(both)) == (0, [(UNKNOWN, b"")] * 2)
    for name in ("other", "absent"):
        with classic_client(classic) as client:
            client.send(classic_oracle.offsets(name, 0, -1, 1))
            assert client.closed()
    classic.allow(rule(ANONYMOUS, READ, TOPIC, "t"))
    with classic_client(classic) as client:
        wait_until(lambda: client.fetch("t", 0, 0) == (0, message_set), 30, "the message")
        assert client.offsets("t", 0) == [len(message_set)]
    classic.allow(rule("*", ALL, TOPIC, "t", permission=DENY))
    with classic_client(classic) as client:
        assert client.fetch("t", 0, 0) == (UNKNOWN, b"")
        client.send(classic_oracle.produce("t", 0, message_set))
        assert client.closed()


def test_what_is_allowed_is_asked_once_however_often_it_is_done(
    broker: AclBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Produce and Fetch look their decision up: no Python runs for a request."""
    broker.make_topic("t")
    broker.allow(rule("bob", ALL, TOPIC, "t"))
    asked: list[Any] = []
    decide = Authorizer.allows
    monkeypatch.setattr(Authorizer, "allows", lambda *args, **more: asked.append(args[3:]) or decide(*args, **more))
    asker = broker.asker("bob")
    for _ in range(200):
        assert codes(asker.ask(api.PRODUCE, 9, produce("t", "t"))) == [0, 0]
        assert codes(asker.ask(api.FETCH, 12, fetch("t"))) == [0]
    workers = len(broker.broker._parts.workers)
    assert 2 <= len(asked) <= 2 * workers

"""A broker in a cluster whose controller does as the test says: joining, faults, leaving.

Kafka's own controllers are in test_cluster_on_apache_kafka.py.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.broker import Broker
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.log.directory import clean_broker_epoch
from kafkalite.client import Client
from kafkalite.client.connection import Connection
from kafkalite.errors import ErrorCode, StartGivenUp, StartupError
from kafkalite.model import uuid_bytes
from kafkalite.wire.protocol import api, decode_request, header
from kafkalite.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kafkalite.wire.protocol.messages.broker_registration import BrokerRegistrationResponse
from kafkalite.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkalite.wire.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.wire.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafkalite.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from kafkalite.wire.protocol.messages.envelope import EnvelopeResponse
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kit.fakes.controller import ScriptedController, snapshot_of
from tests.kit.harness.clustered import membership
from tests.kit.harness.scrape import ask
from tests.kit.processes.broker import BrokerDidNotStart, BrokerProcess, running, wait_until

CLUSTER = "aaaaaaaaaaaaaaaaaaaaaQ"
TOPIC_ID = bytes(range(16))
WAIT_S = 60


@pytest.fixture
def controller() -> Iterator[ScriptedController]:
    with ScriptedController(CLUSTER) as scripted:
        scripted.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        yield scripted


def settings(controller: ScriptedController, directory: Path, **more: object) -> dict[str, object]:
    return {
        **membership(controller.address, 7),
        "log.dirs": str(directory),
        "broker.heartbeat.interval.ms": 100,
        "initial.broker.registration.timeout.ms": 60_000,
        "broker.session.timeout.ms": 1000,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def properties(directory: Path) -> dict[str, str]:
    lines = (directory / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_broker_joins_is_let_in_and_leaves(controller: ScriptedController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path)) as broker:
        (registration,) = controller.requests(api.BROKER_REGISTRATION)
        assert registration.cluster_id == CLUSTER
        (listener,) = registration.listeners
        assert (listener.name, listener.port) == ("PLAINTEXT", broker.port)
        written = properties(tmp_path)
        assert (written["cluster.id"], written["node.id"], written["version"]) == (CLUSTER, "7", "1")
        assert registration.log_dirs == [uuid_bytes(written["directory.id"])]
        assert registration.previous_broker_epoch == -1
        epoch = controller.registered[7][0]
        assert controller.registered[7] == (epoch, False)
        beats = controller.requests(api.BROKER_HEARTBEAT)
        assert [each.want_fence for each in beats if each.current_metadata_offset < epoch].count(False) == 0
    last = controller.requests(api.BROKER_HEARTBEAT)[-1]
    assert last.want_shut_down
    marker = json.loads((tmp_path / ".kafka_cleanshutdown").read_text())
    assert marker == {"version": 0, "brokerEpoch": epoch}
    with Broker(settings(controller, tmp_path)):
        first, second = controller.requests(api.BROKER_REGISTRATION)
        assert second.previous_broker_epoch == epoch
        assert second.incarnation_id != first.incarnation_id
        assert second.log_dirs == first.log_dirs


def _beats(controller: ScriptedController) -> list:
    return [request for key, _, request in controller.seen if key == api.BROKER_HEARTBEAT]


def test_metadata_lists_the_cluster(controller: ScriptedController, tmp_path: Path) -> None:
    controller.append(
        types.RegisterBrokerRecord(
            broker_id=1,
            broker_epoch=1,
            end_points=[types.BrokerEndpoint(name="PLAINTEXT", host="elsewhere", port=9092)],
            rack="r",
            fenced=False,
        ),
        types.RegisterBrokerRecord(broker_id=2, broker_epoch=2),
        types.TopicRecord(name="orders", topic_id=TOPIC_ID),
        types.PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1], leader=1, leader_epoch=3, partition_epoch=4
        ),
        types.PartitionRecord(
            partition_id=1, topic_id=TOPIC_ID, replicas=[2], isr=[2], leader=2, leader_epoch=5, partition_epoch=6
        ),
    )
    with Broker(settings(controller, tmp_path)) as broker:
        connection = Connection.connect("127.0.0.1", broker.port, client_id="test")
        response = connection.request(api.METADATA, MetadataRequest(topics=None))
        assert [(each.node_id, each.host, each.port, each.rack) for each in response.brokers] == [
            (1, "elsewhere", 9092, "r"),
            (7, "127.0.0.1", broker.port, None),
        ]
        assert (response.cluster_id, response.controller_id in (1, 7)) == (CLUSTER, True)
        (topic,) = response.topics
        assert (topic.name, topic.topic_id, topic.error_code) == ("orders", TOPIC_ID, 0)
        assert [
            (each.error_code, each.leader_id, each.leader_epoch, each.replica_nodes, each.offline_replicas)
            for each in topic.partitions
        ] == [(0, 1, 3, [1, 2], [2]), (ErrorCode.LISTENER_NOT_FOUND, -1, 5, [2], [2])]
        asked = [MetadataRequestTopic(name="nothing"), MetadataRequestTopic(name="a/b")]
        asked += [MetadataRequestTopic(name=None, topic_id=bytes(15) + b"x"), MetadataRequestTopic(name="orders")]
        response = connection.request(api.METADATA, MetadataRequest(topics=asked))
        assert [each.error_code for each in response.topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.NONE,
        ]
        response = connection.request(api.METADATA, MetadataRequest(topics=asked[3:]), version_max=0)
        assert [(each.error_code, each.replica_nodes) for each in response.topics[0].partitions] == [
            (ErrorCode.REPLICA_NOT_AVAILABLE, [1]),
            (ErrorCode.LEADER_NOT_AVAILABLE, []),
        ]
        known = connection.request(api.DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
        assert [(each.broker_id, each.is_fenced) for each in known.brokers] == [(1, False), (7, False)]
        refused = connection.request(api.DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=2))
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        assert connection.features["metadata.version"] == 27
        connection.close()


def test_topics_are_described_in_pages_with_those_that_may_lead_out_of_sync(
    controller: ScriptedController, tmp_path: Path
) -> None:
    place = {"topic_id": TOPIC_ID, "replicas": [7, 8, 9], "leader": 7, "leader_epoch": 3, "partition_epoch": 4}
    controller.append(
        types.TopicRecord(name="orders", topic_id=TOPIC_ID),
        types.PartitionRecord(partition_id=0, isr=[7], eligible_leader_replicas=[8], last_known_elr=[9], **place),
        types.PartitionRecord(partition_id=1, isr=[7], **{**place, "leader": -1}),
    )
    with Broker(settings(controller, tmp_path)) as broker:
        connection = Connection.connect("127.0.0.1", broker.port, client_id="test")
        page = connection.request(
            api.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(response_partition_limit=1)
        )
        (topic,) = page.topics
        (first,) = topic.partitions
        assert (topic.name, topic.topic_id, topic.error_code) == ("orders", TOPIC_ID, 0)
        assert (first.leader_id, first.leader_epoch, first.isr_nodes) == (7, 3, [7])
        assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([8], [9], [8, 9])
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
        )
        rest = connection.request(api.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(cursor=cursor))
        (second,) = rest.topics[0].partitions
        assert (second.partition_index, second.leader_id, second.error_code) == (1, -1, 0)
        assert (second.eligible_leader_replicas, second.last_known_elr, rest.next_cursor) == ([], [], None)
        unknown = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="nothing")])
        (nothing,) = connection.request(api.DESCRIBE_TOPIC_PARTITIONS, unknown).topics
        assert nothing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        connection.close()


def test_broker_finds_the_leader_that_another_controller_names(tmp_path: Path) -> None:
    with ScriptedController(CLUSTER, 3000) as former, ScriptedController(CLUSTER, 3001) as leader:
        leader.epoch = 4
        leader.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27))
        for _ in range(50):
            refusal = former.refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3001, 4, (3001, "127.0.0.1", leader.port))
            former.answers[api.FETCH].append(lambda _request, refusal=refusal: refusal)
        with Broker(settings(former, tmp_path)):
            assert leader.registered[7][1] is False
        assert former.requests(api.BROKER_REGISTRATION) == []


def test_beats_go_on_when_connections_are_lost_and_controllers_say_no(
    controller: ScriptedController, tmp_path: Path
) -> None:
    with Broker(settings(controller, tmp_path)):
        with controller.change():
            for answer in (None, BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)):
                controller.answers[api.BROKER_HEARTBEAT].append(lambda _request, answer=answer: answer)
        controller.wait_for(lambda: not controller.answers[api.BROKER_HEARTBEAT])
        controller.drop_connections()
        count = len(_beats(controller))
        controller.wait_for(lambda: len(_beats(controller)) > count + 2)
        assert controller.registered[7][1] is False


def test_broker_begins_with_a_snapshot(controller: ScriptedController, tmp_path: Path) -> None:
    controller.log.clear()
    data = snapshot_of(1, types.FeatureLevelRecord(name="metadata.version", feature_level=27))
    controller.snapshot, controller.piece_size = (40, 1, data), 50
    with Broker(settings(controller, tmp_path)):
        assert len(controller.requests(api.FETCH_SNAPSHOT)) == -(-len(data) // 50)
        assert controller.registered[7] == (40, False)


def test_metadata_that_is_not_understood_stops_the_broker_in_good_order(
    controller: ScriptedController, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(settings(controller, tmp_path)) as broker:
        controller.append(types.RemoveTopicRecord(topic_id=TOPIC_ID))
        assert broker.failed.wait(WAIT_S)
        assert "removes topic" in caplog.text
        assert controller.registered[7][1] is False
    assert _beats(controller)[-1].want_shut_down


def test_broker_whose_id_was_taken_stops(controller: ScriptedController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path)) as broker:
        with controller.change():
            controller.append(
                types.RegisterBrokerRecord(broker_id=7, broker_epoch=controller.end_offset, incarnation_id=TOPIC_ID)
            )
        assert broker.failed.wait(WAIT_S)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, "--feature share.version=0"),
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "belong to another one"),
        (ErrorCode.INVALID_REGISTRATION, "refuse"),
    ],
)
def test_refused_registration_ends_the_start_in_words(
    controller: ScriptedController, tmp_path: Path, code: int, words: str
) -> None:
    controller.append(types.FeatureLevelRecord(name="share.version", feature_level=1))

    def refuse(_request: object) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(error_code=code)

    controller.answers[api.BROKER_REGISTRATION].append(refuse)
    with pytest.raises(StartupError, match=words):
        Broker(settings(controller, tmp_path)).start()
    with Broker(settings(controller, tmp_path)):
        pass


def test_a_start_that_failed_after_it_registered_leaves_the_epoch_that_the_controllers_know(
    controller: ScriptedController, tmp_path: Path
) -> None:
    """They would take what stopped cleanly, in another epoch than their newest, for what crashed (KIP-966)."""
    with Broker(settings(controller, tmp_path)):
        pass
    controller.append(types.RegisterControllerRecord(controller_id=7))
    with pytest.raises(StartupError, match="is a controller of the cluster"):
        Broker(settings(controller, tmp_path)).start()
    first, second = controller.requests(api.BROKER_REGISTRATION)
    assert first.previous_broker_epoch < second.previous_broker_epoch < controller.registered[7][0]
    assert clean_broker_epoch(str(tmp_path)) == controller.registered[7][0]


def test_directories_stay_what_they_are(controller: ScriptedController, tmp_path: Path) -> None:
    alone, member = tmp_path / "alone", tmp_path / "member"
    with Broker({"log.dirs": str(alone), "node.id": 7}):
        pass
    with pytest.raises(StartupError, match="outside a cluster"):
        Broker(settings(controller, alone)).start()
    with Broker(settings(controller, member)) as broker:
        with pytest.raises(RuntimeError, match="admin client"):
            broker.create_topic("a")
        with pytest.raises(RuntimeError, match="admin client"):
            broker.delete_topic("a")
        with pytest.raises(RuntimeError, match="admin client"):
            broker.add_user("a", "b")
    with pytest.raises(StartupError, match="in a cluster"):
        Broker({"log.dirs": str(member), "node.id": 7}).start()


def test_directory_of_another_cluster_is_refused(controller: ScriptedController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path)):
        pass
    controller.cluster_id = "bbbbbbbbbbbbbbbbbbbbbQ"
    with pytest.raises(StartupError, match="belong to another one"):
        Broker(settings(controller, tmp_path)).start()


def test_directory_of_a_java_broker_keeps_its_id(controller: ScriptedController, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        f"version=1\ncluster.id={CLUSTER}\nnode.id=7\ndirectory.id=AAAAAAAAAAAAAAAAAAABVQ\n"
    )
    with Broker(settings(controller, tmp_path)):
        assert controller.requests(api.BROKER_REGISTRATION)[0].log_dirs == [uuid_bytes("AAAAAAAAAAAAAAAAAAABVQ")]


def test_process_without_controllers_ends_with_one_sentence(tmp_path: Path) -> None:
    with ScriptedController(CLUSTER) as gone:
        pass
    with (
        pytest.raises(BrokerDidNotStart) as ended,
        running(tmp_path, settings=settings(gone, tmp_path / "data", initial_broker_registration_timeout_ms=200)),
    ):
        pass
    assert ended.value.status == 1  # systemd starts it again
    (line,) = [line for line in ended.value.log.splitlines() if "no controller returned" in line]
    assert gone.address in line


def wants_in(controller: ScriptedController) -> list[BrokerHeartbeatRequest]:
    """Beats of a broker that is ready to serve."""
    return [each for each in controller.requests(api.BROKER_HEARTBEAT) if not each.want_fence]


def keep_out(controller: ScriptedController) -> None:
    """No beat lets a broker in from now on, until answers are cleared."""
    fenced = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)

    def answer(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        controller.answers[api.BROKER_HEARTBEAT].append(answer)
        return BrokerHeartbeatResponse(is_fenced=False, should_shut_down=True) if request.want_shut_down else fenced

    controller.answers[api.BROKER_HEARTBEAT].append(answer)


def test_start_returns_when_the_controllers_have_let_it_in(controller: ScriptedController, tmp_path: Path) -> None:
    keep_out(controller)
    broker = Broker(settings(controller, tmp_path))
    starting = threading.Thread(target=broker.start)
    starting.start()
    controller.wait_for(lambda: len(wants_in(controller)) >= 3)
    assert starting.is_alive()
    with controller.change():
        controller.committed = controller.end_offset  # what lets it in is answered, but not known yet
        controller.answers.clear()
    controller.wait_for(lambda: not controller.registered[7][1])
    count = len(wants_in(controller))
    controller.wait_for(lambda: len(wants_in(controller)) >= count + 2)
    assert starting.is_alive()
    with controller.change():
        controller.committed = None
        controller.change().notify_all()
    starting.join(WAIT_S)
    assert broker.running
    broker.stop()


def test_stop_ends_a_start_that_waits_to_be_let_in(controller: ScriptedController, tmp_path: Path) -> None:
    keep_out(controller)
    broker = Broker(settings(controller, tmp_path))
    ended: list[BaseException] = []

    def start() -> None:
        try:
            broker.start()
        except StartGivenUp as error:
            ended.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    controller.wait_for(lambda: wants_in(controller))
    broker.stop()
    starting.join(WAIT_S)
    assert (len(ended), broker.running) == (1, False)
    assert not any(each.want_shut_down for each in controller.requests(api.BROKER_HEARTBEAT))
    with controller.change():
        controller.answers.clear()
    with broker:
        assert broker.running


@pytest.mark.parametrize("known", [False, True])
def test_signal_ends_a_process_that_waits_for_its_cluster(
    controller: ScriptedController, tmp_path: Path, *, known: bool
) -> None:
    """For a controller that tells the cluster's id, or for being let in."""
    keep_out(controller)
    given = settings(controller, tmp_path / "data")
    if not known:
        refused = DescribeClusterResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)

        def refuse(_request: object) -> DescribeClusterResponse:
            controller.answers[api.DESCRIBE_CLUSTER].append(refuse)
            return refused

        controller.answers[api.DESCRIBE_CLUSTER].append(refuse)
    process = BrokerProcess(tmp_path, {key: str(value) for key, value in given.items()})
    process.launch()
    awaited = (lambda: wants_in(controller)) if known else (lambda: controller.requests(api.DESCRIBE_CLUSTER))
    controller.wait_for(awaited, WAIT_S)
    assert process.process is not None
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(WAIT_S) == 0
    process.close()


def test_start_ends_when_it_takes_longer_than_it_may(controller: ScriptedController, tmp_path: Path) -> None:
    keep_out(controller)
    with pytest.raises(StartupError, match=r"have not unfenced it within 1 s \(server\.max\.startup\.time\.ms\)"):
        Broker(settings(controller, tmp_path, server_max_startup_time_ms=1000)).start()


def test_killed_broker_comes_back_as_one_that_did_not_stop(controller: ScriptedController, tmp_path: Path) -> None:
    given = {**settings(controller, tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    with running(tmp_path, settings=given) as process:
        process.kill()
        process.start()
        first, second = controller.requests(api.BROKER_REGISTRATION)
        assert (first.previous_broker_epoch, second.previous_broker_epoch) == (-1, -1)
        wait_until(lambda: process.alive, WAIT_S, "it runs")


def test_requests_for_the_controller_are_passed_on_as_they_came(controller: ScriptedController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path)) as broker:
        connection = Connection.connect("127.0.0.1", broker.port, client_id="ann's program")
        assert connection.version_for(api.CREATE_TOPICS) == 6  # the controller's newest
        assert not connection.knows(api.CREATE_TOPICS, 2)
        assert not connection.supports(api.DESCRIBE_QUORUM)  # which that one does not serve
        request = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=3)], timeout_ms=1234)
        (made,) = connection.request(api.CREATE_TOPICS, request).topics
        assert (made.name, made.error_code) == ("orders", 0)
        (gone,) = connection.request(api.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]), version_max=3).responses
        assert gone.name == "a"
        envelope = controller.requests(api.ENVELOPE)[0]
        head = header.decode_request_header(envelope.request_data)
        assert (head.api_key, head.api_version, head.client_id) == (api.CREATE_TOPICS, 6, "ann's program")
        assert decode_request(api.CREATE_TOPICS, 6, envelope.request_data[head.body_position :]) == request
        assert envelope.request_principal == b"\0\0\x05User\x0aANONYMOUS\0\0"
        assert envelope.client_host_address == bytes([127, 0, 0, 1])
        with controller.change():
            for answer in (None, EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)):
                controller.answers[api.ENVELOPE].append(lambda _request, answer=answer: answer)
        (made,) = connection.request(api.CREATE_TOPICS, request).topics  # asked again
        assert made.error_code == 0
        refusal = EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        controller.answers[api.ENVELOPE].append(lambda _request: refusal)
        (refused,) = connection.request(api.CREATE_TOPICS, request).topics
        assert (refused.name, refused.error_code) == ("orders", ErrorCode.UNKNOWN_SERVER_ERROR)
        connection.close()


def test_answers_of_the_controller_are_counted_by_their_errors(controller: ScriptedController, tmp_path: Path) -> None:
    metrics = {"metrics.listeners": "http://127.0.0.1:0"}
    with Broker(settings(controller, tmp_path) | metrics) as broker:
        connection = Connection.connect("127.0.0.1", broker.port, client_id="test")
        request = CreateTopicsRequest(topics=[CreatableTopic(name="orders")])
        assert connection.request(api.CREATE_TOPICS, request).topics[0].error_code == 0
        refusal = EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        controller.answers[api.ENVELOPE].append(lambda _request: refusal)
        assert connection.request(api.CREATE_TOPICS, request).topics[0].error_code == ErrorCode.UNSUPPORTED_VERSION
        connection.close()
        (url,) = broker.metrics_urls
        told = [line for line in ask(url).text.splitlines() if "CreateTopics" in line and "error" in line]
        assert any("UNSUPPORTED_VERSION" in line for line in told), told
        assert any("NONE" in line for line in told), told


def test_quotas_and_users_are_those_of_the_cluster(controller: ScriptedController, tmp_path: Path) -> None:
    entity = [types.EntityData(entity_type="client-id", entity_name="slow")]
    user = types.UserScramCredentialRecord(
        name="ann", mechanism=2, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    controller.append(types.ClientQuotaRecord(entity=entity, key="request_percentage", value=50.0), user)
    with Broker(settings(controller, tmp_path)) as broker, Client(broker.bootstrap_servers) as client:
        assert client.quotas.list_all() == {(("client-id", "slow"),): {"request_percentage": 50.0}}
        assert client.users.list_all() == {"ann": {"SCRAM-SHA-512": 4096}}
        assert broker._parts.quotas.client_control is not None
        controller.append(
            types.ClientQuotaRecord(entity=entity, key="request_percentage", remove=True),
            types.RemoveUserScramCredentialRecord(name="ann", mechanism=2),
        )
        wait_until(lambda: not client.quotas.list_all() and not client.users.list_all(), WAIT_S, "both are gone")
        assert broker._parts.quotas.client_control is None


def test_topic_that_is_asked_for_is_made_by_the_controller(controller: ScriptedController, tmp_path: Path) -> None:
    with Broker(settings(controller, tmp_path)) as broker:
        connection = Connection.connect("127.0.0.1", broker.port, client_id="program")
        asked = [MetadataRequestTopic(name=name) for name in ("new", "a/b", "__consumer_offsets")]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        assert all(each.error_code for each in connection.request(api.METADATA, request).topics)
        request.allow_auto_topic_creation = True
        assert [each.error_code for each in connection.request(api.METADATA, request).topics] == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        controller.wait_for(lambda: any(key == api.ENVELOPE for key, _, _ in controller.seen))
        connection.close()
    (envelope,) = controller.requests(api.ENVELOPE)
    head = header.decode_request_header(envelope.request_data)
    message = decode_request(head.api_key, head.api_version, envelope.request_data[head.body_position :])
    assert [(each.name, each.num_partitions, each.replication_factor) for each in message.topics] == [("new", -1, -1)]
    with Broker(settings(controller, tmp_path, auto_create_topics_enable=False)) as broker:
        connection = Connection.connect("127.0.0.1", broker.port, client_id="program")
        connection.request(api.METADATA, request)
        connection.close()
    assert len(controller.requests(api.ENVELOPE)) == 1


def test_a_standalone_broker_loads_no_cluster_module() -> None:
    program = (
        "import sys; from kafkalite.broker import Broker; broker = Broker().start(); broker.stop();"
        "print([name for name in sys.modules if 'cluster' in name.split('.')[1:2] or 'in_cluster' in name"
        " or name in ('kafkalite.broker.coordinator.remote', 'kafkalite.broker.coordinator.shard_leadership',"
        " 'kafkalite.broker.log.replica_log')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout == "[]\n"

"""`__consumer_offsets` as kafkalite writes it, read by Apache Kafka's own kafka-dump-log."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite.broker import Broker
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.kit.checkers.side_by_side import Side
from tests.kit.processes.apache_kafka import run_tool
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.usefixtures("kafka_jars")


def test_kafkas_dump_tool_reads_offsets_and_groups(tmp_path: Path) -> None:
    with Broker(log_dirs=str(tmp_path / "data"), offsets_topic_num_partitions=1) as broker:
        broker.create_topic("orders", partitions=2)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, 30, "an assignment")
        consumer.commit(offsets=[TopicPartition("orders", 1, 42)], asynchronous=False)
        consumer.close()
    (segment,) = (tmp_path / "data" / "__consumer_offsets-0").glob("*.log")
    text = run_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment))
    assert '"group":"readers","topic":"orders","partition":1' in text
    assert '"offset":42' in text
    assert '"protocolType":"consumer"' in text
    assert "isvalid: true" in text


@pytest.mark.slow
def test_kafkas_dump_tool_reads_groups_of_the_newer_protocol(tmp_path: Path) -> None:
    """Every kind of record that KIP-848 has, written and erased."""
    settings = {"offsets_topic_num_partitions": 1, "group_consumer_heartbeat_interval_ms": 200}
    with Broker(log_dirs=str(tmp_path / "data"), **settings) as broker:
        broker.create_topic("orders", partitions=2)
        config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "group.protocol": "consumer"}
        consumer = Consumer({**config, "group.instance.id": "one", "group.remote.assignor": "range"})
        consumer.subscribe(["^ord.*"])
        wait_until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, 30, "an assignment")
        consumer.close()
        heartbeat(broker.port, "m", 0)
        heartbeat(broker.port, "m", -1)
    (segment,) = (tmp_path / "data" / "__consumer_offsets-0").glob("*.log")
    text = run_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment))
    assert "isvalid: true" in text
    keys = [line.partition("key: ")[2].partition(" payload: ") for line in text.splitlines() if "key: {" in line]
    kinds = {int(key.partition('"type":"')[2].partition('"')[0]) for key, _, _ in keys}
    assert kinds >= {3, 5, 6, 7, 8, 16}, text
    values = "".join(value for _, _, value in keys)
    for known in ('"instanceId":"one"', '"serverAssignor":"range"', '"subscribedTopicRegex":"ord.*"', '"epoch":1'):
        assert known in values, text
    assert '"topics":["orders"]' in values
    assert '"partitions":[0,1]' in values
    assert any(value == "<DELETE>" for _, _, value in keys), text


def heartbeat(port: int, member: str, epoch: int) -> None:
    """A member that subscribes by expression, which joins or leaves."""
    fields = {} if epoch else {"rebalance_timeout_ms": 9, "subscribed_topic_regex": "ord.*", "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(group_id="readers", member_id=member, member_epoch=epoch, **fields)
    answer = Side(port).ask(api.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == 0, answer

"""`__consumer_offsets` as kafkalite writes it, read by Apache Kafka's own kafka-dump-log."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkalite.broker import Broker
from tests.support.apache_kafka import NotAvailable, jars, run_tool
from tests.support.process import wait_until


def test_kafkas_dump_tool_reads_offsets_and_groups(tmp_path: Path) -> None:
    try:
        jars()
    except NotAvailable as reason:
        pytest.skip(str(reason))
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

"""Apache Kafka's own command line tools administer the broker: what their output says is what was done.

Each call starts a JVM, which takes two seconds; hence few tests with much in each, marked slow.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kit.processes.apache_kafka import NotAvailable, jars, run_tool

pytestmark = pytest.mark.slow

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"


@pytest.fixture
def tool(bootstrap, not_run):
    """Runs a tool against the broker; what it printed."""
    try:
        jars()
    except NotAvailable as missing:
        not_run("Apache Kafka's tools", str(missing))

    def run(main_class: str, *arguments: str) -> str:
        return run_tool(main_class, *arguments, "--bootstrap-server", bootstrap)

    return run


def test_topics_are_created_described_grown_and_deleted(tool, topic):
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=5000")
    assert topic in tool(TOPICS, "--list").split()
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    described = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=5000" in described
    assert described.count("Leader: 1") == 3
    assert tool(TOPICS, "--describe", "--under-replicated-partitions").strip() == ""
    tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in tool(TOPICS, "--list").split()


def test_settings_of_topics_and_the_broker_are_changed_and_described(tool, topic):
    tool(TOPICS, "--create", "--topic", topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, "--alter", *of_topic, "--add-config", "segment.ms=100000,cleanup.policy=[compact,delete]")
    described = tool(CONFIGS, "--describe", *of_topic)
    assert "segment.ms=100000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=100000" in described
    assert "cleanup.policy=compact,delete" in described
    tool(CONFIGS, "--alter", *of_topic, "--delete-config", "segment.ms")
    assert "segment.ms" not in tool(CONFIGS, "--describe", *of_topic)

    of_brokers = ("--entity-type", "brokers", "--entity-default")
    tool(CONFIGS, "--alter", *of_brokers, "--add-config", "log.segment.delete.delay.ms=50000")
    assert "log.segment.delete.delay.ms=50000" in tool(CONFIGS, "--describe", *of_brokers)
    tool(CONFIGS, "--alter", *of_brokers, "--delete-config", "log.segment.delete.delay.ms")
    assert "log.segment" not in tool(CONFIGS, "--describe", *of_brokers)

    loggers = tool(CONFIGS, "--describe", "--entity-type", "broker-loggers", "--entity-name", "1")
    assert "kafkalite.broker=" in loggers


def test_records_are_counted_measured_and_deleted(tool, topic, bootstrap, tmp_path: Path):
    tool(TOPICS, "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(topic, b"x" * 100)
    assert producer.flush(30) == 0
    assert tool(OFFSETS, "--topic", topic).strip() == f"{topic}:0:10"

    request = tmp_path / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    assert "low_watermark: 4" in tool(DELETE_RECORDS, "--offset-json-file", str(request))
    assert tool(OFFSETS, "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:4"

    (sizes,) = [line for line in tool(LOG_DIRS, "--describe", "--topic-list", topic).splitlines() if line[:1] == "{"]
    (partition,) = json.loads(sizes)["brokers"][0]["logDirs"][0]["partitions"]
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] > 1000


def test_broker_and_cluster_are_described(tool, bootstrap):
    versions = tool(API_VERSIONS)
    assert "CreateTopics(19): 2 to 7 [usable: 7]" in versions
    assert "Produce(0): 0 to 13 [usable: 13]" in versions
    assert "Cluster ID: " in run_tool(CLUSTER, "cluster-id", "--bootstrap-server", bootstrap)
    assert bootstrap.split(":")[1] in run_tool(CLUSTER, "list-endpoints", "--bootstrap-server", bootstrap)

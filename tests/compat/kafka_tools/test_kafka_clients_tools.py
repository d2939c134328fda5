"""Apache Kafka's tools that produce, consume, look after groups and end transactions.

As in `test_kafka_tools.py` each call is a JVM, hence slow.
"""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.kafka_tools.test_kafka_tools import OFFSETS, TOPICS, tool
from tests.compat.records import committed_offset, values_to_end
from tests.kit.processes.apache_kafka import run_tool
from tests.kit.processes.broker import wait_until

__all__ = ["tool"]

pytestmark = pytest.mark.slow

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


def rows(table: str) -> list[dict[str, str]]:
    """A tool's table: its first line names the columns, a blank separates them."""
    head, *lines = [
        line.split() for line in table.splitlines() if line.strip() and not line.startswith("Consumer group")
    ]
    return [dict(zip(head, line, strict=False)) for line in lines]


def test_console_producer_and_consumer(tool, bootstrap, topic):
    keyed = ["--property", "parse.key=true", "--property", "key.separator=:"]
    run_tool(CONSOLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *keyed, text="a:1\nb:2\nc:3\n")
    reading = ["--topic", topic, "--from-beginning", "--max-messages", "3", "--property", "print.key=true"]
    group = f"group-{topic}"
    assert tool(CONSOLE_CONSUMER, *reading, "--group", group).splitlines() == ["a\t1", "b\t2", "c\t3"]
    assert committed_offset(bootstrap, group, topic) == 3


def test_groups_are_listed_described_reset_and_deleted(tool, bootstrap, topic):
    run_tool(CONSOLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, text="1\n2\n3\n4\n5\n")
    group = f"group-{topic}"
    tool(CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "3", "--group", group)
    assert group in tool(GROUPS, "--list").split()
    (row,) = rows(tool(GROUPS, "--describe", "--group", group))
    assert (row["TOPIC"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == (topic, "3", "5", "2")
    assert "Empty" in tool(GROUPS, "--describe", "--group", group, "--state")
    resetting = ["--reset-offsets", "--group", group, "--topic", topic]
    (planned,) = rows(tool(GROUPS, *resetting, "--to-earliest", "--dry-run"))
    assert planned["NEW-OFFSET"] == "0"
    assert committed_offset(bootstrap, group, topic) == 3
    tool(GROUPS, *resetting, "--shift-by", "-2", "--execute")
    assert committed_offset(bootstrap, group, topic) == 1
    tool(GROUPS, "--delete-offsets", "--group", group, "--topic", topic)
    assert committed_offset(bootstrap, group, topic) is None
    tool(GROUPS, "--delete", "--group", group)
    assert group not in tool(GROUPS, "--list").split()


def test_transactions_are_listed_described_and_a_hanging_one_aborted(tool, bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})  # held while its futures are pending
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(30)
    identity = f"id-{topic}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": identity})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never ended", partition=0)
    assert producer.flush(30) == 0

    def transactions(*arguments: str) -> str:
        return run_tool(TRANSACTIONS, "--bootstrap-server", bootstrap, *arguments)

    (listed,) = [row for row in rows(transactions("list")) if row["TransactionalId"] == identity]
    assert listed["TransactionState"] == "Ongoing"
    (described,) = rows(transactions("describe", "--transactional-id", identity))
    assert (described["ProducerId"], described["TransactionState"]) == (listed["ProducerId"], "Ongoing")
    assert f"{topic}-0" in described["TopicPartitions"]
    (writing,) = rows(transactions("describe-producers", "--topic", topic, "--partition", "0"))
    assert (writing["ProducerId"], writing["CurrentTransactionStartOffset"]) == (listed["ProducerId"], "0")

    producer.produce(topic, b"second", partition=0)
    assert producer.flush(30) == 0
    transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    (idle,) = rows(transactions("describe-producers", "--topic", topic, "--partition", "0"))
    assert idle["CurrentTransactionStartOffset"] == "None"
    assert values_to_end(bootstrap, topic, "read_uncommitted") == ["never ended", "second"]
    assert values_to_end(bootstrap, topic, "read_committed") == []
    assert tool(OFFSETS, "--topic", topic).strip() == f"{topic}:0:3"


def test_performance_tools(tool, bootstrap, topic):
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    load = ["--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={bootstrap}", "acks=all", "compression.type=lz4"]
    assert "5000 records sent" in run_tool(PRODUCER_PERFORMANCE, *load, *properties)
    found = tool(CONSUMER_PERFORMANCE, "--topic", topic, "--messages", "5000")
    head, measured = [line.split(", ") for line in found.splitlines() if ", " in line][:2]
    assert dict(zip(head, measured, strict=False))["data.consumed.in.nMsg"] == "5000"


def test_transactional_performance(bootstrap, topic):
    load = ["--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"]
    properties = ["--producer-props", f"bootstrap.servers={bootstrap}", f"transactional.id=id-{topic}"]
    said = run_tool(PRODUCER_PERFORMANCE, *load, *properties, "--transaction-duration-ms", "50")
    assert "2000 records sent" in said
    wait_until(lambda: len(values_to_end(bootstrap, topic, "read_committed")) == 2000, 30, "every record committed")


def test_verifiable_producer_and_consumer(tool, topic):
    tool(TOPICS, "--create", "--topic", topic, "--partitions", "2")
    said = [
        json.loads(line) for line in tool(VERIFIABLE_PRODUCER, "--topic", topic, "--max-messages", "200").splitlines()
    ]
    assert said[-1]["name"] == "tool_data"
    assert (said[-1]["sent"], said[-1]["acked"]) == (200, 200)
    group = ["--topic", topic, "--group-id", f"group-{topic}", "--max-messages", "200", "--reset-policy", "earliest"]
    events = [json.loads(line) for line in tool(VERIFIABLE_CONSUMER, *group).splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")

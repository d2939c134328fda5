"""Apache Kafka's tools and Java producer against transactions: KIP-890 on the wire, `__transaction_state` on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalite.broker import Broker
from tests.kit.processes.apache_kafka import run_tool
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.usefixtures("kafka_jars")

TIMEOUT_S = 60


def dump(directory: Path) -> str:
    (segment,) = (directory / "__transaction_state-0").glob("*.log")
    return run_tool("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(segment))


def test_kafkas_dump_tool_reads_transactions(tmp_path: Path) -> None:
    with Broker(log_dirs=str(tmp_path), transaction_state_log_num_partitions=1) as broker:
        broker.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "till"})
        producer.init_transactions(TIMEOUT_S)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("orders", b"x", partition=1)
            producer.flush(TIMEOUT_S)
            end(TIMEOUT_S)
        (log,) = broker.logs.topics["__transaction_state"].partitions
        wait_until(lambda: log.log_end_offset == 7, TIMEOUT_S, "the end of the last transaction")
    text = dump(tmp_path)
    assert '"transactionalId":"till"' in text
    assert '"transactionPartitions":[{"topic":"orders","partitionIds":[1]}]' in text
    assert [f'"transactionStatus":{state}' in text for state in range(6)] == [True] * 6
    assert text.count("isvalid: true") == 7
    assert "isvalid: false" not in text


@pytest.mark.slow
def test_java_producer_raises_its_epoch_with_each_transaction(tmp_path: Path) -> None:
    with Broker(log_dirs=str(tmp_path), transaction_state_log_num_partitions=1) as broker:
        broker.create_topic("orders", partitions=2)
        server = broker.bootstrap_servers
        run_tool(
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", "orders", "--num-records", "600"),
            *("--record-size", "20", "--throughput", "2000", "--producer-props", f"bootstrap.servers={server}"),
            *("--transactional-id", "java", "--transaction-duration-ms", "20"),
        )
        read = run_tool(
            *("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "orders", "--from-beginning"),
            *("--bootstrap-server", server, "--isolation-level", "read_committed"),
            *("--max-messages", "600", "--timeout-ms", "60000"),
        )
        tool = "org.apache.kafka.tools.TransactionsCommand"
        listed = run_tool(tool, "--bootstrap-server", server, "list")
    assert len(read.split()) == 600
    assert listed.splitlines()[1].split() == ["java", "1", "0", "CompleteCommit"]
    text = dump(tmp_path)
    committed = text.count('"transactionStatus":4')
    assert committed >= 2
    assert f'"producerEpoch":{committed},' in text
    # Open, prepared, complete; one record more where the second partition was written to later.
    assert text.count('"clientTransactionVersion":2') >= 3 * committed

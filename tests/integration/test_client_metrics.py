"""Clients push metrics as subscribed (KIP-714), and the broker exports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from kafkalite import Broker
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages import incremental_alter_configs as iac
from tests.compat.kafka_tools.calls import MAIN_CLASSES
from tests.compat.kafka_tools.one_jvm.runner import ToolRunner
from tests.kit.checkers.side_by_side import Side
from tests.kit.harness.sasl_broker import SaslBroker
from tests.kit.harness.scrape import Scrape
from tests.kit.processes.broker import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


CLIENT_METRICS_TYPE = 16


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics_listeners="http://127.0.0.1:0") as running:
        running.create_topic("orders", 1)
        items = [
            iac.AlterableConfig(name=key, value=value) for key, value in (("metrics", "*"), ("interval.ms", "100"))
        ]
        resource = iac.AlterConfigsResource(resource_type=CLIENT_METRICS_TYPE, resource_name="all", configs=items)
        request = iac.IncrementalAlterConfigsRequest(resources=[resource])
        answer = Side(running.port).ask(api.INCREMENTAL_ALTER_CONFIGS, 1, request)
        assert answer.responses[0].error_code == 0
        yield running


def told(broker: Broker, software: str) -> set[str]:
    """Names of the metrics that clients of this software pushed."""
    seen = Scrape.of(broker.metrics_urls[0])
    names = ("kafkalite_client_counter_total", "kafkalite_client_metric")
    rows = [row for name in names for row in seen.labels_of(name)]
    assert seen("kafka_server_client_metrics_plugin_error_total") == 0
    return {row["metric"] for row in rows if row["software"].startswith(software)}


@pytest.mark.parametrize("served", [False, True], ids=["without metrics", "with metrics"])
def test_a_listener_with_sasl_offers_what_the_others_do_before_and_after_signing_in(
    tmp_path: Path, served: bool
) -> None:
    settings = {"metrics_listeners": "http://127.0.0.1:0"} if served else {}
    with SaslBroker(tmp_path, **settings) as sasl, sasl.connect() as client, sasl.connect("PLAINTEXT") as plain:
        offered = [client.api_versions()]
        assert client.plain().error_code == 0
        offered += [client.api_versions(), plain.api_versions()]
    first, *others = [{(one.api_key, one.min_version, one.max_version) for one in each.api_keys} for each in offered]
    assert all(other == first for other in others)
    telemetry = {api.GET_TELEMETRY_SUBSCRIPTIONS, api.PUSH_TELEMETRY}
    assert {key for key, _, _ in first} & telemetry == (telemetry if served else set())


def test_librdkafka_pushes(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "client.id": "pusher"})
    producer.produce("orders", b"x")
    assert producer.flush(60) == 0
    wait_until(lambda: told(broker, "confluent-kafka-python"), 60, "librdkafka's metrics")
    assert "org.apache.kafka.producer.connection.creation.total" in told(broker, "confluent-kafka-python")


@pytest.mark.slow
def test_java_pushes(broker: Broker, tmp_path: Path, kafka_jars) -> None:
    with ToolRunner(tmp_path) as runner:
        call = "--topic orders --num-records 500 --record-size 10 --throughput 100 --producer-props"
        ended = runner.run(
            MAIN_CLASSES["kafka-producer-perf-test"], *call.split(), f"bootstrap.servers=127.0.0.1:{broker.port}"
        )
    assert ended.status == 0, ended
    assert "org.apache.kafka.producer.record.send.total" in told(broker, "apache-kafka-java")

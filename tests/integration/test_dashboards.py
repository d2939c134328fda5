"""The dashboard and the alert rules ask for metrics that there are; Prometheus, where it is installed, answers them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer

from kafkalite import Broker
from kafkalite.errors import KafkaError
from kafkalite.load.status import LoadStatus
from kafkalite.mirror import MirrorStatus
from kafkalite.schema_registry.server import RegistryServer
from tests.kit.harness import wire
from tests.kit.harness.certificates import Authority
from tests.kit.harness.quotas import set_quotas
from tests.kit.harness.scrape import Scrape
from tests.kit.processes.broker import REPOSITORY, free_port, wait_until

pytest.importorskip("waitress")

FOLDER = REPOSITORY / "kafkalite" / "metrics" / "dashboards"
DASHBOARD = json.loads((FOLDER / "kafkalite.json").read_text(encoding="utf-8"))
METRIC = re.compile(r"\b(?:kafka|kafkalite|process)_[a-z0-9_]+\b")
MAY_BE_EMPTY = {"Errors in answers", "Most held up by a quota"}
"""Panels about what may never have happened."""


def expressions() -> list[tuple[str, str]]:
    """(panel, expression) of the dashboard, as Grafana would send them."""
    return [
        (panel["title"], target["expr"].replace("$instance", ".*").replace("$__rate_interval", "20s"))
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    ]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One that a client with a quota has written to and read from, in a group; a listener of it has a certificate."""
    key_store = tmp_path / "server.pem"
    Authority().issue("server").write_pem(key_store)
    with Broker(
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        ssl_keystore_location=str(key_store),
        metrics_listeners="http://127.0.0.1:0",
    ) as running:
        running.create_topic("a")
        set_quotas(running.port, {"user": None}, producer_byte_rate=1e9)
        exchange(running)
        yield running


def exchange(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    producer.produce("a", b"x")
    assert producer.flush(60) == 0
    options = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **options})
    consumer.subscribe(["a"])
    message = None
    while message is None:
        message = consumer.poll(1.0)
    consumer.commit(message, asynchronous=False)
    consumer.close()


def test_every_metric_that_is_named_is_in_a_scrape(broker: Broker) -> None:
    asked = "\n".join(text for _, text in expressions()) + (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    named = set(METRIC.findall(asked))
    with wire.Connection(broker.port) as client:
        client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")]))  # so that there is a connection
        told = {name for name, _ in Scrape.of(broker.metrics_urls[0]).samples} | told_by_commands(broker)
    assert len(named) > 30
    assert named - told == set()


def told_by_commands(broker: Broker) -> set[str]:
    """Names of a mirror's, a registry's and a load's metrics, errors among them."""
    mirror, load = MirrorStatus("m", "live:9092"), LoadStatus(2.0)
    mirror.lost(KafkaError("away"))
    load.failed("away")
    with RegistryServer(broker.bootstrap_servers, port=0) as registry:
        registry.store.follow_error = "away"
        sources = (mirror.families, load.families, registry.status.families)
        return {family.name for source in sources for family in source()}


OTHERS_ASK_FOR = {
    "kafka_broker_info": set(),
    "kafka_brokers": set(),
    "kafka_cluster_partition_atminisr": {"topic", "partition"},
    "kafka_cluster_partition_underminisr": {"topic", "partition"},
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
    "kafka_controller_controllerstats_uncleanleaderelections_total": set(),
    "kafka_controller_kafkacontroller_activecontrollercount": set(),
    "kafka_controller_kafkacontroller_offlinepartitionscount": set(),
    "kafka_log_log_size": {"topic", "partition"},
    "kafka_network_socketserver_networkprocessoravgidle_percent": set(),
    "kafka_server_brokertopicmetrics_bytesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_bytesout_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedproducerequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_messagesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalproducerequests_total": {"topic"},
    "kafka_server_delayedoperationpurgatory_purgatorysize": {"delayedOperation"},
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": set(),
    "kafka_server_kafkaserver_linux_disk_read_bytes": set(),
    "kafka_server_kafkaserver_linux_disk_write_bytes": set(),
    "kafka_server_replicamanager_leadercount": set(),
    "kafka_server_replicamanager_partitioncount": set(),
    "kafka_server_replicamanager_underreplicatedpartitions": set(),
    "kafka_server_socket_server_metrics_connection_count": {"listener"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_in_sync_replica": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_topic_partitions": {"topic"},
    "process_cpu_seconds_total": set(),
    "process_open_fds": set(),
}
"""Names and labels in the panels of Strimzi's dashboards for Kafka and for kafka_exporter that are not about a JVM, a
container, or replication; and purgatories, of others."""


def test_dashboards_of_others_find_their_names_and_labels(broker: Broker) -> None:
    seen = Scrape.of(broker.metrics_urls[0])
    told: dict[str, list[set[str]]] = {}
    for name, given in seen.samples:
        told.setdefault(name, []).append({label for label, _ in given})
    missing = {
        name: wanted for name, wanted in OTHERS_ASK_FOR.items() if not any(map(wanted.issubset, told.get(name, [])))
    }
    assert missing == {}


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """Its data source is a variable, ids and places are each panel's own."""
    assert DASHBOARD["schemaVersion"] >= 38, "of Grafana 10"
    assert "id" not in DASHBOARD
    (source, instance) = DASHBOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert METRIC.findall(instance["definition"]) == ["kafka_broker_info"]
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels if panel["type"] != "row")


@pytest.mark.parametrize("what", ["dashboard", "alerts"])
def test_the_command_prints_what_the_files_hold(what: str) -> None:
    command = [sys.executable, "-m", "kafkalite", "metrics", what]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    name = {"dashboard": "kafkalite.json", "alerts": "alerts.yml"}[what]
    assert printed == (FOLDER / name).read_text(encoding="utf-8")


class Prometheus:
    """Scrapes a broker each second, and evaluates the rules."""

    def __init__(self, folder: Path, target: str) -> None:
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f"rule_files: [{FOLDER / 'alerts.yml'}]\n"
            f"scrape_configs: [{{job_name: kafkalite, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def serves(self) -> bool:
        try:
            return bool(self.get("query", query="count_over_time(kafka_brokers[1m]) > 8")["result"])
        except OSError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed")
def test_prometheus_answers_every_panel_and_evaluates_every_rule(broker: Broker, tmp_path: Path) -> None:
    checked = subprocess.run(["promtool", "check", "rules", str(FOLDER / "alerts.yml")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    prometheus = Prometheus(tmp_path, urlsplit(broker.metrics_urls[0]).netloc)
    try:
        deadline = time.monotonic() + 120
        while not prometheus.serves():
            assert time.monotonic() < deadline
            exchange(broker)
        wait_until(lambda: len(groups(prometheus)) == 1, 60, "the rules")
        empty = {title for title, text in expressions() if not prometheus.get("query", query=text)["result"]}
        assert empty <= MAY_BE_EMPTY
        (group,) = groups(prometheus)
        wait_until(lambda: all(rule["health"] != "unknown" for rule in groups(prometheus)[0]["rules"]), 60, "a look")
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
        assert [rule["name"] for rule in groups(prometheus)[0]["rules"] if rule["state"] == "firing"] == []
    finally:
        prometheus.stop()


def groups(prometheus: Prometheus) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = prometheus.get("rules")["groups"]
    return found

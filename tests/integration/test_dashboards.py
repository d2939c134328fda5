"""The dashboard and the alert rules ask for metrics that there are; Prometheus, where it is installed, answers them."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer

from kafkalite import Broker
from kafkalite.audit import AuditedProducer
from kafkalite.audit.following import Follower
from kafkalite.audit.run import Plan
from kafkalite.base.clock import SystemClock
from kafkalite.base.deferred import Deferred
from kafkalite.broker.cluster import metadata_types as types
from kafkalite.broker.cluster.alter_partition import InSyncReplicas
from kafkalite.broker.cluster.brokers import Brokers
from kafkalite.broker.cluster.fetchers import Fetchers, OwnBroker
from kafkalite.broker.cluster.image import EMPTY
from kafkalite.broker.metrics.limits import HELP as QUOTA_METRICS
from kafkalite.client import Client
from kafkalite.errors import KafkaError
from kafkalite.load.status import LoadStatus
from kafkalite.metrics.command import CommandPage
from kafkalite.mirror import Mirror, MirrorStatus, TopicFilter
from kafkalite.schema_registry.server import RegistryServer
from tests.kit.fakes.controller import ScriptedController
from tests.kit.harness import wire
from tests.kit.harness.certificates import Authority
from tests.kit.harness.clustered import cluster_settings
from tests.kit.harness.quotas import set_quotas
from tests.kit.harness.scrape import Scrape
from tests.kit.processes.broker import REPOSITORY, free_port, wait_until
from tests.kit.processes.schema_registry import call

FOLDER = REPOSITORY / "kafkalite" / "metrics" / "dashboards"
DASHBOARD = json.loads((FOLDER / "kafkalite.json").read_text(encoding="utf-8"))
PIPELINE = json.loads((FOLDER / "pipeline.json").read_text(encoding="utf-8"))
SUFFIX = {"counter": "_total"}
METRIC = re.compile(r"\b(?:kafka|kafkalite|process)_[a-z0-9_]+\b")
MAY_BE_EMPTY = {"Errors in answers", "Most held up by a quota", "What goes wrong"}
"""Panels about what may never have happened."""


def expressions(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    """(panel, expression) of a dashboard, as Grafana would send them."""
    return [
        (panel["title"], target["expr"].replace("$instance", ".*").replace("$__rate_interval", "20s"))
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]


def row_of(dashboard: dict[str, Any], row: str) -> set[str]:
    """The panels of a row."""
    titles: dict[str, set[str]] = {}
    below: set[str] = set()
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            titles[panel["title"]] = below = set()
        else:
            below.add(panel["title"])
    return titles[row]


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


def test_every_metric_that_is_named_is_in_a_scrape(broker: Broker, tmp_path: Path) -> None:
    panels = [text for dashboard in (DASHBOARD, PIPELINE) for _, text in expressions(dashboard)]
    named = set(METRIC.findall("\n".join(panels) + (FOLDER / "alerts.yml").read_text(encoding="utf-8")))
    with wire.Connection(broker.port) as client:
        client.produce("a", 0, wire.batch_of([wire.Record(None, b"x")]))  # so that there is a connection
        told = {name for name, _ in Scrape.of(broker.metrics_urls[0]).samples} | told_by_commands(broker)
    told |= told_in_a_cluster(tmp_path / "cluster")
    assert len(named) > 60
    assert named - told == set()
    documented = [re.compile(name.replace("…", "[a-z0-9_]+")) for name in documented_names()]
    assert len(documented) > 90
    possible = told | named_in_code()
    assert {name.pattern for name in documented if not any(name.fullmatch(one) for one in possible)} == set()
    untold = sorted(name for name in told if not any(pattern.match(name) for pattern in documented))
    assert untold == [], "docs/metrics.md names neither them nor their kind"


def named_in_code() -> set[str]:
    """Return metric names in the package, with and without a counter's suffix: some metrics appear only
    after an event.
    """
    code = [path.read_text(encoding="utf-8") for path in (REPOSITORY / "kafkalite").rglob("*.py")]
    found = {name for text in code for name in METRIC.findall(text)}
    return found | {f"{name}_total" for name in found} | {f"kafka_server_quota_{what}" for what in QUOTA_METRICS}


def documented_names() -> Iterator[str]:
    """The names in the tables of docs/metrics.md, braces spelled out; where one has … there may be anything."""
    for line in (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        for code in re.findall(r"`([^`]+)`", line.split("|")[1]) if line.startswith("| `") else ():
            parts = re.split(r"\{([^}]*)\}", code)
            for chosen in product(*([part] if i % 2 == 0 else part.split(",") for i, part in enumerate(parts))):
                yield "".join(chosen)


def told_by_commands(broker: Broker) -> set[str]:
    """Names of the metrics of a mirror, an audit, a registry and a load, errors among them, and a cluster."""
    mirror, load = MirrorStatus("m", "live:9092"), LoadStatus(2.0)
    mirror.lost(KafkaError("away"))
    load.failed("away")
    with RegistryServer(broker.bootstrap_servers, port=0) as registry, Client(broker.bootstrap_servers) as client:
        registry.store.follow_error = "away"
        audit = Follower(Plan(client), lambda _: None)
        fetchers = Fetchers(OwnBroker(1, lambda: EMPTY), Brokers(lambda: EMPTY, ""), broker.config, SystemClock())
        in_sync = InSyncReplicas(1, lambda: -1, lambda _key, _request: Deferred(), SystemClock(), lag_s_max=30)
        sources = (mirror.families, audit.families, load.families, registry.status.families)
        sources = (*sources, fetchers.families, in_sync.families)
        return {family.name + SUFFIX.get(family.kind, "") for source in sources for family in source()}


def told_in_a_cluster(directory: Path) -> set[str]:
    """Names of the metrics of a broker that leads a partition with a follower, which is not there."""
    name, topic_id = types.TopicRecord(name="a", topic_id=bytes(range(16))), bytes(range(16))
    led = types.PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[7, 8], isr=[7], leader=7, leader_epoch=0)
    with ScriptedController("aaaaaaaaaaaaaaaaaaaaaQ") as controller:
        controller.append(types.FeatureLevelRecord(name="metadata.version", feature_level=27), name, led)
        settings = cluster_settings(controller.address, directory)
        with Broker({**settings, "metrics.listeners": "http://127.0.0.1:0"}) as broker:
            return {name for name, _ in Scrape.of(broker.metrics_urls[0]).samples}


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


@pytest.mark.parametrize("dashboard", [DASHBOARD, PIPELINE], ids=["broker", "pipeline"])
def test_a_dashboard_can_be_imported_anywhere(dashboard: dict[str, Any]) -> None:
    """Its data source is a variable, ids and places are each panel's own."""
    assert dashboard["schemaVersion"] >= 38, "of Grafana 10"
    assert "id" not in dashboard
    (source, instance) = dashboard["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    assert instance["definition"].startswith("label_values(")
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels if panel["type"] != "row")


def test_each_dashboard_is_another_one_for_grafana() -> None:
    assert DASHBOARD["uid"] != PIPELINE["uid"]
    assert DASHBOARD["title"] != PIPELINE["title"]


@pytest.mark.parametrize("what", ["dashboard", "pipeline", "alerts"])
def test_the_command_prints_what_the_files_hold(what: str) -> None:
    command = [sys.executable, "-m", "kafkalite", "metrics", what]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    name = {"dashboard": "kafkalite.json", "pipeline": "pipeline.json", "alerts": "alerts.yml"}[what]
    assert printed == (FOLDER / name).read_text(encoding="utf-8")


class Prometheus:
    """Scrapes a broker each second, and evaluates the rules."""

    def __init__(self, folder: Path, target: str, waits_for: str = "kafka_brokers") -> None:
        self._waits_for = waits_for
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
            return bool(self.get("query", query=f"count_over_time({self._waits_for}[1m]) > 8")["result"])
        except OSError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Debian's package prometheus is not installed")
def test_promtool_takes_the_rules_and_no_others(tmp_path: Path) -> None:
    rules = FOLDER / "alerts.yml"
    checked = subprocess.run(["promtool", "check", "rules", str(rules)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    text = rules.read_text(encoding="utf-8")
    assert f"{text.count('- alert:')} rules found" in checked.stdout
    spoilt = tmp_path / "alerts.yml"
    spoilt.write_text(text.replace("expr: ", "expr: (", 1), encoding="utf-8")
    assert subprocess.run(["promtool", "check", "rules", str(spoilt)], capture_output=True).returncode


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed")
def test_prometheus_answers_every_panel_and_evaluates_every_rule(broker: Broker, tmp_path: Path) -> None:
    prometheus = Prometheus(tmp_path, urlsplit(broker.metrics_urls[0]).netloc)
    try:
        deadline = time.monotonic() + 120
        while not prometheus.serves():
            assert time.monotonic() < deadline
            exchange(broker)
        wait_until(lambda: len(groups(prometheus)) == 1, 60, "the rules")
        empty = {title for title, text in expressions(DASHBOARD) if not prometheus.get("query", query=text)["result"]}
        in_a_cluster = row_of(DASHBOARD, "Cluster")
        assert len(in_a_cluster) == 6
        assert empty <= MAY_BE_EMPTY | in_a_cluster  # a standalone broker
        (group,) = groups(prometheus)
        wait_until(lambda: all(rule["health"] != "unknown" for rule in groups(prometheus)[0]["rules"]), 60, "a look")
        assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
        assert [rule["name"] for rule in groups(prometheus)[0]["rules"] if rule["state"] == "firing"] == []
    finally:
        prometheus.stop()


@contextlib.contextmanager
def pipeline_at_work(broker: Broker) -> Iterator[str]:
    """Where the metrics of a mirror, an audit, a load and a registry are, which all have done something."""
    mirrored, loaded = MirrorStatus("m", "live"), LoadStatus(2.0)
    with (
        Broker() as offline,
        Client(broker.bootstrap_servers) as source,
        Client(offline.bootstrap_servers) as target,
        RegistryServer(broker.bootstrap_servers, port=0) as registry,
    ):
        with AuditedProducer(source, server="web1") as producer:
            producer.send("a", 0, [b"x"])
        mirror = Mirror(source, target, name="m", topics=TopicFilter("a"))
        mirrored.follows(mirror)
        mirror.run(threading.Event(), to_end=True)
        for chunk in list(target.read("a", 0)):
            target.produce("a", 0, chunk.columns)  # once more: something for the audit to tell
        loaded.published(1, 100, 1)
        loaded.finished(0)
        call(urlsplit(registry.url).netloc, "GET", "/subjects")
        audit = Follower(Plan(source, target), lambda _: None, now_ms=lambda: time.time_ns() // 1_000_000 + 300_000)
        audit.round(threading.Event())
        sources = (mirrored.families, audit.families, loaded.families, registry.status.families)
        with CommandPage("127.0.0.1:0", sources) as page:
            yield urlsplit(page.url).netloc
        mirror.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed")
def test_prometheus_answers_every_panel_about_a_pipeline(broker: Broker, tmp_path: Path) -> None:
    with pipeline_at_work(broker) as target:
        prometheus = Prometheus(tmp_path, target, "kafkalite_audit_rounds_total")
        try:
            wait_until(prometheus.serves, 120, "some scrapes")
            asked = expressions(PIPELINE)
            empty = {title for title, text in asked if not prometheus.get("query", query=text)["result"]}
            assert empty <= MAY_BE_EMPTY
        finally:
            prometheus.stop()


def groups(prometheus: Prometheus) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = prometheus.get("rules")["groups"]
    return found

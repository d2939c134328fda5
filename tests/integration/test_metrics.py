"""A broker's metrics: the numbers match the clients' requests, and only authorized users read them."""

from __future__ import annotations

import gzip
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.base.metric_families import Family, labels
from kafkalite.errors import ConfigError, ErrorCode
from kafkalite.web.users import Role, token_line
from tests.kit.harness import wire
from tests.kit.harness.certificates import Authority
from tests.kit.harness.scrape import OPENMETRICS, Scrape, ask
from tests.kit.processes.broker import wait_until

HERE = "http://127.0.0.1:0"
GZIP, CONTROL = 1, 32  # attributes of a batch


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(metrics_listeners=HERE, num_network_threads=2) as running:
        yield running


def scrape(broker: Broker) -> Scrape:
    return Scrape.of(broker.metrics_urls[0])


def wait_counted(broker: Broker, count: int, request: str) -> None:
    """An answer is there a moment before its worker has noted when it had left."""
    name = "kafka_network_requestmetrics_totaltimems_count"
    wait_until(lambda: scrape(broker)(name, request=request) == count, 60, f"{count} of {request} to be counted")


def batch(count: int, value: bytes = b"x" * 100) -> bytes:
    return wire.batch_of([wire.Record(None, value) for _ in range(count)])


def test_traffic_is_what_clients_wrote_and_read(broker: Broker) -> None:
    broker.create_topic("a", 2)
    sent = batch(3)
    with wire.Connection(broker.port) as client:
        for partition in (0, 1, 1):
            assert client.produce("a", partition, sent).error == 0
        assert client.fetch("a", 1, 0).records
        assert client.fetch("a", 0, 99).error == ErrorCode.OFFSET_OUT_OF_RANGE
        broken = bytearray(sent)
        broken[-1] ^= 1
        assert client.produce("a", 0, bytes(broken)).error == ErrorCode.CORRUPT_MESSAGE
    seen = scrape(broker)
    prefix = "kafka_server_brokertopicmetrics"
    for given in ({}, {"topic": "a"}):
        assert seen(f"{prefix}_messagesin_total", **given) == 9
        assert seen(f"{prefix}_bytesin_total", **given) == 3 * len(sent)
        assert seen(f"{prefix}_bytesout_total", **given) == 2 * len(sent)
        assert seen(f"{prefix}_bytesrejected_total", **given) == len(sent)
        assert seen(f"{prefix}_totalproducerequests_total", **given) == 4
        assert seen(f"{prefix}_failedproducerequests_total", **given) == 1
        assert seen(f"{prefix}_invalidmessagecrcrecords_total", **given) == 1
        assert seen(f"{prefix}_totalfetchrequests_total", **given) == 2
        assert seen(f"{prefix}_failedfetchrequests_total", **given) == 1
    assert seen("kafka_log_log_logendoffset", topic="a", partition=1) == 6
    assert seen("kafka_log_log_size", topic="a", partition=1) == 2 * len(sent)
    assert seen("kafka_topic_partitions", topic="a") == 2
    assert seen("kafka_server_replicamanager_partitioncount") == 2


def test_what_is_refused_is_counted_by_its_fault(broker: Broker) -> None:
    """The meters of Kafka's LogValidator: batches by magic and numbers, records by the key that they lack."""
    broker.create_topic("a")
    broker.create_topic("table", cleanup_policy="compact")
    records = wire.encode_records([wire.Record(None, b"x"), wire.Record(b"k", b"x"), wire.Record(None, b"x")])
    bad_numbers: tuple[dict[str, int], ...] = (
        {"last_offset_delta": 7},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": -1},
        {"attributes": CONTROL},
    )
    with wire.Connection(broker.port) as client:
        for fields in ({"magic": 1}, *bad_numbers, {"base_offset": 5}):
            assert client.produce("a", 0, wire.seal_batch(records, 3, **fields)).error == ErrorCode.INVALID_RECORD
        for batch_sent in (wire.seal_batch(records, 3), wire.seal_batch(gzip.compress(records), 3, attributes=GZIP)):
            assert client.produce("table", 0, batch_sent).error == ErrorCode.INVALID_RECORD
            assert client.produce("a", 0, batch_sent).error == 0
    seen = scrape(broker)
    prefix = "kafka_server_brokertopicmetrics"
    for topic, magic, numbers, keys in (("a", 1, 3, 0), ("table", 0, 0, 4)):
        assert seen(f"{prefix}_invalidmagicnumberrecords_total", topic=topic) == magic
        assert seen(f"{prefix}_invalidoffsetorsequencerecords_total", topic=topic) == numbers
        assert seen(f"{prefix}_nokeycompactedtopicrecords_total", topic=topic) == keys
    assert seen(f"{prefix}_nokeycompactedtopicrecords_total") == 4
    assert seen(f"{prefix}_failedproducerequests_total", topic="a") == 5


def test_requests_are_counted_by_version_and_error(broker: Broker) -> None:
    broker.create_topic("a")
    with wire.Connection(broker.port) as client:
        for _ in range(5):
            client.produce("a", 0, batch(1))
        client.produce("nobody", 0, batch(1))
        assert client.create_topic("a") == ErrorCode.TOPIC_ALREADY_EXISTS
    wait_counted(broker, 6, "Produce")
    seen = scrape(broker)
    prefix = "kafka_network_requestmetrics"
    assert seen(f"{prefix}_requests_total", request="Produce", version=7) == 6
    assert seen(f"{prefix}_errors_total", request="Produce", error="NONE") == 5
    assert seen(f"{prefix}_errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert seen(f"{prefix}_errors_total", request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1
    for name in ("totaltimems", "localtimems", "responsesendtimems", "requestbytes"):
        assert seen(f"{prefix}_{name}_count", request="Produce") == 6
        assert seen(f"{prefix}_{name}", request="Produce", quantile=0.99) > 0
    assert seen("kafkalite_request_seconds_bucket", request="Produce", le="+Inf") == 6


def test_a_parked_answer_has_waited_and_is_counted_once(broker: Broker) -> None:
    broker.create_topic("a")
    with wire.Connection(broker.port) as client:
        client.fetch("a", 0, 0, max_wait_ms=500)
        client.produce("a", 0, batch(1), acks=-1)
    wait_counted(broker, 1, "Produce")
    seen = scrape(broker)
    for name in ("Fetch", "FetchConsumer"):
        assert seen("kafka_network_requestmetrics_remotetimems_count", request=name) == 1
        assert seen("kafka_network_requestmetrics_remotetimems_sum", request=name) >= 25
        assert seen("kafka_network_requestmetrics_totaltimems_count", request=name) == 1
    assert seen("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 1
    assert seen("kafkalite_flush_seconds_count") >= 1


def test_requests_that_come_together_are_counted_each_under_its_own_name(broker: Broker) -> None:
    broker.create_topic("a")
    produce, fetch, metadata = 0, 1, 3

    def asked(key: int, version: int, body: bytes) -> bytes:
        return wire.frame(wire.header(key, version, 0) + body)

    answered = asked(produce, 7, wire.produce_body("a", [(0, batch(1))]))
    older = asked(produce, 6, wire.produce_body("a", [(0, batch(1))]))
    silent = asked(produce, 7, wire.produce_body("a", [(0, batch(1))], acks=0))
    parked = asked(produce, 7, wire.produce_body("a", [(0, batch(1))], acks=-1))
    read = asked(fetch, 11, wire.fetch_body("a", [(0, 0)]))
    topics = asked(metadata, 1, wire.i32(0))
    sent = [answered, answered, silent, topics, older, read, parked, answered, answered, silent, parked, read]
    with wire.Connection(broker.port) as client:
        client.produce("a", 0, batch(1))  # the log's first batch may be parked
        client.send_bytes(b"".join(sent))
        for _ in range(len(sent) - 2):
            client.receive()
    wait_counted(broker, 10, "Produce")
    wait_counted(broker, 2, "Fetch")
    seen = scrape(broker)
    prefix = "kafka_network_requestmetrics"
    assert seen(f"{prefix}_requests_total", request="Produce", version=7) == 9
    assert seen(f"{prefix}_requests_total", request="Produce", version=6) == 1
    assert seen(f"{prefix}_requests_total", request="Metadata", version=1) == 1
    assert 4 <= seen(f"{prefix}_remotetimems_count", request="Produce") <= 6
    for name, count in {"Produce": 10, "Fetch": 2, "Metadata": 1}.items():
        assert seen(f"{prefix}_errors_total", request=name, error="NONE") == count
        assert seen(f"{prefix}_localtimems_count", request=name) == count
        assert seen(f"{prefix}_totaltimems_count", request=name) == count
    produced = sum(len(one) - 4 for one in [answered, *sent] if one[4:6] == wire.i16(produce))
    assert seen(f"{prefix}_requestbytes_sum", request="Produce") == produced


def test_what_a_deleted_topic_has_counted_stays_in_the_sums(broker: Broker) -> None:
    broker.create_topic("a")
    with wire.Connection(broker.port) as client:
        client.produce("a", 0, batch(3))
        broker.delete_topic("a")
        broker.create_topic("a")
        client.produce("a", 0, batch(2))
    seen = scrape(broker)
    assert seen("kafka_server_brokertopicmetrics_messagesin_total") == 5
    assert seen("kafka_server_brokertopicmetrics_messagesin_total", topic="a") == 2


def test_connections_are_counted_while_they_are_open(broker: Broker) -> None:
    def open_now() -> float:
        seen = scrape(broker)
        name = "kafka_server_socket_server_metrics_connection_count"
        return sum(seen.samples[name, frozenset(given.items())] for given in seen.labels_of(name))

    with wire.Connection(broker.port), wire.Connection(broker.port) as client:
        client.produce("nobody", 0, batch(1))
        assert open_now() == 2
        assert (
            scrape(broker)(
                "kafka_server_socket_server_metrics_connections_software",
                clientSoftwareName="unknown",
                clientSoftwareVersion="unknown",
            )
            == 2
        )
    wait_until(lambda: open_now() == 0, 60, "connections to be closed")
    assert (
        sum(
            scrape(broker)("kafka_server_socket_server_metrics_connection_creation_total", networkprocessor=at)
            for at in (0, 1)
        )
        == 2
    )


def test_a_fetch_that_waits_is_in_purgatory_until_it_is_answered(broker: Broker) -> None:
    def waiting(what: str) -> float:
        return scrape(broker)("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation=what)

    broker.create_topic("a")
    assert (waiting("Fetch"), waiting("Produce")) == (0, 0)
    with wire.Connection(broker.port) as reader, wire.Connection(broker.port) as writer:
        reader.send(1, 11, wire.fetch_body("a", [(0, 0)], max_wait_ms=600_000))
        wait_until(lambda: waiting("Fetch") == 1, 60, "the fetch to be parked")
        assert scrape(broker)("kafkalite_parked_requests", request="Fetch") == 1
        writer.produce("a", 0, batch(1))
        reader.receive()
    assert (waiting("Fetch"), waiting("Produce")) == (0, 0)


def test_tls_connections_are_counted_by_protocol_and_cipher_suite(tmp_path: Path) -> None:
    authority = Authority()
    store = authority.issue("server").write_pem(tmp_path / "server.pem")
    context = ssl.create_default_context(cafile=str(authority.write_pem(tmp_path / "authority.pem")))
    name = "kafka_server_socket_server_metrics_connections_tls_info"
    with Broker(listeners="SSL://127.0.0.1:0", ssl_keystore_location=str(store), metrics_listeners=HERE) as broker:
        assert scrape(broker).labels_of(name) == []
        with (
            socket.create_connection(("127.0.0.1", broker.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            suite = secure.cipher()
            assert suite is not None
            given = {"listener": "SSL", "protocol": secure.version(), "cipher": suite[0]}
            wait_until(lambda: scrape(broker).labels_of(name) != [], 60, "the broker to have the handshake's end")
            (told,) = scrape(broker).labels_of(name)
            assert {key: told[key] for key in given} == given
            assert scrape(broker)(name, **told) == 1


def test_both_formats_and_gzip_say_the_same(broker: Broker) -> None:
    url = broker.metrics_urls[0]
    plain, packed = ask(url), ask(url, Accept_Encoding="gzip")
    newer = ask(url, Accept=OPENMETRICS)
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert newer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert packed.headers["content-encoding"] == "gzip"
    names = {name for name, _ in Scrape(plain.text).samples}
    assert names == {name for name, _ in Scrape(packed.text).samples}
    assert names == {name for name, _ in Scrape(newer.text, openmetrics=True).samples}
    assert not any(name.startswith("jvm_") for name in names)
    assert {"process_resident_memory_bytes", "kafka_brokers", "kafkalite_disk_free_bytes"} <= names


def test_with_many_partitions_metrics_are_per_topic() -> None:
    with Broker(metrics_listeners=HERE, metrics_partitions_max=3) as broker:
        broker.create_topic("a", 3)
        assert scrape(broker)("kafka_log_log_size", topic="a", partition=2) == 0
        broker.create_topic("b")
        names = {name for name, _ in scrape(broker).samples}
        assert "kafka_log_log_size" not in names
        assert scrape(broker)("kafka_topic_partitions", topic="a") == 3


def test_a_failing_part_is_left_out_and_others_are_exported(broker: Broker) -> None:
    def failing() -> Iterator[Family]:
        yield Family("good", "gauge", "Good.", [(labels(at=1), 1)])
        raise RuntimeError("of this part")

    assert broker._parts.told is not None
    broker._parts.told.sources.extend([failing, lambda: [Family("later", "counter", "Later.", [("", 7)])]])
    seen = scrape(broker)
    assert seen("good", at=1) == 1
    assert seen("later_total") == 7
    assert seen("kafkalite_scrape_failed_sources") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 405),
        ("DELETE", "/health/live", 405),
        ("GET", "/", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("GET", "/health/live", 200),
        ("GET", "/health/ready", 200),
    ],
)
def test_paths_are_read_and_nothing_else(broker: Broker, method: str, path: str, status: int) -> None:
    got = ask(broker.metrics_urls[0], path, method=method)
    assert got.status == status
    assert "access-control-allow-origin" not in got.headers
    assert (method != "HEAD") == bool(got.body)


def test_a_page_of_another_name_cannot_ask(broker: Broker) -> None:
    """DNS rebinding: the name is another site's, the address is this one."""
    assert ask(broker.metrics_urls[0], Host="evil.example").status == 421


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"metrics_listeners": "http://0.0.0.0:0"}, "is reachable from other machines; set metrics.users"),
        ({"metrics_listeners": "http://:0"}, "is reachable from other machines; set metrics.users"),
        ({"metrics_listeners": "ftp://127.0.0.1"}, "is not an address to listen on"),
        ({"metrics_listeners": "https://127.0.0.1:0"}, "https requires a certificate"),
    ],
)
def test_a_door_that_must_not_stand_open_is_not_opened(settings: dict[str, str], complaint: str) -> None:
    broker = Broker(**settings)
    with pytest.raises(ConfigError, match=complaint):
        broker.start()


def test_a_stranger_is_refused_where_users_are_named(tmp_path: Path) -> None:
    line, token = token_line("prometheus", Role.VIEWER)
    users = tmp_path / "users"
    users.write_text(line)
    users.chmod(0o600)
    with Broker(metrics_listeners="http://0.0.0.0:0", metrics_users=str(users)) as broker:
        url = broker.metrics_urls[0].replace("0.0.0.0", "127.0.0.1")
        for path in ("/metrics", "/health/live"):
            assert ask(url, path).status == 401
            assert ask(url, path, Authorization="Bearer wrong").status == 401
            assert ask(url, path, Authorization=f"Bearer {token}").status == 200


def test_a_broker_without_the_listener_loads_nothing_for_it() -> None:
    script = (
        "import sys\nfrom kafkalite import Broker\n"
        "with Broker() as broker: assert broker.metrics_urls == []\n"
        "absent = ('kafkalite.broker.metrics', 'kafkalite.metrics', 'kafkalite.web', 'waitress')\n"
        "print([name for name in sys.modules if name.startswith(absent)])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_worker_that_is_stuck_makes_the_broker_not_alive(broker: Broker) -> None:
    url, go_on = broker.metrics_urls[0], threading.Event()
    broker._parts.workers[1].mailbox.put(go_on.wait)
    try:
        wait_until(lambda: "network worker 1" in ask(url, "/health/live").text, 60, "the worker to be missed")
        got = ask(url, "/health/live")
        assert (got.status, got.json["status"]) == (503, "down")
        assert any("network worker 1 has been busy or stuck" in reason for reason in got.json["reasons"])
        assert ask(url, "/health/ready").status == 503
    finally:
        go_on.set()
    wait_until(lambda: ask(url, "/health/live").status == 200, 60, "the worker to turn")


def test_while_groups_are_loaded_and_while_it_stops_the_broker_is_not_ready(broker: Broker) -> None:
    told = broker._parts.told
    assert told is not None
    assert told.groups is not None
    url = broker.metrics_urls[0]

    def reasons() -> list[str]:
        got = ask(url, "/health/ready")
        found: list[str] = got.json.get("reasons", [])
        assert (got.status == 503) == bool(found)
        return found

    assert reasons() == []
    told.groups.shards.loaded.clear()
    assert reasons() == ["consumer groups are still loading"]
    told.groups.shards.loaded.set()
    told.stopping = True
    assert reasons() == ["the broker is stopping"]
    assert ask(url, "/health/live").status == 200
    told.stopping = False
    told.accepting = False
    assert reasons() == ["the broker is starting: it is opening its logs"]

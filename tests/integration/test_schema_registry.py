"""`kafkalite registry` as a process on a broker: durable, several at once, bounded, and served as clients expect."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalite.client import Client
from kafkalite.schema_registry.rest import BODY_SIZE_MAX
from kafkalite.schema_registry.server import LIMITS, RegistryServer
from kafkalite.schema_registry.topic import TopicStore
from tests.kit.processes.broker import REPOSITORY, STOP_TIMEOUT_S, wait_until
from tests.kit.processes.schema_registry import JSON, RegistryProcess, call

pytestmark = pytest.mark.integration


def schema_of(number: int) -> str:
    return json.dumps({"type": "record", "name": f"R{number}", "fields": []}, separators=(",", ":"))


def register(address: str, subject: str, text: str) -> int:
    status, answer, _ = call(address, "POST", f"/subjects/{subject}/versions", {"schema": text})
    assert status == 200, answer
    return answer["id"]


@pytest.fixture
def topic(kafka_topic: str) -> str:
    """A name for a registry's topic; the fixture's own topic is not compacted."""
    return f"schemas-{kafka_topic}"[:249]


def test_schemas_outlive_the_registry_and_are_compacted(kafka_broker, topic: str) -> None:
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as registry:
        assert [register(registry.address, "s", schema_of(0)), register(registry.address, "t", schema_of(1))] == [1, 2]
    with Client(kafka_broker.bootstrap_servers) as client:
        (policy,) = client.admin.describe_topic_configs(topic, ["cleanup.policy"])
        keys = [record.key for chunk in client.read(topic, 0, isolation=1) for record in chunk.records()]
    assert policy.value == "compact"
    assert keys[0] == b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as registry:
        assert call(registry.address, "GET", "/schemas/ids/2")[:2] == (200, {"schema": schema_of(1)})
        assert register(registry.address, "u", schema_of(1)) == 2
        assert register(registry.address, "u2", schema_of(2)) == 3


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_registry_whose_follower_dies_has_failed(
    kafka_broker, topic: str, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    """Otherwise it would serve what it had read by then, and nothing newer."""

    def die(*arguments: object) -> None:
        raise kind("planted")

    monkeypatch.setattr(threading, "excepthook", lambda what: None)
    with RegistryServer(kafka_broker.bootstrap_servers, topic=topic, port=0) as server:
        assert not server.failed.is_set()
        monkeypatch.setattr(TopicStore, "_take", die)
        assert server.failed.wait(STOP_TIMEOUT_S)


def test_two_registries_give_each_id_once_and_see_each_other(kafka_broker, topic: str) -> None:
    with (
        RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as first,
        RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as second,
    ):
        assert call(first.address, "PUT", "/config", {"compatibility": "NONE"})[0] == 200

        def run(number: int) -> tuple[int, int]:
            """Two registries are asked for the same schema at about the same time, and others beside it."""
            address = (first, second)[number % 2].address
            return number // 2, register(address, f"s{number // 2 % 5}", schema_of(number // 2))

        with ThreadPoolExecutor(4) as pool:
            rows = list(pool.map(run, range(40)))
        ids: dict[int, set[int]] = {}
        for number, schema_id in rows:
            ids.setdefault(number, set()).add(schema_id)
        assert all(len(found) == 1 for found in ids.values()), ids
        assert sorted(schema_id for found in ids.values() for schema_id in found) == list(range(1, 21))
        for number, (schema_id,) in ids.items():
            for registry in (first, second):
                assert call(registry.address, "GET", f"/schemas/ids/{schema_id}")[:2] == (
                    200,
                    {"schema": schema_of(number)},
                )
        everything = [call(registry.address, "GET", "/schemas?deleted=true")[1] for registry in (first, second)]
        assert everything[0] == everything[1]
        versions = [(row["subject"], row["version"]) for row in everything[0]]
        assert versions == [(f"s{number}", version) for number in range(5) for version in (1, 2, 3, 4)]


def test_a_topic_that_would_lose_schemas_is_refused(kafka_broker, kafka_topic: str, tmp_path) -> None:
    command = [sys.executable, "-m", "kafkalite", "registry", "-b", kafka_broker.bootstrap_servers, "--port", "0"]
    result = subprocess.run(
        [*command, "--topic", kafka_topic], cwd=REPOSITORY, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 2
    assert "has cleanup.policy=delete, which would" in result.stderr
    for wrong, text in (
        (["--port", "x"], "'x' is not a port number"),
        (["--bootstrap-server", ":"], "is not host:port"),
    ):
        result = subprocess.run([*command, *wrong], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        assert (result.returncode, result.stdout) == (2, "")
        assert text in result.stderr


def test_records_that_say_nothing_are_passed_over(kafka_broker, topic: str) -> None:
    from kafkalite.wire.record.columns import Record

    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.create_topic(topic, 1, configs={"cleanup.policy": "compact"})
        key = b'{"keytype":"SCHEMA","subject":"s","version":%d,"magic":1}'
        value = b'{"subject":"s","version":%d,"id":%d,"schema":"\\"%s\\"","deleted":false}'
        rows = [(b"garbage", b"x"), (key % 1, value % (1, 4, b"int")), (key % 2, value % (2, 4, b"long"))]
        client.produce(topic, 0, [Record(-1, -1, *row) for row in rows])
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as registry:
        assert call(registry.address, "GET", "/subjects/s/versions")[:2] == (200, [1])
        assert register(registry.address, "t", '"string"') == 5


def test_the_process_says_when_it_serves_and_ends_in_peace(kafka_broker, topic: str, tmp_path) -> None:
    with RegistryProcess(tmp_path, kafka_broker.bootstrap_servers, "--topic", topic) as registry:
        assert register(registry.address, "s", schema_of(0)) == 1
        assert registry.process is not None
        registry.process.send_signal(signal.SIGTERM)
        assert registry.process.wait(STOP_TIMEOUT_S) == 0
        assert "kafkalite registry is ready: http://127.0.0.1:" in registry.log()
        assert not (tmp_path / "ready").exists()


def test_a_kept_connection_serves_many_requests(kafka_broker, topic: str) -> None:
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as registry:
        host, port = registry.address.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        for number in range(5):
            connection.request("POST", "/subjects/s/versions", json.dumps({"schema": '"int"'}), {"Content-Type": JSON})
            response = connection.getresponse()
            assert (response.status, response.version, json.loads(response.read())) == (200, 11, {"id": 1})
            if number == 0:
                kept = connection.sock
        assert connection.sock is kept
        connection.close()


def test_slow_and_large_requests_block_no_other_client(kafka_broker, topic: str) -> None:
    with RegistryServer(
        kafka_broker.bootstrap_servers, port=0, topic=topic, limits=LIMITS._replace(threads=2)
    ) as registry:
        host, port = registry.address.split(":")
        slow = [socket.create_connection((host, int(port))) for _ in range(20)]
        for sock in slow:  # half a request each: more than there are workers
            sock.sendall(b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert register(registry.address, "s", schema_of(0)) == 1
        with socket.create_connection((host, int(port)), timeout=60) as sock:
            sock.sendall(b"POST /subjects/s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_SIZE_MAX + 1))
            sock.sendall(b"x" * 1000)
            assert sock.recv(100).startswith(b"HTTP/1.1 413")
        for sock in slow:
            sock.close()


def test_writes_fail_with_their_code_while_the_broker_is_away_and_reads_work(tmp_path) -> None:
    from kafkalite import Broker

    broker = Broker(log_dirs=str(tmp_path), flush_on_acks_all=False).start()
    try:
        registry = RegistryServer(broker.bootstrap_servers, port=0, timeout_s=2.0)
        registry.start()
    except BaseException:
        broker.stop()
        raise
    try:
        assert register(registry.address, "s", schema_of(0)) == 1
        broker.stop()
        assert call(registry.address, "GET", "/schemas/ids/1")[0] == 200
        status, answer, _ = call(registry.address, "POST", "/subjects/s2/versions", {"schema": schema_of(1)})
        assert (status, answer["error_code"]) == (500, 50001)
        assert call(registry.address, "GET", "/schemas/ids/9")[0] == 500  # the store cannot be read
    finally:
        registry.stop()
        broker.stop()


def test_a_refusal_of_the_broker_is_returned_at_once(kafka_broker, topic: str) -> None:
    with Client(kafka_broker.bootstrap_servers) as client:
        client.admin.create_topic(topic, 1, configs={"cleanup.policy": "compact", "max.message.bytes": "1000"})
    with RegistryServer(kafka_broker.bootstrap_servers, port=0, topic=topic) as registry:
        assert register(registry.address, "s", schema_of(0)) == 1
        large = json.dumps({"type": "record", "name": "L", "doc": "x" * 2000, "fields": []})
        status, answer, _ = call(registry.address, "POST", "/subjects/t/versions", {"schema": large})
        assert (status, answer["error_code"]) == (500, 50001)
        assert "larger than" in answer["message"]
        assert register(registry.address, "t", schema_of(1)) == 2


@pytest.mark.slow
def test_kill_9_loses_nothing_acknowledged(kafka_broker, topic: str, tmp_path) -> None:
    acknowledged: dict[int, str] = {}
    registry = RegistryProcess(tmp_path, kafka_broker.bootstrap_servers, "--topic", topic)
    with registry:
        for round_number in range(5):

            def work(number: int, offset: int = round_number * 1000) -> None:
                text = schema_of(offset + number)
                try:
                    acknowledged[register(registry.address, f"s{offset + number}", text)] = text
                except (OSError, http.client.HTTPException):
                    return

            with ThreadPoolExecutor(4) as pool:
                before = len(acknowledged)
                futures = [pool.submit(work, number) for number in range(200)]
                wait_until(lambda count=before: len(acknowledged) >= count + 10, 60, "ten registrations")
                registry.kill()
                for future in futures:
                    future.result()
            registry.start()
            for schema_id, text in acknowledged.items():
                assert call(registry.address, "GET", f"/schemas/ids/{schema_id}")[:2] == (200, {"schema": text})
        rows = call(registry.address, "GET", "/schemas")[1]
        assert len({row["id"] for row in rows}) == len(rows)

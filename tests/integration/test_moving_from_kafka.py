"""docs/moving.md as its reader would run it, with Apache Kafka as the cluster that is left; and users from files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker import Broker
from kafkalite.broker.cluster.foreign_users import Credentials, _apply, credentials_of
from kafkalite.broker.cluster.records import MetadataFault
from kafkalite.cli import main
from kafkalite.client import Client, Security, SignInRefused
from kafkalite.errors import StartupError
from kafkalite.model import TopicPartition
from kafkalite.wire.record.batches import encode_batch
from kafkalite.wire.record.columns import Record, RecordColumns
from tests.kit.harness.doc_pages import PageRun
from tests.kit.processes.apache_kafka import ApacheKafka
from tests.kit.processes.broker import wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 60
RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
READER = Acl(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
)
QUOTA = (("user", "alice"),)
COUNT = 900
PAGES_PORT = 9093


def fill(client: Client) -> list[bytes]:
    """Topics, transactions of which some are aborted, a user, a rule, a quota; the committed values."""
    client.admin.create_topic("orders", 1, configs={"retention.ms": "86400000", "min.insync.replicas": "1"})
    client.admin.create_topic("clicks", 3)
    client.produce("clicks", 2, [b"click"] * 50)
    kept = []
    with client.producer(transactional_id="shop") as producer:
        for number in range(0, COUNT, 30):
            values = [b"%d" % i for i in range(number, number + 30)]
            producer.begin_transaction()
            producer.send("orders", 0, values)
            if number % 4:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                kept += values
    client.acls.create([READER])
    client.quotas.alter(QUOTA, {"producer_byte_rate": 1e8})
    client.users.set_password("alice", "open sesame", "SCRAM-SHA-256")
    client.users.set_password("gone", "old", "SCRAM-SHA-512")
    wait_until(lambda: {"alice", "gone"} <= client.users.list_all().keys(), TIMEOUT_S, "the users")
    client.users.delete("gone", "SCRAM-SHA-512")
    wait_until(lambda: "gone" not in client.users.list_all(), TIMEOUT_S, "the user's end")
    return kept


def take(bootstrap: str, count: int) -> list[bytes]:
    """Return `count` orders read by a group member, which commits each and leaves; it needs a position."""
    options = {"auto.offset.reset": "error", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop", **options})
    consumer.subscribe(["orders"])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
            consumer.commit(message, asynchronous=False)
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.compat
def test_the_page_moves_everything_that_it_says(kafka_jars: Path, tmp_path: Path) -> None:
    assert kafka_jars
    with ApacheKafka(tmp_path / "kafka", settings=RULES) as kafka:
        (tmp_path / "page").mkdir()
        (tmp_path / "page" / "old").symlink_to(kafka.directory)
        with Client(kafka.bootstrap, retry_timeout_s=60) as old:
            kept = fill(old)
            old.groups.commit("shop", {TopicPartition("orders", 0): 0})
            first = take(kafka.bootstrap, 333)
            with PageRun("moving.md", tmp_path / "page", {9092: kafka.port}) as page:
                assert page.run() == 5
                bootstrap = f"127.0.0.1:{page.ports[PAGES_PORT]}"
                with Client(bootstrap) as new:
                    compare(new, tmp_path / "page")
                    assert first + take(bootstrap, len(kept) - 333) == kept


def compare(new: Client, folder: Path) -> None:
    """Compare the copied data with the report."""
    told = json.loads((folder / "carried.json").read_text())
    assert new.partition_counts(["orders", "clicks"]) == {"orders": 1, "clicks": 3}
    own = {row.name: row.value for row in new.admin.describe_topic_configs("orders") if row.source == "topic"}
    assert own == {"retention.ms": "86400000"}
    assert new.acls.find() == [READER]
    assert new.quotas.list_all() == {QUOTA: {"producer_byte_rate": 1e8}}
    assert new.users.list_all() == {"alice": {"SCRAM-SHA-256": 4096}}
    assert (told["users_missing"], told["notes"]) == ({}, [])
    assert [(row["principal"], row["name"], row["operation"]) for row in told["acls"]] == [
        ("User:alice", "orders", "READ")
    ]
    assert told["quotas"] == [{"entity": {"user": "alice"}, "key": "producer_byte_rate"}]
    assert told["groups"].keys() == {"shop"}


@pytest.mark.slow
@pytest.mark.compat
def test_passwords_of_kafkas_users_remain_valid(kafka_jars: Path, tmp_path: Path) -> None:
    """From the log, and from a snapshot once there is one."""
    assert kafka_jars
    settings = {"metadata.log.max.snapshot.interval.ms": "1000", "metadata.log.max.record.bytes.between.snapshots": "1"}
    with ApacheKafka(tmp_path / "kafka", settings=settings) as kafka:
        with Client(kafka.bootstrap, retry_timeout_s=60) as old:
            old.users.set_password("alice", "open sesame", "SCRAM-SHA-512")
            wait_until(lambda: "alice" in old.users.list_all(), TIMEOUT_S, "the user")
        folder = kafka.data_dir / "__cluster_metadata-0"
        snapshots = set(folder.glob("*.checkpoint"))
        wait_until(lambda: set(folder.glob("*.checkpoint")) - snapshots, TIMEOUT_S, "a snapshot")
        assert main(["users", "copy", "--from-dir", str(kafka.data_dir), "--data-dir", str(tmp_path / "new")]) == 0
    sign_in(tmp_path / "new", "open sesame")
    with pytest.raises(SignInRefused):
        sign_in(tmp_path / "new", "shut sesame")


def sign_in(directory: Path, password: str) -> None:
    """As alice, at a broker of kafkalite's on this directory."""
    settings = {
        "log.dirs": str(directory),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    own = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": password,
    }
    with Broker(settings) as broker, Client(broker.bootstrap_servers, security=Security(own)) as client:
        assert client.topics() == {}


def test_users_of_a_backup_are_copied_but_for_those_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with Broker(log_dirs=str(old)) as broker:
        broker.add_user("alice", "open sesame")
        broker.add_user("bob", "old")
        assert main(["backup", str(tmp_path / "backup"), "--data-dir", str(old)]) == 0
        for source in (old, tmp_path / "backup"):  # that of a running broker is only read
            assert credentials_of(str(source)).keys() == {
                (f"SCRAM-SHA-{bits}", user) for bits in (256, 512) for user in ("alice", "bob")
            }
    (tmp_path / "password").write_text("new")
    assert main(["users", "add", "bob", "--data-dir", str(new), "--password-file", str(tmp_path / "password")]) == 0
    capsys.readouterr()
    copy = ["users", "copy", "--from-dir", str(tmp_path / "backup"), "--data-dir", str(new)]
    assert main([*copy, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["user"] for row in told["copied"]} == {"alice"}
    assert {row["user"] for row in told["kept"]} == {"bob"}
    assert main(copy) == 0
    assert capsys.readouterr().out.count("left unchanged") == 4
    sign_in(new, "open sesame")


def test_a_directory_that_is_none_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = tmp_path / "new"
    for source in (tmp_path / "missing", tmp_path):
        assert main(["users", "copy", "--from-dir", str(source), "--data-dir", str(new)]) == 2
        assert "has neither metadata.journal (kafkalite) nor" in capsys.readouterr().err
    assert not new.exists()


# --- Kafka's records --------------------------------------------------------------------------------------------------

ALICE = ("SCRAM-SHA-256", "alice")


def user_record(name: str, salt: bytes = b"salt") -> bytes:
    """Of SCRAM-SHA-256, as Kafka 4.1 writes it; no tagged fields."""
    parts = [name.encode(), salt, b"s" * 32, b"k" * 32]
    texts = [bytes([len(part) + 1]) + part for part in parts]
    return bytes([1, 11, 0]) + texts[0] + b"\1" + b"".join(texts[1:]) + (4096).to_bytes(4, "big") + b"\0"


def gone_record(name: str) -> bytes:
    return bytes([1, 22, 0, len(name) + 1]) + name.encode() + b"\1\0"


BEGIN, END, ABORT = bytes([1, 23, 0, 0]), bytes([1, 24, 0, 0]), bytes([1, 25, 0, 0])
OTHER = bytes([1, 20, 0, 0])


@pytest.mark.parametrize(
    ("values", "users"),
    [
        ([OTHER, user_record("alice"), OTHER], {"alice"}),
        ([user_record("alice"), gone_record("alice"), user_record("bob")], {"bob"}),
        ([BEGIN, user_record("alice"), END], {"alice"}),
        ([user_record("alice"), BEGIN, gone_record("alice"), user_record("bob"), ABORT], {"alice"}),
        ([BEGIN, user_record("alice")], set()),
        ([gone_record("alice")], set()),
        ([bytes([1, 0xFF, 1, 0, 0]), user_record("alice"), bytes([1, 99, 0, 0])], {"alice"}),
    ],
)
def test_what_kafkas_records_mean(values: list[bytes], users: set[str]) -> None:
    found: Credentials = {}
    _apply(found, values)
    assert {user for _, user in found} == users


@pytest.mark.parametrize("end", range(1, len(user_record("alice"))))
def test_a_record_that_is_cut_off_is_said(end: int) -> None:
    with pytest.raises(MetadataFault):
        _apply({}, [user_record("alice")[:end]])


def test_a_log_counts_behind_the_newest_snapshot_alone(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()

    def write(name: str, values: list[bytes], first: int) -> None:
        raw, _ = encode_batch(RecordColumns.from_records(records_of(values)), timestamp=0, base_offset=first)
        (folder / name).write_bytes(raw)

    write(
        "00000000000000000000.log", [user_record("early"), user_record("alice", b"old"), OTHER, gone_record("bob")], 0
    )
    write("00000000000000000002-0000000001.checkpoint", [user_record("wrong")], 0)
    write("00000000000000000003-0000000001.checkpoint", [user_record("alice", b"new"), user_record("bob")], 0)
    assert credentials_of(str(tmp_path)).keys() == {ALICE}
    assert credentials_of(str(folder))[ALICE].salt == b"new"
    (folder / "00000000000000000003-0000000001.checkpoint").write_bytes(b"x" * 100)
    with pytest.raises(StartupError, match="cannot be read"):
        credentials_of(str(tmp_path))


def test_a_transaction_may_span_segments(tmp_path: Path) -> None:
    for first, values in ((0, [BEGIN, user_record("alice")]), (2, [user_record("bob"), END]), (4, [BEGIN])):
        raw, _ = encode_batch(RecordColumns.from_records(records_of(values)), timestamp=0, base_offset=first)
        folder = tmp_path / "__cluster_metadata-0"
        folder.mkdir(exist_ok=True)
        (folder / f"{first:020d}.log").write_bytes(raw)
    assert {user for _, user in credentials_of(str(tmp_path))} == {"alice", "bob"}


def records_of(values: list[bytes]) -> list[Record]:
    return [Record(-1, 0, None, value) for value in values]

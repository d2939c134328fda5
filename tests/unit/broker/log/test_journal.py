"""The journal: what it replays, what it makes of torn and damaged lines, and that a failed write changes nothing."""

import errno
from pathlib import Path

import pytest

from kafkalite._native.base import file_ops
from kafkalite.base.acls import Acl, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.base.quota_entities import Change
from kafkalite.broker.features import EPOCH, Features
from kafkalite.broker.log.journal import (
    SLACK_LINES,
    Journal,
    TopicState,
    acls_change,
    client_metrics_change,
    credential_change,
    credential_deletion,
    credentials_change,
    encode_line,
    features_change,
    group_change,
    quotas_change,
    replay,
    topic_change,
)
from kafkalite.errors import StartupError
from kafkalite.model import ScramCredential, uuid_text
from tests.kit.harness import seams

pytestmark = pytest.mark.own_process

ID = bytes(range(16))
CREDENTIAL = ScramCredential(b"salt", b"s" * 32, b"v" * 32, 4096)


def filled(path: Path) -> Journal:
    journal = Journal.create(str(path), "cluster")
    journal.record(topic_change(TopicState("a", ID, {"retention.ms": "1"}, [0, 0, 0])))
    journal.record({"op": "producer_ids", "next": 1000})
    journal.record({"op": "partitions", "name": "a", "total": 5, "epoch_base": 2})
    journal.record({"op": "unclean", "count": 3})
    journal.record({"op": "overrides", "name": "a", "overrides": {}})
    journal.record({"op": "epoch_base", "name": "a", "partition": 1, "base": -4})
    journal.record({"op": "broker", "overrides": {"log.retention.ms": "5"}})
    journal.record(topic_change(TopicState("b", ID[::-1], {}, [3])))
    journal.record({"op": "delete", "name": "b", "id": uuid_text(ID[::-1])})
    journal.record({"op": "secret", "value": "ab" * 32})
    journal.record({"op": "cluster", "overrides": {"log.retention.ms": "6"}})
    journal.record(group_change("g", {"share.isolation.level": "read_committed"}))
    journal.record(group_change("h", {"consumer.session.timeout.ms": "50000"}))
    journal.record(group_change("h", {}))
    journal.record(client_metrics_change("all", {"metrics": "*"}))
    journal.record(client_metrics_change("gone", {"interval.ms": "100"}))
    journal.record(client_metrics_change("gone", {}))
    journal.record(features_change(Features((("group.version", 0),), 3)))
    journal.record(credential_change("SCRAM-SHA-256", "alice", CREDENTIAL))
    journal.record(credential_change("SCRAM-SHA-512", "alice", CREDENTIAL._replace(iterations=8192)))
    journal.record(credential_change("SCRAM-SHA-256", "bob", CREDENTIAL))
    journal.record(credential_deletion("SCRAM-SHA-256", "bob"))
    journal.record(
        credentials_change(
            [credential_change(mechanism, "carol", CREDENTIAL) for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        )
    )
    journal.record(credential_change("SCRAM-SHA-256", "alice", CREDENTIAL))
    return journal


def test_replay_gives_the_recorded_state(tmp_path: Path) -> None:
    written = filled(tmp_path)
    written.close()
    journal = Journal.open(str(tmp_path))
    assert journal is not None
    state = journal.state
    assert state == written.state
    assert state.topics["a"].epoch_bases == [0, -4, 0, 2, 2]
    assert (state.next_producer_id, state.unclean_count, state.cluster_id) == (1000, 3, "cluster")
    assert (list(state.topics), state.deleted_ids) == (["a"], {ID[::-1]})
    assert (state.broker_overrides, state.cluster_overrides) == ({"log.retention.ms": "5"}, {"log.retention.ms": "6"})
    assert state.secret == b"\xab" * 32
    assert state.group_overrides == {"g": {"share.isolation.level": "read_committed"}}
    assert state.client_metrics_overrides == {"all": {"metrics": "*"}}
    assert (state.features.level("group.version"), state.features.epoch) == (0, EPOCH + 3)
    assert state.credentials == {
        ("SCRAM-SHA-256", "alice"): CREDENTIAL,
        ("SCRAM-SHA-512", "alice"): CREDENTIAL._replace(iterations=8192),
        ("SCRAM-SHA-256", "carol"): CREDENTIAL,
        ("SCRAM-SHA-512", "carol"): CREDENTIAL,
    }
    journal.rewrite()
    journal.close()
    again = Journal.open(str(tmp_path))
    assert again is not None
    assert (again.state.credentials, again.state.secret) == (state.credentials, state.secret)
    assert again.state.group_overrides == state.group_overrides
    assert again.state.client_metrics_overrides == state.client_metrics_overrides
    assert again.state.cluster_overrides == state.cluster_overrides
    assert again.state.features == state.features
    again.close()


def test_cut_at_every_byte_gives_an_earlier_state_or_refuses(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.close()
    path = Path(journal.path)
    data = path.read_bytes()
    lines = data.split(b"\n")[:-1]
    for size in range(len(data) + 1):
        try:
            _, good_size, count = replay(str(path), data[:size])
        except StartupError:
            assert size <= len(lines[0])
            continue
        assert data[:good_size] == b"".join(line + b"\n" for line in lines[:count])
        assert size - good_size <= max(map(len, lines)) + 1


def test_flip_at_every_byte_refuses_or_gives_an_earlier_state(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.close()
    data = Path(journal.path).read_bytes()
    last_line = data.rindex(b"\n", 0, -1) + 1
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        try:
            _, good_size, _ = replay(journal.path, damaged)
        except StartupError:
            assert at < last_line
        else:
            assert at >= last_line - 1, "damage in the middle must be refused"
            assert good_size <= last_line


def test_torn_line_is_cut_off_and_overwritten(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.close()
    path = Path(journal.path)
    whole = path.read_bytes()
    path.write_bytes(whole + encode_line({"op": "unclean", "count": 9})[:-7])
    again = Journal.open(str(tmp_path))
    assert again is not None
    assert path.read_bytes() == whole
    again.record({"op": "unclean", "count": 4})
    again.close()
    final = Journal.open(str(tmp_path))
    assert final is not None
    assert final.state.unclean_count == 4
    final.close()


def test_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.journal").write_bytes(encode_line({"op": "format", "version": 2, "cluster_id": "x"}))
    with pytest.raises(StartupError, match="format 2"):
        Journal.open(str(tmp_path))


def test_unknown_operation_is_refused_not_skipped(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    journal.close()
    with Path(journal.path).open("ab") as file:
        file.write(encode_line({"op": "from the future"}))
    with pytest.raises(StartupError, match="line 26"):
        Journal.open(str(tmp_path))


def test_compaction_keeps_the_state(tmp_path: Path) -> None:
    journal = filled(tmp_path)
    for count in range(SLACK_LINES + 10):
        journal.record({"op": "producer_ids", "next": 2000 + count})
    size = Path(journal.path).stat().st_size
    journal.compact()
    assert Path(journal.path).stat().st_size < size // 3
    journal.record({"op": "unclean", "count": 12})
    journal.close()
    again = Journal.open(str(tmp_path))
    assert again is not None
    assert again.state == journal.state
    again.close()


@pytest.mark.parametrize(("kind", "after"), [("write", 0), ("sync", 0), ("sync", 1), ("rename", 0), ("open", 0)])
def test_rewrite_that_fails_loses_nothing(tmp_path: Path, kind: str, after: int) -> None:
    """The journal keeps the old file or, if that file has lost its name already, refuses further records."""
    journal = filled(tmp_path)
    seams.arm((kind,), after=after, error=errno.EIO, written=0)
    try:
        with pytest.raises(OSError, match="Input/output"):
            journal.rewrite()
    finally:
        file_ops.disarm()
    try:
        journal.record({"op": "unclean", "count": 12})
        recorded = True
    except OSError:
        recorded = False
    assert recorded == (after == 0)
    journal.close()
    again = Journal.open(str(tmp_path))
    assert again is not None
    assert again.state.unclean_count == (12 if recorded else 3)
    again.close()


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("written", [0, 10, 30])
def test_failed_record_changes_nothing(tmp_path: Path, kind: str, written: int) -> None:
    journal = filled(tmp_path)
    before = Path(journal.path).read_bytes()
    seams.arm((kind,), after=0, error=errno.ENOSPC, written=written)
    try:
        with pytest.raises(OSError, match="No space"):
            journal.record({"op": "unclean", "count": 99})
    finally:
        file_ops.disarm()
    assert journal.state.unclean_count == 3
    assert Path(journal.path).read_bytes() == before
    if kind == "sync":
        with pytest.raises(OSError, match="restart"):
            journal.record({"op": "unclean", "count": 100})
    else:
        journal.record({"op": "unclean", "count": 100})
    journal.close()


def acl(name: str, permission: AclPermission = AclPermission.ALLOW) -> Acl:
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, "User:a", "*", AclOperation.READ, permission)


def test_rules_come_and_go_as_a_whole(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path), "cluster")
    journal.record(acls_change([acl("a"), acl("b"), acl('"\n\u2028é')], []))
    journal.record(acls_change([acl("c")], [acl("a")]))
    wanted = {acl("b"): None, acl('"\n\u2028é'): None, acl("c"): None}
    assert journal.state.acls == wanted
    size = Path(journal.path).stat().st_size
    journal.close()
    data = Path(journal.path).read_bytes()
    for cut in range(data.rindex(b"\n", 0, size - 1) + 1, size):
        assert list(replay(journal.path, data[:cut])[0].acls) == [acl("a"), acl("b"), acl('"\n\u2028é')]
    assert replay(journal.path, data)[0].acls == wanted


def test_users_come_and_go_as_a_whole(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path), "cluster")
    alice, bob = ("SCRAM-SHA-256", "alice"), ("SCRAM-SHA-512", "bob")
    journal.record(credentials_change([credential_change(*alice, CREDENTIAL)]))
    size = journal.size
    journal.record(credentials_change([credential_deletion(*alice), credential_change(*bob, CREDENTIAL)]))
    assert journal.state.credentials == {bob: CREDENTIAL}
    journal.close()
    data = Path(journal.path).read_bytes()
    for cut in range(size, len(data)):
        assert replay(journal.path, data[:cut])[0].credentials == {alice: CREDENTIAL}
    assert replay(journal.path, data)[0].credentials == {bob: CREDENTIAL}


@pytest.mark.parametrize(
    "change",
    [
        {"op": "scram_changes", "changes": [credential_deletion("SCRAM-SHA-256", "nobody")]},
        {"op": "scram_changes", "changes": [{"op": "secret", "value": "ab", "mechanism": "x", "user": "y"}]},
        {"op": "scram_changes", "changes": None},
    ],
)
def test_users_that_cannot_be_end_the_start(tmp_path: Path, change: dict[str, object]) -> None:
    data = b"".join(encode_line(line) for line in [{"op": "format", "version": 1, "cluster_id": "c"}, change])
    with pytest.raises(StartupError, match="malformed line 2"):
        replay(str(tmp_path), data)


def test_many_rules_survive_a_rewrite_in_few_lines(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path), "cluster")
    many = [acl(f"t{i}") for i in range(2500)]
    for each in many:
        journal.state.acls[each] = None
    journal.rewrite()
    journal.close()
    state, _, count = replay(journal.path, Path(journal.path).read_bytes())
    assert (list(state.acls), count) == (many, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"op": "acls", "add": [acl("a").texts()], "remove": []},
        {"op": "acls", "add": [], "remove": [acl("b").texts()]},
        {"op": "acls", "add": [["TOPIC", "a", "LITERAL", "User:a", "*", "FLY", "ALLOW"]], "remove": []},
        {"op": "acls", "add": [["TOPIC", "", "LITERAL", "User:a", "*", "READ", "ALLOW"]], "remove": []},
        {"op": "acls", "add": [["TOPIC", "a"]], "remove": []},
        {"op": "acls", "add": "all", "remove": []},
        {"op": "acls", "add": []},
        {"op": "acl", "add": [], "remove": []},
    ],
)
def test_rules_that_cannot_be_end_the_start(tmp_path: Path, change: dict[str, object]) -> None:
    lines = [{"op": "format", "version": 1, "cluster_id": "c"}, acls_change([acl("a")], []), change]
    data = b"".join(encode_line(line) for line in lines)
    with pytest.raises(StartupError, match="malformed line 3"):
        replay(str(tmp_path), data)


SHARE = "request_percentage"
BOTH = (("client-id", None), ("user", 'a"\n\u2028é'))
OF_USER = (("user", "a"),)
RATE = "producer_byte_rate"


def test_quotas_come_and_go_as_a_whole(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path), "cluster")
    journal.record(quotas_change([Change(BOTH, RATE, 1.0), Change(OF_USER, RATE, 2.0), Change(OF_USER, SHARE, 0.5)]))
    before = {BOTH: {RATE: 1.0}, OF_USER: {RATE: 2.0, SHARE: 0.5}}
    assert journal.state.quotas == before
    journal.record(quotas_change([Change(BOTH, RATE, None), Change(OF_USER, RATE, 2.0**62)]))
    wanted = {OF_USER: {RATE: 2.0**62, SHARE: 0.5}}
    assert journal.state.quotas == wanted
    size = Path(journal.path).stat().st_size
    data = Path(journal.path).read_bytes()
    for cut in range(data.rindex(b"\n", 0, size - 1) + 1, size):
        assert replay(journal.path, data[:cut])[0].quotas == before
    assert replay(journal.path, data)[0].quotas == wanted
    journal.rewrite()
    journal.close()
    assert replay(journal.path, Path(journal.path).read_bytes())[0].quotas == wanted


def test_many_changed_quotas_survive_a_rewrite_in_few_lines(tmp_path: Path) -> None:
    journal = Journal.create(str(tmp_path), "cluster")
    for i in range(1200):
        journal.state.quotas[("user", f"u{i}"),] = {RATE: 1.0 + i, SHARE: 50.0}
    wanted = dict(journal.state.quotas)
    journal.rewrite()
    journal.close()
    state, _, count = replay(journal.path, Path(journal.path).read_bytes())
    assert (state.quotas, count) == (wanted, 4)


def quota_line(entity: object = None, key: object = RATE, value: object = 1.0) -> dict[str, object]:
    entity = {"user": "b"} if entity is None else entity
    return {"op": "quota", "changes": [{"entity": entity, "key": key, "value": value}]}


@pytest.mark.parametrize(
    "change",
    [
        quota_line(value=None),
        quota_line({"user": "a"}, SHARE, None),
        quota_line({}),
        quota_line({"user": ""}),
        quota_line({"group": "a"}),
        quota_line({"ip": "127.0.0.1", "user": "a"}),
        quota_line({"ip": "127.0.0.1"}),
        quota_line({"user": 5}),
        quota_line("user"),
        quota_line(key="consumer_rate"),
        quota_line(value=0),
        quota_line(value=1.5),
        quota_line(value=float("nan")),
        quota_line(key=SHARE, value=float("inf")),
        quota_line(value="much"),
        {"op": "quota", "changes": "all"},
        {"op": "quota"},
        {"op": "quotas", "changes": []},
    ],
)
def test_quotas_that_cannot_be_end_the_start(tmp_path: Path, change: dict[str, object]) -> None:
    there = quotas_change([Change(OF_USER, RATE, 1.0)])
    data = b"".join(encode_line(line) for line in ({"op": "format", "version": 1, "cluster_id": "c"}, there, change))
    with pytest.raises(StartupError, match="malformed line 3"):
        replay(str(tmp_path), data)

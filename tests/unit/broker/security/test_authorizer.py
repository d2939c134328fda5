"""The authoriser: precedence, changes that hold when they are answered, and what it says in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from kafkalite.base.acls import CLUSTER_NAME, Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.base.logging import REPEAT_INTERVAL_S, TextFormatter
from kafkalite.broker.security.authorizer import DELETED_MAX, Authorizer
from kafkalite.errors import ErrorCode, KafkaError, StorageError

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = ResourceType.TOPIC
HOST = "10.0.0.1"


def acl(name: str, operation: AclOperation = READ, permission: AclPermission = ALLOW, who: str = "User:a") -> Acl:
    return Acl(TOPIC, name, PatternType.LITERAL, who, "*", operation, permission)


class Disk:
    """What was made durable; or a failure."""

    def __init__(self) -> None:
        self.changes: list[tuple[list[Acl], list[Acl]]] = []
        self.failure: KafkaError | None = None

    def record(self, added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        if self.failure is not None:
            raise self.failure
        self.changes.append((list(added), list(removed)))


def make(*acls: Acl, **options: object) -> tuple[Authorizer, Disk]:
    disk = Disk()
    return Authorizer(acls, disk.record, **options), disk  # type: ignore[arg-type]


def may(authorizer: Authorizer, who: str, operation: AclOperation = READ, name: str = "t") -> bool:
    return authorizer.allows(who, HOST, operation, TOPIC, name, "Fetch")


def test_a_super_user_may_what_is_denied() -> None:
    authorizer, _ = make(acl("t", permission=DENY, who="User:*"), super_users=frozenset({"User:a"}))
    assert may(authorizer, "User:a")
    assert not may(authorizer, "User:A")
    assert authorizer.operations("User:a", HOST, TOPIC, "t", "Metadata") == 3576


@pytest.mark.parametrize("open_mode", [False, True])
def test_the_default_counts_where_no_rule_is_about_the_resource(open_mode: bool) -> None:
    authorizer, _ = make(acl("t"), allow_without_acl=open_mode)
    assert may(authorizer, "User:b", name="other") is open_mode
    assert not may(authorizer, "User:b", name="t")


def test_a_change_is_durable_before_it_holds() -> None:
    authorizer, disk = make()
    seen = []
    record = disk.record

    def recorded(added: Sequence[Acl], removed: Sequence[Acl]) -> None:
        seen.append(may(authorizer, "User:a"))
        record(added, removed)

    authorizer._record = recorded
    epoch = authorizer.control.epoch
    assert authorizer.create([acl("t")]) == [None]
    assert (seen, may(authorizer, "User:a"), authorizer.control.epoch) == ([False], True, epoch + 1)
    assert authorizer.delete([AclFilter()]) == [[acl("t")]]
    assert (seen, may(authorizer, "User:a"), authorizer.control.epoch) == ([False, True], False, epoch + 2)


def test_a_rule_twice_is_one_rule_and_a_success() -> None:
    authorizer, disk = make(acl("t"))
    assert authorizer.create([acl("t"), acl("u"), acl("u")]) == [None] * 3
    assert disk.changes == [([acl("u")], [])]
    assert authorizer.create([acl("u")]) == [None]
    assert len(disk.changes) == 1
    assert len(authorizer) == 2


def test_bad_rules_do_not_keep_the_good_ones_out() -> None:
    authorizer, _ = make()
    results = authorizer.create([acl(""), acl("t"), acl("t", who="nobody")])
    assert [result and result.code for result in results] == [
        ErrorCode.INVALID_REQUEST,
        None,
        ErrorCode.INVALID_REQUEST,
    ]
    assert authorizer.acls() == [acl("t")]


def test_a_network_that_is_none_is_refused() -> None:
    authorizer, _ = make()
    hosts = ("10.0.0.0/33", "10/8", "10.0.0.0/255.0.0.0", "/", "10.0.0.0/", "10.0.0.0/8", "fd00::1/8")
    results = authorizer.create([acl("t")._replace(host=host) for host in hosts])
    assert [result and result.code for result in results] == [ErrorCode.INVALID_REQUEST] * 5 + [None] * 2


def test_what_cannot_be_written_down_does_not_hold() -> None:
    authorizer, disk = make(acl("t"))
    disk.failure = StorageError("full")
    assert authorizer.create([acl("u"), acl("")])[0] is disk.failure
    assert authorizer.delete([AclFilter(), AclFilter(principal="User:b")]) == [disk.failure] * 2
    assert authorizer.acls() == [acl("t")]
    assert authorizer.control.epoch == 0


def test_more_than_a_request_may_delete_stays() -> None:
    authorizer, disk = make(*(acl(f"t{i}") for i in range(DELETED_MAX + 1)))
    (error,) = authorizer.delete([AclFilter()])
    assert isinstance(error, KafkaError)
    assert error.code == ErrorCode.INVALID_REQUEST
    assert (len(authorizer), disk.changes) == (DELETED_MAX + 1, [])


def test_an_acl_that_matches_two_filters_is_deleted_once() -> None:
    authorizer, disk = make(acl("t"))
    assert authorizer.delete([AclFilter(), AclFilter(TOPIC)]) == [[acl("t")]] * 2
    assert disk.changes == [([], [acl("t")])]


def test_somewhere_is_enough_to_write_anywhere() -> None:
    authorizer, _ = make(acl("t", WRITE), acl("u", WRITE, DENY, "User:b"), acl("u", WRITE, who="User:b"))
    assert authorizer.allows_any("User:a", HOST, WRITE, TOPIC, "InitProducerId")
    assert not authorizer.allows_any("User:b", HOST, WRITE, TOPIC, "InitProducerId")
    assert not authorizer.allows_any("User:c", HOST, WRITE, TOPIC, "InitProducerId")


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    formatter = TextFormatter()
    return [formatter.format(r) for r in caplog.records if r.name == "kafkalite.authorizer" and r.levelno >= level]


def test_denials_are_logged_with_principal_resource_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafkalite.authorizer")
    authorizer, _ = make(acl("t", permission=DENY), acl("u"))
    assert not may(authorizer, "User:a")
    assert not may(authorizer, "User:b", name="u")
    assert not may(authorizer, "User:b", name="v")
    assert may(authorizer, "User:a", name="u")
    assert not authorizer.allows("User:a", HOST, DESCRIBE, TOPIC, "t", "Metadata", probe=True)
    told = [line.partition("kafkalite.authorizer ")[2] for line in lines(caplog)]
    assert told == [
        (
            f"denied principal=User:a operation=READ host={HOST} resource=TOPIC:t api=Fetch"
            ' rule="DENY User:a from * READ TOPIC:LITERAL:t"'
        ),
        f'denied principal=User:b operation=READ host={HOST} resource=TOPIC:u api=Fetch rule="no matching ACL"',
        f"denied principal=User:b operation=READ host={HOST} resource=TOPIC:v api=Fetch rule=default",
    ]
    assert len(lines(caplog, logging.DEBUG)) == 5


def test_denials_are_logged_once_a_minute_for_each_principal_operation_and_type(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "kafkalite.authorizer")
    now = 1000.0
    monkeypatch.setattr("kafkalite._native.base.native_time.monotonic", lambda: now)
    authorizer, _ = make()
    for number in range(250):
        assert not may(authorizer, "User:a", name=f"t{number}")
        assert not may(authorizer, "User:b", name=f"t{number}")
    assert len(lines(caplog)) == 2
    now += REPEAT_INTERVAL_S
    assert not may(authorizer, "User:a", name="last")
    told = lines(caplog)[2:]
    assert len(told) == 1
    assert "denied (249 similar lines suppressed)" in told[0]
    assert "resource=TOPIC:last" in told[0]
    assert sum(authorizer.denied().values()) == 501


def test_every_denial_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafkalite.authorizer")
    authorizer, _ = make()
    for number in range(250):
        assert not may(authorizer, "User:a", name=f"t{number}")
    assert len(lines(caplog)) == 250


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", '"}', "x" * 70_000, "\u2028", "é\r"])
def test_names_of_clients_forge_no_line(caplog: pytest.LogCaptureFixture, name: str) -> None:
    caplog.set_level(logging.INFO, "kafkalite.authorizer")
    authorizer, _ = make()
    assert not may(authorizer, f"User:{name}", name=name)
    (line,) = lines(caplog)
    assert line.isprintable()
    assert len(line) < 5000


def test_the_cluster_is_a_resource() -> None:
    rule = Acl(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:a", "*", AclOperation.ALTER, ALLOW)
    authorizer, _ = make(rule)
    assert authorizer.allows("User:a", HOST, DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, "x")
    assert authorizer.operations("User:a", HOST, ResourceType.CLUSTER, CLUSTER_NAME, "x") == (1 << 7) | (1 << 8)

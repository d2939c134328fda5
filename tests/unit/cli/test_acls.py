"""`kafkalite acls`: rules of a broker that runs, and of a data directory that waits for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER

pytestmark = pytest.mark.integration

Acls = Callable[..., list[str]]
SETTINGS = {
    "listeners": "kafka://127.0.0.1:0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(params=["running", "waiting"])
def acls(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Acls]:
    """Runs a command; the rules that it shows, each as one text without what is alike in all."""
    broker = None
    if request.param == "running":
        broker = Broker({**SETTINGS, "log.dirs": str(tmp_path / "data")}).start()
        where = ["-b", broker.bootstrap_servers]
    else:
        where = ["--data-dir", str(tmp_path / "data")]

    def call(action: str, *arguments: str) -> list[str]:
        status = main(["acls", action, *where, "--json", *arguments])
        out, err = capsys.readouterr()
        assert status == 0, err
        return [" ".join(row.values()) for row in json.loads(out)]

    yield call
    if broker is not None:
        broker.stop()


def test_what_a_producer_and_a_consumer_need(acls: Acls) -> None:
    produces = acls(
        "add", "--allow-principal", "User:a", "--topic", "t", "--transactional-id", "x", "--producer", "--idempotent"
    )
    assert produces == [
        "TOPIC t LITERAL User:a * WRITE ALLOW",
        "TOPIC t LITERAL User:a * DESCRIBE ALLOW",
        "TOPIC t LITERAL User:a * CREATE ALLOW",
        "TRANSACTIONAL_ID x LITERAL User:a * WRITE ALLOW",
        "TRANSACTIONAL_ID x LITERAL User:a * DESCRIBE ALLOW",
        "CLUSTER kafka-cluster LITERAL User:a * IDEMPOTENT_WRITE ALLOW",
    ]
    consumes = acls("add", "--allow-principal", "User:b", "--topic", "t", "--group", "g", "--consumer")
    assert consumes == [
        "TOPIC t LITERAL User:b * READ ALLOW",
        "TOPIC t LITERAL User:b * DESCRIBE ALLOW",
        "GROUP g LITERAL User:b * READ ALLOW",
    ]
    assert sorted(acls("list")) == sorted(produces + consumes)
    assert acls("remove", "--allow-principal", "User:a", "--topic", "t", "--producer") == [
        "TOPIC t LITERAL User:a * WRITE ALLOW",
        "TOPIC t LITERAL User:a * CREATE ALLOW",
        "TOPIC t LITERAL User:a * DESCRIBE ALLOW",
    ]
    assert len(acls("list")) == 6


def test_denials_hosts_and_operations(acls: Acls) -> None:
    added = acls(
        *("add", "--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--deny-host", "::1", "--topic", "team-"),
        *("--resource-pattern-type", "prefixed", "--operation", "Read", "--operation", "DescribeConfigs"),
    )
    assert added == [
        "TOPIC team- PREFIXED User:* 10.0.0.1 READ DENY",
        "TOPIC team- PREFIXED User:* ::1 READ DENY",
        "TOPIC team- PREFIXED User:* 10.0.0.1 DESCRIBE_CONFIGS DENY",
        "TOPIC team- PREFIXED User:* ::1 DESCRIBE_CONFIGS DENY",
    ]
    assert acls("list", "--topic", "team-1") == []
    assert len(acls("list", "--topic", "team-1", "--resource-pattern-type", "match")) == 4
    assert len(acls("list", "--topic", "team-", "--resource-pattern-type", "any", "--principal", "User:*")) == 4
    assert acls("list", "--principal", "User:a") == []
    assert acls("list", "--cluster") == []
    assert len(acls("remove", "--topic", "team-1", "--resource-pattern-type", "match", "--force")) == 4
    assert acls("list") == []


def test_a_rule_twice_is_one(acls: Acls) -> None:
    for _ in range(2):
        assert acls("add", "--allow-principal", "User:a", "--cluster") == [
            "CLUSTER kafka-cluster LITERAL User:a * ALL ALLOW"
        ]
    assert len(acls("list")) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["add", "--topic", "t"], "no principal given"),
        (["add", "--allow-principal", "User:a"], "no resource given"),
        (["add", "--allow-principal", "a", "--topic", "t"], "not of the form type:name"),
        (["add", "--allow-principal", "User:a", "--topic", ""], "must not be empty"),
        (["add", "--allow-host", "::1", "--topic", "t"], "--allow-host requires"),
        (
            ["add", "--allow-principal", "User:a", "--group", "g", "--operation", "write"],
            "not apply to a group; expected",
        ),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--operation", "fly"], "invalid choice"),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--consumer"], "requires --group"),
        (["add", "--allow-principal", "User:a", "--group", "g", "--consumer"], "require --topic"),
        (
            ["add", "--allow-principal", "User:a", "--topic", "t", "--producer", "--operation", "read"],
            "cannot be used with",
        ),
        (["add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"], "invalid choice"),
        (
            ["remove", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"],
            "cannot be used with principals",
        ),
        (["remove"], "no resource given"),
    ],
)
def test_what_makes_no_rule(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["acls", *arguments, "--data-dir", str(tmp_path)])
    except SystemExit as end:
        status = int(end.code or 0)
    _, err = capsys.readouterr()
    assert status == 2
    assert text in err
    assert len(err.splitlines()) == 1


def test_a_broker_without_an_authoriser_has_no_rules(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        assert main(["acls", "list", "-b", broker.bootstrap_servers]) == 1
        assert "no authorizer" in capsys.readouterr().err


def test_rules_written_before_the_first_start_hold_at_it(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path)]
    operations = ["--operation", "create", "--operation", "describe"]
    assert main(["acls", "add", "--allow-principal", "User:ANONYMOUS", "--topic", "t", *operations, *where]) == 0
    with Broker({**SETTINGS, "log.dirs": str(tmp_path), "super.users": ""}) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_topic("t", 1)
            with pytest.raises(KafkaError) as caught:
                client.admin.create_topic("u", 1)
            assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            with pytest.raises(KafkaError) as caught:
                client.acls.find()
            assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert main(["acls", "list", *where]) == 2  # the broker has the directory


def test_the_client_finds_creates_and_deletes(tmp_path: Path) -> None:
    rule = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermission.ALLOW)
    with Broker({**SETTINGS, "log.dirs": str(tmp_path)}) as broker, Client(broker.bootstrap_servers) as client:
        client.acls.create([rule, rule._replace(name="u")])
        assert client.acls.find(AclFilter(name="t")) == [rule]
        with pytest.raises(KafkaError) as caught:
            client.acls.create([rule._replace(principal="a")])
        assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert client.acls.delete([AclFilter(name="t"), AclFilter(ResourceType.TOPIC)]) == [
            rule,
            rule._replace(name="u"),
        ]
        assert client.acls.find() == []

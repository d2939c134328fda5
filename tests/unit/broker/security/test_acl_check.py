"""What follows from rules, held against a plain reading of Kafka's order of precedence."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.base.acls import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.broker.security.acl_check import Rules, host_key
from kafkalite.errors import InvalidRequest

ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

NAMES = st.text("ab*é", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
ADDRESSES = ("*", "10.0.0.1", "::1", "0:0:0:0:0:0:0:1", "not an address")
NETWORKS = (
    "10.0.0.0/31",
    "10.0.0.7/8",
    "10.0.0.1/32",
    "::/64",
    "fd00::/8",
    "10.0.0.0/40",
    "10.0.0.0/255.0.0.0",
    "10/8",
)
HOSTS = st.sampled_from([*ADDRESSES, *NETWORKS])
IN_NETWORK = {
    "10.0.0.0/31": {"10.0.0.1"},
    "10.0.0.7/8": {"10.0.0.1", "10.0.0.2"},
    "10.0.0.1/32": {"10.0.0.1"},
    "::/64": {"::1"},
}
"""Which of the hosts that are asked about are in a network; what cannot be one has none."""
OPERATIONS = st.sampled_from([op for op in AclOperation if op not in (AclOperation.UNKNOWN, AclOperation.ANY)])
ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([LITERAL, PREFIXED]),
    PRINCIPALS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([ALLOW, DENY]),
)


def same_host(rule: str, host: str) -> bool:
    if rule == "*":
        return True
    if "/" in rule:
        return host in IN_NETWORK.get(rule, ())
    try:
        return ipaddress.ip_address(rule) == ipaddress.ip_address(host)
    except ValueError:
        return rule == host


def is_about(acl: Acl, kind: ResourceType, name: str) -> bool:
    if acl.resource_type is not kind:
        return False
    return name.startswith(acl.name) if acl.pattern_type is PREFIXED else acl.name in ("*", name)


def says(acl: Acl, principal: str, host: str, operation: AclOperation) -> bool:
    if acl.principal not in ("User:*", principal) or not same_host(acl.host, host):
        return False
    if acl.operation in (operation, ALL):
        return True
    implied = {
        DESCRIBE: {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }
    return acl.permission is ALLOW and acl.operation in implied.get(operation, set())


def plain_decision(
    acls: set[Acl], principal: str, host: str, op: AclOperation, kind: ResourceType, name: str
) -> object:
    about = [acl for acl in acls if is_about(acl, kind, name)]
    matching = {acl.permission for acl in about if says(acl, principal, host, op)}
    if DENY in matching:
        return False
    if ALLOW in matching:
        return True
    return False if about else None


def plain_any(acls: set[Acl], principal: str, host: str, op: AclOperation, kind: ResourceType) -> bool:
    mine = [
        acl
        for acl in acls
        if acl.resource_type is kind
        and acl.principal in ("User:*", principal)
        and same_host(acl.host, host)
        and acl.operation in (op, ALL)
    ]
    denied = [acl for acl in mine if acl.permission is DENY]
    if any(acl.pattern_type is LITERAL and acl.name == "*" for acl in denied):
        return False

    def dominated(allowed: Acl) -> bool:
        if allowed.pattern_type is LITERAL and allowed.name == "*":
            return False
        return any(
            allowed.name.startswith(acl.name)
            if acl.pattern_type is PREFIXED
            else allowed.pattern_type is LITERAL and acl.name == allowed.name
            for acl in denied
        )

    return any(acl.permission is ALLOW and not dominated(acl) for acl in mine)


@settings(max_examples=300)
@given(st.sets(ACLS, max_size=12), st.data())
def test_decisions_are_those_of_a_plain_reading(acls: set[Acl], data: st.DataObject) -> None:
    rules = Rules(acls)
    gone = data.draw(st.sets(st.sampled_from(sorted(acls)), max_size=6)) if acls else set()
    for acl in gone:
        rules.remove(acl)
    acls -= gone
    assert len(rules) == len(acls)
    assert set(rules) == acls
    principal = data.draw(st.sampled_from(["User:a", "User:b", "User:*", "User:c"]))
    host = data.draw(st.sampled_from(["10.0.0.1", "::1", "10.0.0.2"]))
    operation, kind, name = data.draw(OPERATIONS), data.draw(st.sampled_from([TOPIC, GROUP])), data.draw(NAMES)
    decided, rule = rules.decide(principal, host_key(host), operation, kind, name)
    assert decided == plain_decision(acls, principal, host, operation, kind, name)
    assert rule is None or (rule in acls and says(rule, principal, host, operation) and is_about(rule, kind, name))
    assert rules.allows_any(principal, host_key(host), operation, kind) == plain_any(
        acls, principal, host, operation, kind
    )


@given(st.sets(ACLS, max_size=8))
def test_rules_survive_as_texts(acls: set[Acl]) -> None:
    for acl in acls:
        assert Acl.from_texts(acl.texts()) == acl


def rule(name: str, *, kind: ResourceType = TOPIC, pattern: PatternType = LITERAL, who: str = "User:a") -> Acl:
    return Acl(kind, name, pattern, who, "*", READ, ALLOW)


@pytest.mark.parametrize("name", ["Orders", "order", "orders ", "orders2", "ORDERS", "o\u0308rders"])
def test_names_are_compared_character_by_character(name: str) -> None:
    rules = Rules([rule("orders"), rule("ördérs", kind=GROUP)])
    assert rules.decide("User:a", "1.1.1.1", READ, TOPIC, "orders")[0] is True
    assert rules.decide("User:a", "1.1.1.1", READ, TOPIC, name)[0] is None
    assert rules.decide("User:a", "1.1.1.1", READ, GROUP, "o\u0308rde\u0301rs")[0] is None


def test_a_prefix_of_another_case_is_none() -> None:
    rules = Rules([rule("Team-", pattern=PREFIXED)])
    assert rules.decide("User:a", "1.1.1.1", READ, TOPIC, "Team-1")[0] is True
    assert rules.decide("User:a", "1.1.1.1", READ, TOPIC, "team-1")[0] is None


def test_the_first_acl_of_a_resource_denies_all_other_principals() -> None:
    rules = Rules([rule("orders")])
    assert rules.decide("User:b", "1.1.1.1", READ, TOPIC, "orders") == (False, None)
    assert rules.decide("User:b", "1.1.1.1", READ, TOPIC, "others") == (None, None)


def test_a_resource_that_is_called_star_is_not_every_resource() -> None:
    rules = Rules([rule("orders")])
    assert rules.decide("User:a", "1.1.1.1", READ, TOPIC, "*")[0] is None


MATCHED = [
    (AclFilter(), True),
    (AclFilter(TOPIC, "team-1", PatternType.MATCH), True),
    (AclFilter(TOPIC, "team-", PatternType.MATCH), True),
    (AclFilter(TOPIC, "tea", PatternType.MATCH), False),
    (AclFilter(TOPIC, "team-1", PatternType.ANY), False),
    (AclFilter(TOPIC, "team-", PatternType.ANY), True),
    (AclFilter(TOPIC, "team-", LITERAL), False),
    (AclFilter(TOPIC, None, PREFIXED), True),
    (AclFilter(GROUP), False),
    (AclFilter(principal="User:a"), True),
    (AclFilter(principal="User:*"), False),
    (AclFilter(host="*"), True),
    (AclFilter(host="10.0.0.1"), False),
    (AclFilter(operation=READ), True),
    (AclFilter(operation=ALL), False),
    (AclFilter(permission=DENY), False),
]


@pytest.mark.parametrize(("wanted", "matches"), MATCHED)
def test_filters(wanted: AclFilter, matches: bool) -> None:
    assert wanted.matches(rule("team-", pattern=PREFIXED)) is matches


def test_match_finds_the_rule_about_everything() -> None:
    assert AclFilter(TOPIC, "anything", PatternType.MATCH).matches(rule("*"))
    assert not AclFilter(TOPIC, "anything", PatternType.ANY).matches(rule("*"))


NO_RULES = [
    rule("t")._replace(name=""),
    rule("t")._replace(principal="alice"),
    rule("t")._replace(operation=AclOperation.ANY),
    rule("t")._replace(operation=AclOperation.UNKNOWN),
    rule("t")._replace(pattern_type=PatternType.MATCH),
    rule("t")._replace(pattern_type=PatternType.ANY),
    rule("t")._replace(resource_type=ResourceType.ANY),
    rule("t")._replace(permission=AclPermission.ANY),
    rule("other", kind=ResourceType.CLUSTER),
]


@pytest.mark.parametrize("acl", NO_RULES)
def test_what_cannot_be_a_rule(acl: Acl) -> None:
    with pytest.raises(InvalidRequest):
        acl.check()
    with pytest.raises(ValueError, match="not an ACL"):
        Acl.from_texts(acl.texts())


@pytest.mark.parametrize(
    "texts", [None, [], ["TOPIC"], [*rule("t").texts(), "x"], ["TOPIK", *rule("t").texts()[1:]], [1] * 7, {"a": 1}]
)
def test_texts_that_are_no_rule(texts: object) -> None:
    with pytest.raises(ValueError, match="not an ACL"):
        Acl.from_texts(texts)

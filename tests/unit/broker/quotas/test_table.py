"""Which quota counts for whom, and what can be one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.base.quota_entities import Change, Entity, check_entity, check_value, entity_of
from kafkalite.broker.quotas.table import ANY, DEFAULT, EXACT, Component, QuotaTable
from kafkalite.errors import ErrorCode, InvalidRequest, KafkaError

RATE = "producer_byte_rate"
NAMES = ("a", "b", None)


def entity(**names: str | None) -> Entity:
    return entity_of((kind.replace("_", "-"), name) for kind, name in names.items())


LEVELS = [
    entity(user="a", client_id="a"),
    entity(user="a", client_id=None),
    entity(user="a"),
    entity(user=None, client_id="a"),
    entity(user=None, client_id=None),
    entity(user=None),
    entity(client_id="a"),
    entity(client_id=None),
]
"""In Kafka's order of precedence, for the user a with the client id a."""


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_most_specific_of_the_present_quotas_counts(first: int) -> None:
    table = QuotaTable({level: {RATE: float(i + 1)} for i, level in enumerate(LEVELS) if i >= first})
    bound = table.bound(RATE, "a", "a")
    assert bound is not None
    names = dict(LEVELS[first])
    wanted = (RATE, "a" if "user" in names else None, "a" if "client-id" in names else None)
    assert bound == (first + 1.0, wanted)


def test_a_key_is_looked_for_by_itself() -> None:
    table = QuotaTable({entity(user="a"): {"request_percentage": 50.0}, entity(client_id=None): {RATE: 7.0}})
    assert table.bound(RATE, "a", "x") == (7.0, (RATE, None, "x"))
    assert table.bound("consumer_byte_rate", "a", "x") is None


def test_a_default_is_each_ones_own_and_a_user_has_one_for_all_his_clients() -> None:
    table = QuotaTable({entity(user=None): {RATE: 7.0}})
    owners = {table.bound(RATE, user, client) for user in "ab" for client in ("x", "y")}
    assert owners == {(7.0, (RATE, "a", None)), (7.0, (RATE, "b", None))}


@pytest.mark.parametrize("level", [entity(client_id=None), entity(user="a", client_id=None)])
def test_a_client_without_an_id_has_the_default_of_client_ids(level: Entity) -> None:
    table = QuotaTable({level: {RATE: 7.0}})
    assert table.bound(RATE, "a", "") == (7.0, (RATE, dict(level).get("user"), ""))


@given(
    st.dictionaries(
        st.sampled_from(
            [entity(user=u, client_id=c) for u, c in itertools.product(NAMES, NAMES)]
            + [entity(user=u) for u in NAMES]
            + [entity(client_id=c) for c in NAMES]
        ),
        st.floats(1, 9),
    ),
    st.sampled_from("abc"),
    st.sampled_from("abc"),
)
def test_precedence_is_that_of_names_before_defaults_and_users_before_clients(
    present: dict[Entity, float], user: str, client: str
) -> None:
    def rank(level: Entity) -> tuple[int, ...]:
        """How specific, the user's part before the client's: a name, the default, nothing."""
        names = dict(level)
        if "user" not in names:
            return (2, 0, names["client-id"] is None)
        return (names["user"] is None, "client-id" not in names, names.get("client-id", "") is None)

    def applies(level: Entity) -> bool:
        wanted = {"user": user, "client-id": client}
        return all(name in (None, wanted[kind]) for kind, name in level)

    found = QuotaTable({level: {RATE: value} for level, value in present.items()}).bound(RATE, user, client)
    candidates = sorted(filter(applies, present), key=rank)
    assert (found and found.value) == (present[candidates[0]] if candidates else None)


@given(st.lists(st.tuples(st.sampled_from(LEVELS), st.sampled_from([RATE, "x"]), st.none() | st.floats(1, 9))))
def test_changes_make_a_new_image(changes: list[tuple[Entity, str, float | None]]) -> None:
    table = QuotaTable()
    model: dict[tuple[Entity, str], float] = {}
    for each in changes:
        before = dict(table.entries)
        changed = table.changed([Change(*each)])
        assert table.entries == before
        table = changed
        model.pop(each[:2], None)
        if each[2] is not None:
            model[each[:2]] = each[2]
    assert {(e, key): value for e, values in table.entries.items() for key, value in values.items()} == model
    assert all(table.entries.values())


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ((), "the entity is empty"),
        (entity(group="a"), "unknown quota entity type 'group'"),
        (entity(user=""), "is empty"),
        (entity(ip="127.0.0.1", user="a"), "cannot be combined"),
        (entity(ip=None, client_id=None), "cannot be combined"),
    ],
)
def test_not_everything_can_have_quotas(wrong: Entity, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_entity(wrong)


@pytest.mark.parametrize(
    ("who", "key", "value", "text"),
    [
        (entity(user="a"), "connection_creation_rate", 1.0, "unknown quota"),
        (entity(ip="::1"), RATE, 1.0, "unknown quota"),
        (entity(user="a"), "SCRAM-SHA-256", 1.0, "unknown quota"),
        (entity(user="a"), RATE, 0.0, "above 0"),
        (entity(user="a"), RATE, -1.0, "above 0"),
        (entity(user="a"), RATE, float("nan"), "above 0"),
        (entity(user="a"), "request_percentage", float("inf"), "above 0"),
        (entity(user="a"), RATE, 1.5, "whole number"),
        (entity(user="a"), RATE, 2.0**64, "at most 9223372036854775808"),
        (entity(ip="::1"), "connection_creation_rate", 2.0**31, "at most 2147483647"),
    ],
)
def test_not_every_value_can_be_a_quota(who: Entity, key: str, value: float, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        check_value(Change(who, key, value))


@pytest.mark.parametrize(
    ("who", "key", "value"),
    [
        (entity(user="a"), RATE, 1.0000001),
        (entity(client_id=None), RATE, 2.0**63),
        (entity(user="a"), "request_percentage", 0.01),
        (entity(user="a"), "controller_mutation_rate", 1e300),
        (entity(ip=None), "connection_creation_rate", 2.0**31 - 1),
        (entity(user="a"), "anything", None),
    ],
)
def test_what_kafka_takes_is_taken(who: Entity, key: str, value: float | None) -> None:
    check_value(Change(who, key, value))


ALL = QuotaTable(
    {each: {RATE: 1.0} for each in (entity(user="a"), entity(user=None), entity(user="a", client_id="b"))}
    | {entity(ip="::1"): {"connection_creation_rate": 1.0}, entity(ip=None): {"connection_creation_rate": 2.0}}
)


@pytest.mark.parametrize(
    ("components", "strict", "wanted"),
    [
        ([], False, list(ALL.entries)),
        ([], True, []),
        ([Component("user", EXACT, "a")], False, [entity(user="a"), entity(user="a", client_id="b")]),
        ([Component("user", EXACT, "a")], True, [entity(user="a")]),
        ([Component("user", DEFAULT)], False, [entity(user=None)]),
        ([Component("user", ANY)], True, [entity(user="a"), entity(user=None)]),
        ([Component("user", ANY), Component("client-id", ANY)], True, [entity(user="a", client_id="b")]),
        ([Component("client-id", EXACT, "c")], False, []),
        ([Component("ip", ANY)], True, [entity(ip="::1"), entity(ip=None)]),
    ],
)
def test_filters_find_what_they_mean(components: list[Component], strict: bool, wanted: list[Entity]) -> None:
    assert [each for each, _ in ALL.find(components, strict=strict)] == wanted


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([Component("", ANY)], ErrorCode.INVALID_REQUEST),
        ([Component("user", ANY), Component("user", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("group", ANY)], ErrorCode.UNSUPPORTED_VERSION),
        ([Component("user", 3)], ErrorCode.INVALID_REQUEST),
        ([Component("user", EXACT)], ErrorCode.INVALID_REQUEST),
        ([Component("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([Component("ip", ANY), Component("user", ANY)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_mean_nothing_are_refused(components: list[Component], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        list(ALL.find(components, strict=False))
    assert raised.value.code == code


def test_addresses_are_distinguished_from_other_names() -> None:
    assert ALL.addresses() == ({"::1": 1.0}, 2.0)
    assert ALL.bounds_clients
    assert not QuotaTable({entity(ip=None): {"connection_creation_rate": 2.0}}).bounds_clients

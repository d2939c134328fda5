"""Client quotas: each check of a change, and the quotas described afterwards."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from kafkalite.broker.quotas import quotas
from kafkalite.broker.quotas.table import QuotaTable
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.kit.harness.handler_calls import versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kit.harness.handler_calls import HandlerCalls

RATE = "producer_byte_rate"
SHARE = "request_percentage"


def entry(names: Mapping[str, str | None], *ops: tuple[str, float | None]) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(
    broker: HandlerCalls, *entries: AlterClientQuotasRequestEntryData, version: int = 1, validate_only: bool = False
) -> list[tuple[dict[str, str | None], int]]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    answer = broker.call(api.ALTER_CLIENT_QUOTAS, version, request)
    assert broker.blocked
    assert all((one.error_message is None) == (one.error_code == 0) for one in answer.entries)
    return [({part.entity_type: part.entity_name for part in one.entity}, one.error_code) for one in answer.entries]


def describe(broker: HandlerCalls, *components: ComponentData, version: int = 1, strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    answer = broker.call(api.DESCRIBE_CLIENT_QUOTAS, version, request)
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code
    return [
        ({part.entity_type: part.entity_name for part in one.entity}, {item.key: item.value for item in one.values})
        for one in answer.entries
    ]


@pytest.mark.parametrize("version", versions(api.ALTER_CLIENT_QUOTAS))
def test_a_quota_is_described_until_it_is_removed(broker: HandlerCalls, version: int) -> None:
    both = {"client-id": None, "user": "é"}
    assert alter(broker, entry(both, (RATE, 5.0), (SHARE, 0.5)), version=version) == [(both, 0)]
    assert describe(broker, version=version) == [(both, {RATE: 5.0, SHARE: 0.5})]
    assert alter(broker, entry(both, (RATE, None)), version=version) == [(both, 0)]
    assert describe(broker, version=version) == [(both, {SHARE: 0.5})]
    assert alter(broker, entry(both, (SHARE, None)), version=version) == [(both, 0)]
    assert describe(broker, version=version) == []


def test_one_that_cannot_be_does_not_keep_the_others_out(broker: HandlerCalls) -> None:
    good, bad = {"user": "a"}, {"user": ""}
    assert alter(broker, entry(bad, (RATE, 1.0)), entry(good, (RATE, 1.0))) == [(bad, 42), (good, 0)]
    assert describe(broker) == [(good, {RATE: 1.0})]


def test_of_an_entity_with_one_wrong_value_nothing_changes(broker: HandlerCalls) -> None:
    user = {"user": "a"}
    assert alter(broker, entry(user, (RATE, 1.0), (SHARE, -1.0))) == [(user, 42)]
    assert alter(broker, entry(user, (RATE, 1.0), (RATE, 2.0))) == [(user, 42)]
    assert describe(broker) == []


def test_a_duplicate_entity_gets_an_error_and_the_first_change_applies(broker: HandlerCalls) -> None:
    user = {"user": "a"}
    assert alter(broker, entry(user, (RATE, 1.0)), entry(user, (RATE, 2.0))) == [(user, 42)]
    assert describe(broker) == [(user, {RATE: 1.0})]


def test_a_type_that_comes_twice_in_an_entity_counts_once(broker: HandlerCalls) -> None:
    doubled = entry({"user": "a"}, (RATE, 1.0))
    doubled.entity.append(AlterClientQuotasRequestEntityData(entity_type="user", entity_name="b"))
    assert alter(broker, doubled) == [({"user": "b"}, 0)]


@pytest.mark.parametrize(
    "name", ["host.example.org", "300.1.1.1", "a b", "127.0.0.1\0", "\0", "1.1", "::1%\0", "x" * 32767]
)
def test_an_address_has_to_be_one(broker: HandlerCalls, name: str) -> None:
    assert alter(broker, entry({"ip": name}, ("connection_creation_rate", 1.0))) == [({"ip": name}, 42)]


@pytest.mark.parametrize("name", ["127.0.0.1", "::1", "localhost", None])
def test_addresses_and_their_default_have_a_rate_of_connections(broker: HandlerCalls, name: str | None) -> None:
    assert alter(broker, entry({"ip": name}, ("connection_creation_rate", 1.0))) == [({"ip": name}, 0)]
    assert alter(broker, entry({"ip": name}, (RATE, 1.0))) == [({"ip": name}, 42)]


def test_no_name_is_looked_up(broker: HandlerCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("the resolver was asked")

    for name in ("gethostbyname", "gethostbyname_ex", "getaddrinfo"):
        monkeypatch.setattr(socket, name, asked)
    for name in ("localhost", "host.example.org"):
        alter(broker, entry({"ip": name}, ("connection_creation_rate", 1.0)))
    stored = {
        (("ip", "localhost"),): {"connection_creation_rate": 1.0},
        (("ip", "b\0"),): {"connection_creation_rate": 2.0},
    }
    assert quotas.address_rates(QuotaTable(stored)) == ({"127.0.0.1": 1.0}, None)


def test_validate_only_changes_nothing(broker: HandlerCalls) -> None:
    good, bad = {"user": "a"}, {"user": "b"}
    entries = entry(good, (RATE, 1.0)), entry(bad, (RATE, 0.0))
    assert alter(broker, *entries, validate_only=True) == [(good, 0), (bad, 42)]
    assert describe(broker) == []
    assert broker.logs.metadata.quotas() == {}


def test_a_change_that_the_disk_does_not_take_did_not_happen(broker: HandlerCalls) -> None:
    broker.logs.failure = StorageError("the disk is full")
    user, wrong = {"user": "a"}, {"user": ""}
    answer = alter(broker, entry(user, (RATE, 1.0)), entry(wrong, (RATE, 1.0)))
    assert answer == [(user, ErrorCode.KAFKA_STORAGE_ERROR), (wrong, 42)]
    assert describe(broker) == []


def test_a_value_that_is_there_already_is_not_written_again(broker: HandlerCalls) -> None:
    user = {"user": "a"}
    alter(broker, entry(user, (RATE, 1.0)))
    broker.logs.failure = StorageError("nothing may be written")
    assert alter(broker, entry(user, (RATE, 1.0), (SHARE, None))) == [(user, 0)]


def test_too_many_changes_in_one_request_are_refused_as_a_whole(
    broker: HandlerCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "CHANGES_MAX", 2)
    users = [{"user": name} for name in "abc"]
    answer = alter(broker, *(entry(user, (RATE, 1.0)) for user in users))
    assert answer == [(user, ErrorCode.POLICY_VIOLATION) for user in users]
    assert describe(broker) == []


def test_filters_are_those_of_the_table(broker: HandlerCalls) -> None:
    alter(broker, entry({"user": "a"}, (RATE, 1.0)), entry({"user": None, "client-id": "x"}, (RATE, 2.0)))
    component = ComponentData(entity_type="user", match_type=1, match=None)
    assert describe(broker, component) == [({"client-id": "x", "user": None}, {RATE: 2.0})]
    assert describe(broker, component, strict=True) == []
    assert describe(broker, component, component) == ErrorCode.INVALID_REQUEST
    unknown = ComponentData(entity_type="topic", match_type=2, match=None)
    assert describe(broker, unknown) == ErrorCode.UNSUPPORTED_VERSION

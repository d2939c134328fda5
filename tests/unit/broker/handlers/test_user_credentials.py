"""SCRAM users and their passwords: each check of a change, and the descriptions returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalite.broker.handlers.user_credentials import SECRET_SIZE_MAX
from kafkalite.errors import ErrorCode, StorageError
from kafkalite.security import scram
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kafkalite.wire.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kafkalite.wire.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkalite.wire.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

if TYPE_CHECKING:
    from tests.kit.harness.handler_calls import HandlerCalls

SALTED = bytes(range(32))


def upsert(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt", salted: bytes = SALTED
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def delete(name: str = "alice", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(broker: HandlerCalls, *items: ScramCredentialUpsertion | ScramCredentialDeletion) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[item for item in items if isinstance(item, ScramCredentialUpsertion)],
        deletions=[item for item in items if isinstance(item, ScramCredentialDeletion)],
    )
    answer = broker.call(api.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert broker.blocked
    assert all((one.error_message is None) == (one.error_code == 0) for one in answer.results)
    return {one.user: one.error_code for one in answer.results}


def describe(broker: HandlerCalls, *names: str, everybody: bool = False) -> dict[str, object]:
    users = None if everybody else [UserName(name=name) for name in names]
    answer = broker.call(api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=users))
    assert answer.error_code == 0
    return {
        one.user: one.error_code or [(info.mechanism, info.iterations) for info in one.credential_infos]
        for one in answer.results
    }


def test_user_is_kept_as_keys_alone(broker: HandlerCalls) -> None:
    assert alter(broker, upsert(), upsert("bob", 2, 16384)) == {"alice": 0, "bob": 0}
    kept = broker.logs.metadata.credentials["SCRAM-SHA-256", "alice"]
    assert kept == scram.credential("SCRAM-SHA-256", SALTED, b"salt", 4096)
    assert SALTED not in kept
    assert len(broker.logs.metadata.credentials["SCRAM-SHA-512", "bob"].stored_key) == 64
    assert describe(broker, everybody=True) == describe(broker) == {"alice": [(1, 4096)], "bob": [(2, 16384)]}


def test_both_mechanisms_one_after_the_other_and_away_again(broker: HandlerCalls) -> None:
    assert alter(broker, upsert(mechanism=1)) == alter(broker, upsert(mechanism=2)) == {"alice": 0}
    assert describe(broker, "alice") == {"alice": [(1, 4096), (2, 4096)]}
    assert alter(broker, delete(mechanism=1)) == {"alice": 0}
    assert describe(broker, "alice") == {"alice": [(2, 4096)]}
    assert alter(broker, delete(mechanism=1)) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert alter(broker, delete(mechanism=2)) == {"alice": 0}
    assert describe(broker, "alice") == {"alice": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert("", mechanism=9), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salt=bytes(SECRET_SIZE_MAX + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert(salted=bytes(SECRET_SIZE_MAX + 1)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (delete(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (delete(mechanism=7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (delete("nobody"), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_is_refused_leaves_the_others_alone(
    broker: HandlerCalls, item: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    assert alter(broker, item, upsert("bob")) == {item.name: code, "bob": 0}
    assert list(broker.logs.metadata.credentials) == [("SCRAM-SHA-256", "bob")]


def test_user_that_is_named_twice_is_changed_by_neither(broker: HandlerCalls) -> None:
    alter(broker, upsert("bob"), upsert("carol"))
    before = dict(broker.logs.metadata.credentials)
    answer = alter(
        broker, upsert(), upsert(mechanism=2), delete("bob"), upsert("bob", 2), delete("carol"), delete("carol", 1)
    )
    assert answer == dict.fromkeys(["alice", "bob", "carol"], ErrorCode.DUPLICATE_RESOURCE)
    assert broker.logs.metadata.credentials == before
    assert describe(broker, "bob", "bob", "carol") == {"bob": ErrorCode.DUPLICATE_RESOURCE, "carol": [(1, 4096)]}


def test_a_change_that_cannot_be_written_fails_and_has_no_effect(broker: HandlerCalls) -> None:
    broker.logs.failure = StorageError("full")
    assert alter(broker, upsert(), upsert("")) == {
        "alice": ErrorCode.KAFKA_STORAGE_ERROR,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert broker.logs.metadata.credentials == {}


@pytest.mark.parametrize(
    ("principal", "code"),
    [
        ("User:ANONYMOUS", ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        ("User:alice", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
def test_delegation_tokens_are_switched_off(broker: HandlerCalls, principal: str, code: int) -> None:
    broker.connection.principal = principal
    for key, version, request in (
        (api.CREATE_DELEGATION_TOKEN, 3, CreateDelegationTokenRequest()),
        (api.RENEW_DELEGATION_TOKEN, 2, RenewDelegationTokenRequest()),
        (api.EXPIRE_DELEGATION_TOKEN, 2, ExpireDelegationTokenRequest()),
        (api.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest()),
    ):
        assert broker.call(key, version, request).error_code == code

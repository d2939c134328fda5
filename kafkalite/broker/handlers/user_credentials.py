"""Handle DescribeUserScramCredentials 0 and AlterUserScramCredentials 0: administer SCRAM users (KIP-554).

The client sends a salted password; the broker stores only the keys derived from it. A change is durable before the
response, and applies to the next authentication. A response never contains data with which a client could authenticate.

Thread rule: both APIs run on the I/O pool.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalite.broker.handlers.permissions import ALTER, CLUSTER, CODES, DESCRIBE, allows
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.broker.log.journal import credential_change, credential_deletion
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.security import scram
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.broker.handlers.context import RequestContext
    from kafkalite.model import ScramCredential

MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's number of a mechanism → its name."""
_NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}
SECRET_SIZE_MAX: Final = 1024
"""Maximum size in bytes of a salt or salted password."""
_Problem = tuple[ErrorCode, str]
_DUPLICATE: Final[_Problem] = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)


def describe(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not allows(context, DESCRIBE, CLUSTER):
        return DescribeUserScramCredentialsResponse(error_code=CODES[CLUSTER], error_message=None)
    by_user: dict[str, list[CredentialInfo]] = {}
    for (mechanism, user), credential in sorted(context.broker.logs.metadata.credentials.items()):
        info = CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=credential.iterations)
        by_user.setdefault(user, []).append(info)
    named = Counter(user.name for user in checkpointed(request.users or ()))
    return DescribeUserScramCredentialsResponse(
        results=[
            _described(name, by_user, twice=named[name] > 1) for name in checkpointed(list(named) or list(by_user))
        ],
    )


def _described(
    name: str, by_user: Mapping[str, list[CredentialInfo]], *, twice: bool
) -> DescribeUserScramCredentialsResult:
    if twice:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if name not in by_user:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(user=name, credential_infos=by_user[name])


def alter(context: RequestContext, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    logs = context.broker.logs
    problems: dict[str, _Problem | None] = {}
    if not allows(context, ALTER, CLUSTER):
        names = {item.name for item in checkpointed(request.deletions)} | {
            item.name for item in checkpointed(request.upsertions)
        }
        denied = AlterUserScramCredentialsResult(error_code=CODES[CLUSTER], error_message=CODES[CLUSTER].text)
        return AlterUserScramCredentialsResponse(
            results=[replace(denied, user=name) for name in checkpointed(sorted(names))]
        )

    def decide() -> list[dict[str, Any]]:
        changes, found = _decide(request, logs.metadata.credentials)
        problems.update(found)
        return changes

    try:
        logs.metadata.alter_credentials(decide)
    except KafkaError as error:
        problems = {name: problem or (error.code, str(error)) for name, problem in problems.items()}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.NONE if problem is None else problem[0],
                error_message=None if problem is None else problem[1],
            )
            for name, problem in checkpointed(sorted(problems.items(), key=lambda item: item[1] is not None))
        ]
    )


def _decide(
    request: AlterUserScramCredentialsRequest, present: Mapping[tuple[str, str], ScramCredential]
) -> tuple[list[dict[str, Any]], dict[str, _Problem | None]]:
    """Return (lines for the journal, user → error). The error of a user is None if the change succeeds."""
    problems: dict[str, _Problem | None] = {}
    changes: dict[str, dict[str, Any]] = {}
    items: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for item in checkpointed(items):
        name = item.name
        if problems.get(name) is not None:
            continue
        problems[name] = _DUPLICATE if changes.pop(name, None) is not None else _problem(item, present)
        if problems[name] is None:
            changes[name] = _change(item)
    return list(changes.values()), problems


def _problem(
    item: ScramCredentialDeletion | ScramCredentialUpsertion, present: Mapping[tuple[str, str], ScramCredential]
) -> _Problem | None:
    if not item.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    mechanism = MECHANISMS.get(item.mechanism)
    if mechanism is None:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if isinstance(item, ScramCredentialDeletion):
        if (mechanism, item.name) not in present:
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    elif item.iterations < scram.ITERATIONS_MIN:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    elif item.iterations > scram.ITERATIONS_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    elif max(len(item.salt), len(item.salted_password)) > SECRET_SIZE_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Salt or salted password above {SECRET_SIZE_MAX} bytes"
    return None


def _change(item: ScramCredentialDeletion | ScramCredentialUpsertion) -> dict[str, Any]:
    mechanism = MECHANISMS[item.mechanism]
    if isinstance(item, ScramCredentialDeletion):
        return credential_deletion(mechanism, item.name)
    salted, salt = bytes(item.salted_password), bytes(item.salt)
    return credential_change(mechanism, item.name, scram.credential(mechanism, salted, salt, item.iterations))

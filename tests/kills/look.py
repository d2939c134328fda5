"""Read the storm's ACLs, users and quotas from a broker, and check that it applies them."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

from kafkalite.base.acls import AclOperation, AclPermission, PatternType, ResourceType
from kafkalite.errors import ErrorCode
from kafkalite.security import scram
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from kafkalite.wire.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafkalite.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.kills.storm import ASKER, ENTITIES, MECHANISMS, RATE_MIN, TWIN, Value, password, twins
from tests.kit.harness.sasl_broker import RawClient
from tests.kit.harness.typed import TypedConnection

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGN_INS = 4
"""Users who try to sign in after a kill."""
EVERY_RULE = DescribeAclsRequest(
    resource_type_filter=ResourceType.ANY,
    resource_name_filter=None,
    pattern_type_filter=PatternType.ANY,
    principal_filter=None,
    host_filter=None,
    operation=AclOperation.ANY,
    permission_type=AclPermission.ANY,
)


def look(port: int) -> tuple[dict[str, Value], list[str]]:
    """Values by name, and the names whose changes are there in part."""
    found: dict[str, Value] = {}
    halves: list[str] = []
    with TypedConnection(port) as connection:
        parts = {**rules(connection), **users(connection), **quotas(connection)}
    for name, values in parts.items():
        if None in values or len({*values}) > 1:
            halves.append(f"{name} is there in part: {values}")
        found[name] = next((value for value in values if value is not None), None)
    return found, halves


def rules(connection: TypedConnection) -> dict[str, list[Value]]:
    """Name → value by the group's rule, and the same once more where the topic's is there."""
    by_name: dict[str, dict[int, str]] = defaultdict(dict)
    for resource in connection.ask(api.DESCRIBE_ACLS, 3, EVERY_RULE).resources:
        for rule in resource.acls:
            by_name[resource.resource_name][resource.resource_type] = rule.principal.removeprefix("User:")
    found: dict[str, list[Value]] = {}
    for name, who in by_name.items():
        value = int(who[ResourceType.GROUP]) if ResourceType.GROUP in who else None
        found[name] = [value, value if who.get(ResourceType.TOPIC) == ASKER else None]
    return found


def users(connection: TypedConnection) -> dict[str, list[Value]]:
    """Name → value of each twin."""
    request = DescribeUserScramCredentialsRequest(users=None)
    kept: dict[str, dict[int, Value]] = defaultdict(dict)
    for row in connection.ask(api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request).results:
        for info in row.credential_infos:
            kept[row.user.removesuffix(TWIN)][info.mechanism] = info.iterations - scram.ITERATIONS_MIN
    kept.pop(ASKER, None)
    return {name: [values.get(mechanism) for mechanism in MECHANISMS] for name, values in kept.items()}


def quotas(connection: TypedConnection) -> dict[str, list[Value]]:
    """Name → value by each kind of entity."""
    kept: dict[str, dict[str, Value]] = defaultdict(dict)
    for row in connection.ask(api.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest()).entries:
        [entity], [value] = row.entity, row.values
        kept[entity.entity_name][entity.entity_type] = int(value.value) - RATE_MIN
    return {name: [rates.get(kind) for kind in ENTITIES] for name, rates in kept.items()}


def disobeys(sasl_port: int, found: dict[str, Value], names: list[str], chance: random.Random) -> Iterator[str]:
    """Where the broker does not go by what it tells, a sentence each: decisions on all names, some users' passwords."""
    topics = [name for name in names if name.startswith("acl-")]
    with RawClient(sasl_port) as client:
        signed_in, _ = client.scram(ASKER, password(0))
        if signed_in.error_code:
            yield f"{ASKER} cannot sign in: {signed_in.error_code}"
            return
        wanted = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        for topic in client.ask(api.METADATA, 12, wanted).topics:
            allowed = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not allowed and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                yield f"{topic.name}: error code {topic.error_code}"
            elif allowed != (found.get(topic.name) is not None):
                yield f"{topic.name} is {'allowed' if allowed else 'denied'}, and the rules say otherwise"
    everybody = [name for name in names if name.startswith("user-")]
    for name in chance.sample(everybody, min(SIGN_INS, len(everybody))):
        value, (number, mechanism) = found.get(name), chance.choice([*MECHANISMS.items()])
        with RawClient(sasl_port) as client:
            signed_in, _ = client.scram(twins(name)[number], password(value or 0), mechanism)
        if (signed_in.error_code == 0) != (value is not None):
            yield f"{name} with value {value} signs in with error code {signed_in.error_code}"

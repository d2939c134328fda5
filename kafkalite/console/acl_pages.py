"""Show the cluster's SCRAM users and ACLs on a read-only page.

Thread rule: functions belong to the thread that has the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.errors import ClientError
from kafkalite.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kafkalite.client import Client
    from kafkalite.console.requests import Request

SHOWN_MAX: Final = 1000


def rights_page(client: Client, request: Request) -> dict[str, Any]:
    """Return the data of the page: users and ACLs, or None for what the client may not read.

    `enforced` is False if the cluster has no authorizer.
    """
    sought = request.text("q")
    users: list[dict[str, Any]] | None
    try:
        known = client.users.list_all()
        users = [{"user": name, "mechanisms": sorted(kinds)} for name, kinds in known.items() if sought in name]
    except (KafkaError, ClientError):
        users = None
    rules: list[dict[str, Any]] | None = None
    enforced = True
    try:
        rules = [
            {
                "principal": rule.principal,
                "permission": rule.permission.name.lower(),
                "operation": rule.operation.name.lower(),
                "resource": rule.resource_type.name.lower(),
                "name": rule.name,
                "prefixed": rule.pattern_type.name == "PREFIXED",
                "host": rule.host,
            }
            for rule in client.acls.find()
        ]
    except KafkaError as error:
        enforced = error.code != ErrorCode.SECURITY_DISABLED
    except ClientError:
        pass
    found = [row for row in rules or () if sought in row["principal"] or sought in row["name"]]
    return {
        "q": sought,
        "users": users,
        "rules": None if rules is None else found[:SHOWN_MAX],
        "count": len(found),
        "enforced": enforced,
    }

"""Rules of who may do what: one that was added is there, one that was removed cannot come back, a request is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkalite.wire.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkalite.wire.protocol.messages.describe_acls import DescribeAclsRequest
from tests.power.promises.base import Past, Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

TOPIC, LITERAL, ANY, READ, ALLOW, DENY = 2, 3, 1, 3, 3, 2
VERSION = 3
NAMES_MAX = 8
PLACE = "metadata.journal"
EVERYTHING = DescribeAclsRequest(
    resource_type_filter=ANY,
    resource_name_filter=None,
    pattern_type_filter=ANY,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)


class Acls(Promise):
    """Topics' names with an allowing and a denying rule each, which come in one request and go in one."""

    name = "acls"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "acls", _change

    def check(self, past: Past, look: Look) -> Iterator[str]:
        by_name: dict[str, list[Op]] = {}
        for op in past.ops("acls"):
            by_name.setdefault(op.what["name"], []).append(op)
        if not by_name:
            return
        found = _found(look.ask(api.DESCRIBE_ACLS, VERSION, EVERYTHING))
        for name in found.keys() - by_name.keys():
            yield f"rules about {name} were never asked for"
        for name, ops in by_name.items():
            sure = max((i for i, op in enumerate(ops) if past.promised(op)), default=-1)
            allowed = {op.what["there"] for op in ops[max(sure, 0) :]} | ({False} if sure < 0 else set())
            rules = found.get(name, set())
            if rules not in (set(), {ALLOW, DENY}):
                yield f"of the rules about {name} only {rules} are there"
            elif bool(rules) not in allowed:
                yield f"rules about {name}: {sorted(rules)}, which is not what was made of them"


def _found(answer: Any) -> dict[str, set[int]]:
    """Name → permissions of its rules."""
    return {row.resource_name: {acl.permission_type for acl in row.acls} for row in answer.resources}


def _change(actor: Actor) -> None:
    present: set[str] = set()

    def begin() -> None:
        present.clear()
        present.update(_found(actor.ask(api.DESCRIBE_ACLS, VERSION, EVERYTHING)))

    def step() -> None:
        actor.come_again()
        token, request, key = -1, None, api.DELETE_ACLS
        if len(present) >= NAMES_MAX or (present and actor.draw.random() < 0.5):
            name = actor.draw.choice(sorted(present))
            request = DeleteAclsRequest(filters=[_filter(name)])
        else:
            token = actor.world.tokens(1)
            name, key = f"q{token:08d}q", api.CREATE_ACLS
            request = CreateAclsRequest(creations=[_creation(name, permission) for permission in (ALLOW, DENY)])

        def succeeded(answer: Any) -> dict[str, Any] | None:
            results = answer.results if key == api.CREATE_ACLS else answer.filter_results
            return None if any(result.error_code for result in results) else {}

        what = {"name": name, "there": token >= 0}
        place = PLACE if token >= 0 else ""
        if actor.attempt("acls", what, key, VERSION, request, succeeded=succeeded, token=token, place=place) is None:
            return
        if token >= 0:
            present.add(name)
        else:
            present.discard(name)

    actor.rounds(step, start=begin)


def _creation(name: str, permission: int) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal="User:q",
        host="*",
        operation=READ,
        permission_type=permission,
    )


def _filter(name: str) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=name,
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )

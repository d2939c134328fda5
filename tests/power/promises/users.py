"""Users who sign in by SCRAM: one that was added is there, one that was deleted cannot come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from tests.power.promises.base import Past, Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

MECHANISM = 1
ITERATIONS = range(4096, 16385)
"""Each change of a user has another number of them, so that it is known by it."""
USERS_MAX = 8
PLACE = "metadata.journal"


class Users(Promise):
    """Users with separate names, whose passwords change, and who are deleted."""

    name = "users"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "users", _change

    def check(self, past: Past, look: Look) -> Iterator[str]:
        by_name: dict[str, list[Op]] = {}
        for op in past.ops("users"):
            by_name.setdefault(op.what["name"], []).append(op)
        if not by_name:
            return
        answer = look.ask(api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=None))
        found = {row.user: row.credential_infos[0].iterations for row in answer.results}
        for name in found.keys() - by_name.keys():
            yield f"user {name} was never asked for"
        for name, ops in by_name.items():
            sure = max((i for i, op in enumerate(ops) if past.promised(op)), default=-1)
            allowed = {op.what["iterations"] for op in ops[max(sure, 0) :]}
            if sure < 0:
                allowed.add(None)
            if found.get(name) not in allowed:
                yield f"user {name} has {found.get(name)} iterations, not one of {sorted(map(str, allowed))}"


def _change(actor: Actor) -> None:
    """Create, change or delete users; the iteration count identifies the password, None means deleted."""
    present: dict[str, int] = {}

    def begin() -> None:
        answer = actor.ask(api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=None))
        present.clear()
        present.update({row.user: row.credential_infos[0].iterations for row in answer.results})

    def step() -> None:
        actor.come_again()
        token = -1
        if len(present) >= USERS_MAX or (present and actor.draw.random() < 0.5):
            name = actor.draw.choice(sorted(present))
        else:
            token = actor.world.tokens(1)
            name = f"q{token:08d}q"
        iterations: int | None = None
        if name in present and actor.draw.random() < 0.5:
            deletion = ScramCredentialDeletion(name=name, mechanism=MECHANISM)
            request = AlterUserScramCredentialsRequest(deletions=[deletion])
        else:
            iterations = actor.draw.choice([number for number in ITERATIONS if number != present.get(name)])
            change = ScramCredentialUpsertion(
                name=name, mechanism=MECHANISM, iterations=iterations, salt=b"salt", salted_password=bytes(32)
            )
            request = AlterUserScramCredentialsRequest(upsertions=[change])

        def succeeded(answer: Any) -> dict[str, Any] | None:
            return None if answer.results[0].error_code else {}

        what = {"name": name, "iterations": iterations}
        place = PLACE if token >= 0 else ""
        key = api.ALTER_USER_SCRAM_CREDENTIALS
        if actor.attempt("users", what, key, 0, request, succeeded=succeeded, token=token, place=place) is None:
            return
        if iterations is None:
            present.pop(name, None)
        else:
            present[name] = iterations

    actor.rounds(step, start=begin)

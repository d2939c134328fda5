"""Quotas: one that was set is there, one that was taken away cannot come back, and a request is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.power.promises.base import Past, Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.history import Op
    from tests.power.look import Look
    from tests.power.world import Actor, World

VERSION = 1
KEY = "producer_byte_rate"
RATES = range(10**9, 2 * 10**9)
"""Bytes a second, enough that no client is throttled; each change has a unique number, which identifies it."""
NAMES_MAX = 8
PLACE = "metadata.journal"


class Quotas(Promise):
    """A user and a client id of the same name have the same quota, given and taken away in one request."""

    name = "quotas"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "quotas", _change

    def check(self, past: Past, look: Look) -> Iterator[str]:
        by_name: dict[str, list[Op]] = {}
        for op in past.ops("quotas"):
            by_name.setdefault(op.what["name"], []).append(op)
        if not by_name:
            return
        found = _found(look.ask(api.DESCRIBE_CLIENT_QUOTAS, VERSION, DescribeClientQuotasRequest()))
        for name in found.keys() - by_name.keys():
            yield f"quotas of {name} were never asked for"
        for name, ops in by_name.items():
            sure = max((i for i, op in enumerate(ops) if past.promised(op)), default=-1)
            allowed = {op.what["rate"] for op in ops[max(sure, 0) :]} | ({None} if sure < 0 else set())
            rates = found.get(name, {})
            values = set(rates.values()) or {None}
            if rates and rates.keys() != {"user", "client-id"}:
                yield f"of the quotas of {name} only that of the {', '.join(rates)} is there"
            elif len(values) > 1 or not values <= allowed:
                yield f"{name} has {rates}, not one of {sorted(map(str, allowed))}"


def _found(answer: Any) -> dict[str, dict[str, int]]:
    """Name → type of entity → rate."""
    found: dict[str, dict[str, int]] = {}
    for row in answer.entries:
        [entity], [value] = row.entity, row.values
        found.setdefault(entity.entity_name, {})[entity.entity_type] = int(value.value)
    return found


def _change(actor: Actor) -> None:
    present: dict[str, int] = {}

    def begin() -> None:
        present.clear()
        answer = actor.ask(api.DESCRIBE_CLIENT_QUOTAS, VERSION, DescribeClientQuotasRequest())
        present.update({name: max(rates.values()) for name, rates in _found(answer).items()})

    def step() -> None:
        actor.come_again()
        token = -1
        if len(present) >= NAMES_MAX or (present and actor.draw.random() < 0.5):
            name = actor.draw.choice(sorted(present))
        else:
            token = actor.world.tokens(1)
            name = f"q{token:08d}q"
        rate = None
        if name not in present or actor.draw.random() < 0.5:
            rate = actor.draw.choice(RATES)
        what = {"name": name, "rate": rate}

        def succeeded(answer: Any) -> dict[str, Any] | None:
            return None if any(entry.error_code for entry in answer.entries) else {}

        place = PLACE if token >= 0 else ""
        key = api.ALTER_CLIENT_QUOTAS
        request = _request(name, rate)
        if actor.attempt("quotas", what, key, VERSION, request, succeeded=succeeded, token=token, place=place) is None:
            return
        if rate is None:
            present.pop(name, None)
        else:
            present[name] = rate

    actor.rounds(step, start=begin)


def _request(name: str, rate: int | None) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)],
                ops=[OpData(key=KEY, value=float(rate or 0), remove=rate is None)],
            )
            for kind in ("user", "client-id")
        ]
    )

"""Features that were switched to another level are at it, and clients see no older state of them come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import ApiVersionsRequest
from kafkalite.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.power.promises.base import Past, Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.power.look import Look
    from tests.power.world import Actor, World

FEATURE = "transaction.version"
NEWEST = 2
UPGRADE, SAFE_DOWNGRADE = 1, 2
WHO = {"client_software_name": "power", "client_software_version": "1"}


class FeatureLevels(Promise):
    """One feature goes up and down; requests of every level are served all along."""

    name = "features"

    def actors(self, world: World) -> Iterable[tuple[str, Callable[[Actor], None]]]:
        yield "features", _change

    def check(self, past: Past, look: Look) -> Iterator[str]:
        ops = past.ops("features")
        answer = look.ask(api.API_VERSIONS, 4, ApiVersionsRequest(**WHO))
        level = level_of(answer)
        sure = max((i for i, op in enumerate(ops) if past.promised(op)), default=-1)
        allowed = {op.what["level"] for op in ops[max(sure, 0) :]}
        if sure < 0:
            allowed.add(NEWEST)
        if level not in allowed:
            yield f"feature {FEATURE} is at {level}, not at one of {sorted(allowed)}"
        seen = max((op.result["epoch"] for op in ops if past.promised(op)), default=-1)
        if answer.finalized_features_epoch <= seen:
            yield f"features have epoch {answer.finalized_features_epoch}, but a later change than {seen} was answered"


def level_of(answer: Any) -> int:
    return next((int(row.max_version_level) for row in answer.finalized_features if row.name == FEATURE), 0)


def _change(actor: Actor) -> None:
    def step() -> None:
        actor.come_again()
        before = actor.ask(api.API_VERSIONS, 4, ApiVersionsRequest(**WHO))
        now = level_of(before)
        level = actor.draw.choice([one for one in range(NEWEST + 1) if one != now])
        kind = UPGRADE if level > now else SAFE_DOWNGRADE
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)

        def succeeded(answer: Any) -> dict[str, Any] | None:
            return None if answer.error_code else {"epoch": before.finalized_features_epoch}

        request = UpdateFeaturesRequest(feature_updates=[update])
        actor.attempt("features", {"level": level}, api.UPDATE_FEATURES, 2, request, succeeded=succeeded)

    actor.rounds(step)

"""Handle UpdateFeatures 0-2: set features to other levels (kafka-features).

    v0   only upgrades, since Kafka 4 ignores the flag for downgrades
    v1   has upgrade types (1 upgrade, 2 lossless downgrade, 3 possibly lossy downgrade), and validate_only
    v2   has no results per feature

The changes are durable before the response. All of them are made or none: the first impossible change fails the request
with INVALID_UPDATE_VERSION.

Source: FeatureControlManager and QuorumController of Kafka 4.1.

Thread rule: runs on the I/O pool. The lock `_changing` makes check and change one step.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from kafkalite.broker.features import KRAFT_VERSION, LEVELS, METADATA_CHANGES, METADATA_VERSION, Features
from kafkalite.broker.limits.pace import checkpointed
from kafkalite.errors import ErrorCode, KafkaError
from kafkalite.wire.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from kafkalite.broker.handlers.context import RequestContext

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_RESULTS_UNTIL: Final = 1

_changing = threading.Lock()


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    wanted = {
        item.feature: (item.max_version_level, item.upgrade_type) for item in checkpointed(request.feature_updates)
    }
    with _changing:
        present = context.broker.logs.metadata.features
        for name, (level, kind) in wanted.items():
            problem = _problem(present, context.broker.cluster.node_id, name, level, kind)
            if problem is not None:
                return _failed(f"cannot set {name} to level {level}: {problem}")
        if wanted and not request.validate_only:
            levels = {name: level for name, (level, _) in wanted.items()}
            try:
                context.broker.logs.metadata.change_features(levels)
            except KafkaError as error:
                return UpdateFeaturesResponse(error_code=error.code, error_message=str(error))
    results = []
    if context.api_version <= _RESULTS_UNTIL:
        results = [UpdatableFeatureResult(feature=name, error_message="NONE") for name in wanted]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _failed(text: str) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=f"no feature was changed, because {text}"
    )


def _problem(present: Features, node_id: int, name: str, level: int, kind: int) -> str | None:
    """Return the reason why a feature cannot be set to a level; None if it can.

    A lower level requires one of the downgrade types. metadata.version can be lowered only to levels with the same
    Kafka metadata, and kraft.version cannot be lowered.
    """
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"unknown upgrade type {kind}"
    if level < 0:
        return "the level is negative"
    if name not in LEVELS:
        return f"broker {node_id} does not support this feature"
    oldest, newest = LEVELS[name]
    if not oldest <= level <= newest:
        return f"broker {node_id} supports levels {oldest} to {newest}"
    now = present.level(name)
    if level < now and kind == UPGRADE:
        return f"its level is {now}, and lowering it requires a downgrade"
    if level < now and name == KRAFT_VERSION:
        return f"its level is {now}, which can never be lowered"
    if level > now and kind != UPGRADE:
        return f"its level is {now}, so this is not a downgrade"
    if name == METADATA_VERSION:
        kept = max(each for each in METADATA_CHANGES if each <= now)
        if level < kept:
            return f"the stored metadata may require level {kept} or above"
    return None

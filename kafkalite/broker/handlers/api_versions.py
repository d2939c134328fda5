"""Handle ApiVersions 0-5: report the APIs, versions and features that this broker supports.

The APIs are those of `table` (those of telemetry only if the broker serves metrics), the features those of
`kafkalite.broker.features`. From v3 on the response has the features (KIP-584), and the request has the name and
version of the client's software (KIP-511):

    v3    the response leaves out supported features whose range begins at 0, since old clients cannot read them
    v4    the response has all supported features
    v5    the request may name a cluster and a node, both or neither. A client that wants another cluster or node gets
          REBOOTSTRAP_REQUIRED and bootstraps again (KIP-1242)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kafkalite.broker.features import LEVELS
from kafkalite.broker.handlers import table
from kafkalite.errors import ErrorCode
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kafkalite.broker.features import Features
    from kafkalite.broker.handlers.context import RequestContext

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE: Final = 3
SUPPORTED_SINCE: Final = 4
NAMES_NODE_SINCE: Final = 5
UNKNOWN_NODE: Final = -1
_LIBRDKAFKA: Final = "librdkafka"
_LIBRDKAFKA_OWN: Final = re.compile(r"v?(\d+)\.(\d+)")
_LIBRDKAFKA_INSIDE: Final = re.compile(r"librdkafka-v?(\d+)\.(\d+)")
"""The end of a wrapper's version, for example: 2.1.0-librdkafka-2.1.0."""
_TAGS_SINCE: Final = (2, 2)

TELEMETRY: Final = frozenset({api.GET_TELEMETRY_SUBSCRIPTIONS, api.PUSH_TELEMETRY})
_ALL_KEYS: Final = [
    ApiVersion(api_key=row.key, min_version=row.advertised, max_version=row.newest) for row in table.ROWS
]
_SUPPORTED: Final = [
    SupportedFeatureKey(name=name, min_version=oldest, max_version=newest) for name, (oldest, newest) in LEVELS.items()
]
_KEYS: Final = {True: _ALL_KEYS, False: [row for row in _ALL_KEYS if row.api_key not in TELEMETRY]}
"""The APIs with and without the telemetry APIs: a client pushes metrics to any broker that lists the latter
(KIP-714)."""
_PLAIN: Final = {telemetry: ApiVersionsResponse(api_keys=keys) for telemetry, keys in _KEYS.items()}
INVALID: Final = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
REBOOTSTRAP: Final = ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    telemetry = context.broker.client_metrics is not None
    broker = context.broker
    identity = broker.cluster.identity
    response = answer(context.api_version, request, broker.logs.metadata.features, identity, telemetry=telemetry)
    if response.error_code == ErrorCode.NONE:
        context.connection.software_name = request.client_software_name
        context.connection.software_version = request.client_software_version
    return response


def answer(
    version: int, request: ApiVersionsRequest, features: Features, identity: tuple[str, int], *, telemetry: bool
) -> ApiVersionsResponse:
    """Return the response, which is the same on every connection; `identity` is this broker's (cluster id, node id)."""
    if version < SOFTWARE_SINCE:
        return _PLAIN[telemetry]
    refused = refusal(version, request, identity)
    if refused is not None:
        return refused
    if reads_tags_wrongly(request.client_software_name, request.client_software_version):
        return _PLAIN[telemetry]
    return _with_features(features, version, telemetry)


def refusal(version: int, request: ApiVersionsRequest, identity: tuple[str, int]) -> ApiVersionsResponse | None:
    """Return the error response for a bad request since v3, or None; `identity` is this broker's (cluster id, node id).

    Source: KafkaApis and ApiVersionsRequest of Kafka 4.4.
    """
    if not names_software(request):
        return INVALID
    if version < NAMES_NODE_SINCE:
        return None
    if (request.cluster_id is None) != (request.node_id == UNKNOWN_NODE):
        return INVALID
    if request.cluster_id is None or (request.cluster_id, request.node_id) == identity:
        return None
    return REBOOTSTRAP


def names_software(request: ApiVersionsRequest) -> bool:
    """Return whether the client's software name and version have a valid form (KIP-511)."""
    return bool(
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    )


@lru_cache(maxsize=8)
def _with_features(features: Features, version: int, telemetry: bool) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=_KEYS[telemetry],
        supported_features=[row for row in _SUPPORTED if version >= SUPPORTED_SINCE or row.min_version > 0],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name in LEVELS
            if (level := features.level(name))
        ],
    )


def reads_tags_wrongly(name: str, version: str) -> bool:
    """Return whether a client is, or contains, a librdkafka before 2.2 (confluentinc/librdkafka #4278).

    Such a client gets no features: it does not use them, and cannot connect if the response has an unexpected tagged
    field.
    """
    found = _LIBRDKAFKA_OWN.match(version) if name == _LIBRDKAFKA else _LIBRDKAFKA_INSIDE.search(version)
    return found is not None and (int(found[1]), int(found[2])) < _TAGS_SINCE

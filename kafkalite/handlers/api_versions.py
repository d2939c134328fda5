"""ApiVersions 0-4: what this broker serves, straight from the handler table.

v3 tells the client's name and version, which have to look like names (KIP-511). v3 also has tagged features (KIP-584):
transaction.version is 2, which makes producers raise their epoch with each transaction (KIP-890).

    v3    finalized features alone: a supported one whose range begins at 0 is more than old clients can read
    v4    supported ones too

librdkafka before 2.2 reads tagged fields wrongly and cannot connect when it meets one it does not expect; it is told no
features, and has no use for them. A version above 4 never gets here: see `table.unsupported_api_versions`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkalite.errors import ErrorCode
from kafkalite.handlers import table
from kafkalite.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from kafkalite.dispatch import RequestContext

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3
_SUPPORTED_SINCE: Final = 4
_LIBRDKAFKA: Final = "librdkafka"
_LIBRDKAFKA_OWN: Final = re.compile(r"v?(\d+)\.(\d+)")
_LIBRDKAFKA_INSIDE: Final = re.compile(r"librdkafka-v?(\d+)\.(\d+)")
"""The end of a wrapper's version: 2.1.0-librdkafka-2.1.0."""
_TAGS_SINCE: Final = (2, 2)

TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
FEATURES_EPOCH: Final = 1
"""Rises with every release that changes the features; clients believe the highest they have seen."""

_KEYS: Final = [ApiVersion(api_key=row.key, min_version=row.advertised, max_version=row.newest) for row in table.ROWS]
_FINALIZED: Final = [
    FinalizedFeatureKey(
        name=TRANSACTION_VERSION,
        min_version_level=TRANSACTION_VERSION_LEVEL,
        max_version_level=TRANSACTION_VERSION_LEVEL,
    )
]
_SUPPORTED: Final = [
    SupportedFeatureKey(name=TRANSACTION_VERSION, min_version=0, max_version=TRANSACTION_VERSION_LEVEL)
]
_PLAIN: Final = ApiVersionsResponse(api_keys=_KEYS)
_WITH_FINALIZED: Final = ApiVersionsResponse(
    api_keys=_KEYS, finalized_features_epoch=FEATURES_EPOCH, finalized_features=_FINALIZED
)
_WITH_FEATURES: Final = ApiVersionsResponse(
    api_keys=_KEYS,
    supported_features=_SUPPORTED,
    finalized_features_epoch=FEATURES_EPOCH,
    finalized_features=_FINALIZED,
)
_INVALID: Final = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version < _SOFTWARE_SINCE:
        return _PLAIN
    name, version = request.client_software_name, request.client_software_version
    if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
        return _INVALID
    if reads_tags_wrongly(name, version):
        return _PLAIN
    return _WITH_FEATURES if context.api_version >= _SUPPORTED_SINCE else _WITH_FINALIZED


def reads_tags_wrongly(name: str, version: str) -> bool:
    """Whether a client is, or has inside, a librdkafka before 2.2 (confluentinc/librdkafka #4278)."""
    found = _LIBRDKAFKA_OWN.match(version) if name == _LIBRDKAFKA else _LIBRDKAFKA_INSIDE.search(version)
    return found is not None and (int(found[1]), int(found[2])) < _TAGS_SINCE

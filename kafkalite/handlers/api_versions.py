"""ApiVersions 0-4: what this broker serves, straight from the handler table.

v3 tells the client's name and version, which have to look like names (KIP-511). v3 also has tagged features: none is
sent, since none is supported, and an explicit default there locks old librdkafka out. A version above 4 never gets
here: see `table.unsupported_api_versions`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalite.errors import ErrorCode
from kafkalite.handlers import table
from kafkalite.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kafkalite.dispatch import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3

_RESPONSE = ApiVersionsResponse(
    api_keys=[ApiVersion(api_key=row.key, min_version=row.advertised, max_version=row.newest) for row in table.ROWS]
)
_INVALID = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= _SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _INVALID
    return _RESPONSE

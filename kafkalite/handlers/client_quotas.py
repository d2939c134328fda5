"""DescribeClientQuotas 0-1: there are no quotas. `kafka-configs --describe` of users asks before it shows any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.handlers.permissions import CLUSTER, CODES, DESCRIBE_CONFIGS, allows
from kafkalite.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

if TYPE_CHECKING:
    from kafkalite.handlers.context import RequestContext


def describe(context: RequestContext, _request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    if not allows(context, DESCRIBE_CONFIGS, CLUSTER):
        return DescribeClientQuotasResponse(error_code=CODES[CLUSTER], error_message=None, entries=None)
    return DescribeClientQuotasResponse(entries=[])

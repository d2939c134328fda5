"""DescribeClientQuotas 0-1: there are no quotas. `kafka-configs --describe` of users asks before it shows any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

if TYPE_CHECKING:
    from kafkalite.handlers.context import RequestContext


def describe(_context: RequestContext, _request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None, entries=[])

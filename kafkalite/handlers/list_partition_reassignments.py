"""ListPartitionReassignments 0: nothing ever moves on one broker. `kafka-topics --describe` asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kafkalite.handlers.context import RequestContext


def handle(_context: RequestContext, _request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)

"""List and alter client quotas of users, client ids and addresses (KIP-546).

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.base.quota_entities import Entity, entity_of, entity_text
from kafkalite.client.cluster import raise_for
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafkalite.wire.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client.cluster import Cluster


class ClientQuotas:
    """Quota administration, created by `Client.quotas`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def list_all(self) -> dict[Entity, dict[str, float]]:
        """Return a map of entity → quota key → value.

        An entity is (type, name) pairs; the name None is the default.
        """
        answer = self._client.controller().request(api.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest())
        raise_for(answer.error_code, "quotas", answer.error_message)
        return {
            entity_of((part.entity_type, part.entity_name) for part in row.entity): {
                item.key: item.value for item in row.values
            }
            for row in answer.entries or ()
        }

    def alter(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        """Set quota keys of one entity; the value None removes a key. Raises InvalidRequest."""
        entry = AlterClientQuotasRequestEntryData(
            entity=[AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
        )
        answer = self._client.controller().request(api.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=[entry]))
        for row in answer.entries:
            raise_for(row.error_code, f"quotas of {entity_text(entity)}", row.error_message)

"""What a broker serves in a cluster whose controllers are Apache Kafka's: rows as in `kafkalite.handlers.table`.

A client that begins here learns of the cluster's brokers. This broker leads no partitions and coordinates no groups
yet, so that neither is advertised. Used by such a broker alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.handlers.table import LazyFunction, Row
from kafkalite.protocol import api

if TYPE_CHECKING:
    from kafkalite._native.serve.worker_parts import NativeApi

ROWS: Final[tuple[Row, ...]] = (
    Row(api.METADATA, 0, 13, LazyFunction("in_cluster:metadata")),
    Row(api.API_VERSIONS, 0, 4, LazyFunction("in_cluster:api_versions")),
    Row(api.DESCRIBE_CLUSTER, 0, 2, LazyFunction("in_cluster:describe_cluster")),
)
_BY_KEY: Final = {row.key: row for row in ROWS}


def find(key: int) -> Row | None:
    """The row of an API key, None when it is not served."""
    return _BY_KEY.get(key)


def native_apis() -> tuple[NativeApi, NativeApi]:
    """Produce and Fetch, of which no version is served."""
    return _unserved(api.PRODUCE), _unserved(api.FETCH)


def _unserved(key: int) -> NativeApi:
    return key, 1, 0, api.APIS[key].flexible_from

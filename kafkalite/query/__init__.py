"""Topics as tables of SQL: DuckDB asks, the columnar client answers in Arrow record batches.

    with Queries("127.0.0.1:9092") as queries:
        for batch in queries.run("select key, count(*) from clicks group by key"):
            ...

Needs duckdb and pyarrow (the extra `query`).

    statement   the topics and columns that a statement names
    tables      topics as Arrow streams
    engine      DuckDB over these streams
"""

from __future__ import annotations

from kafkalite.query.engine import Queries, QueryResult
from kafkalite.query.tables import KINDS, QueryError

__all__ = ["KINDS", "Queries", "QueryError", "QueryResult"]

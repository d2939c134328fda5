"""Query topics with SQL: DuckDB executes a statement, and topics are its tables.

    with Queries("127.0.0.1:9092") as queries:
        for batch in queries.run("select key, count(*) from clicks group by key"):
            ...

The results are Arrow record batches. Needs duckdb and pyarrow (the extra `query`).

    statement   finds the topics and columns that a statement names
    tables      topics as Arrow streams, read with the columnar client
    engine      runs DuckDB over these streams
"""

from __future__ import annotations

from kafkalite.query.engine import Queries, QueryResult
from kafkalite.query.tables import KINDS, QueryError

__all__ = ["KINDS", "Queries", "QueryError", "QueryResult"]

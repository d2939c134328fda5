"""Query topics with SQL. Topics are tables, and DuckDB executes the statements.

    with Queries("127.0.0.1:9092") as queries:
        for batch in queries.run("select key, count(*) from clicks group by key"):
            ...

The results are Arrow record batches. Needs duckdb and pyarrow (the extra `query`).

    statement   finds the topics and columns that a statement names
    tables      a topic as a table of DuckDB
    engine      executes statements
"""

from __future__ import annotations

from kafkalite.query.engine import Queries, QueryResult
from kafkalite.query.tables import KINDS, QueryError

__all__ = ["KINDS", "Queries", "QueryError", "QueryResult"]

"""A Spark session that works out of the box: Python workers run this interpreter, times are UTC.

Without it PySpark starts the first `python3` on PATH as its workers, and that may know neither pyarrow nor kafkalite.

Thread rule: call it from the thread that owns the program's environment variables.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.extras import needs_extra
from kafkalite.spark.sentences import any_sentence_of, is_sparks

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_PORT: Final = 15002
CONNECT_TIMEOUT_S: Final = 10.0
DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def session(
    app_name: str = "kafkalite",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """The SparkSession, made if there is none. `settings` are Spark's own, and go before the defaults here.

    With `remote`, as "sc://host:15002", it is one of a Spark Connect server, whose Python workers are its own affair:
    kafkalite has to be installed there too.

    RuntimeError when Java is missing, ImportError when PySpark is: each says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError(needs_extra("a session needs PySpark", "spark")) from error
    if remote is not None:
        return connected(remote, settings or {})
    require_java()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Tells a session of the format. By itself Spark lists what stands in folders on the path of its workers, where a
    tree that is installed in place does not show, and leaves out in silence what it could not list.
    """
    from kafkalite.spark.format import KafkaliteDataSource

    spark.dataSource.register(KafkaliteDataSource)


def connected(remote: str, settings: Mapping[str, str]) -> Any:
    """A session of a Spark Connect server. ImportError without the packages of its client; RuntimeError."""
    from pyspark.sql import SparkSession

    require_listening(remote)
    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise ImportError(needs_extra("Spark Connect needs grpcio", "connect")) from error
    except Exception as error:
        if not is_sparks(error):
            raise
        raise RuntimeError(f"{remote} is no Spark Connect server that answers: {any_sentence_of(error)}") from error
    for name, value in {**DEFAULTS, **settings}.items():
        spark.conf.set(name, value)
    return spark


def require_listening(remote: str) -> None:
    """RuntimeError where nothing listens: Spark's client would try for ten minutes."""
    parts = urllib.parse.urlsplit(remote)
    try:
        host, port = parts.hostname, parts.port or CONNECT_PORT
    except ValueError:
        host = None
    if parts.scheme != "sc" or not host:
        raise RuntimeError(f"{remote} is no Spark Connect server: write sc://HOST:{CONNECT_PORT}")
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise RuntimeError(f"no Spark Connect server listens at {remote}: {error.strerror or error}") from error


def require_java() -> None:
    """RuntimeError when there is no Java to start."""
    home = os.environ.get("JAVA_HOME")
    if home is not None and not Path(home, "bin", "java").exists():
        raise RuntimeError(f"JAVA_HOME is {home!r}, and there is no bin/java; Spark needs Java 17 or newer")
    if home is None and shutil.which("java") is None:
        raise RuntimeError("Spark needs Java 17 or newer, and there is none: install it, or set JAVA_HOME")

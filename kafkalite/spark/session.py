"""Create a Spark session whose Python workers run this interpreter and whose times are UTC, unless set otherwise.

By default, PySpark's workers run the first `python3` on PATH, which may lack pyarrow or kafkalite.

Thread rule: `session` sets environment variables, so no other thread may change them at the same time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.base.extras import needs_extra
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
CANNOT_START: Final = "Spark cannot start"
JAVA_VERSION_MIN: Final = 17
JAVA_MEMORY: Final = "1g"
"""Spark's default for spark.driver.memory."""
JAVA_TIMEOUT_S: Final = 60.0
JAVA_END_S: Final = 5.0
"""How long to wait for a Java process to end after its connection broke."""
JAVA_CAUSELESS: Final = ("Error occurred during initialization", "Error: Could not create", "Error: A fatal")
"""Prefixes of output lines that give no reason when Java cannot start."""


def session(
    app_name: str = "kafkalite",
    *,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return the SparkSession, and create it if there is none. `settings` are Spark settings that override DEFAULTS.

    With `remote`, such as "sc://host:15002", return a session of a Spark Connect server. Its Python workers run on the
    server, so kafkalite must be installed there, too.

    Raises RuntimeError if Java is missing or cannot start, or if the server does not respond. Raises ImportError if
    PySpark or a package for Spark Connect is missing.
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
    chosen = {**DEFAULTS, **(settings or {})}
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if not is_sparks(error) and not isinstance(error, OSError):
            raise
        why = java_trouble(chosen.get("spark.driver.memory", JAVA_MEMORY)) or any_sentence_of(error)
        raise RuntimeError(f"{CANNOT_START}: {why}") from error
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Register the format with a session.

    Spark itself searches for formats only in directories of its workers' path that it can list. It skips others without
    a message, and does not find an editable install.
    """
    from kafkalite.spark.format import KafkaliteDataSource

    spark.dataSource.register(KafkaliteDataSource)


def connected(remote: str, settings: Mapping[str, str]) -> Any:
    """Return a session of a Spark Connect server.

    Raises RuntimeError if the server does not respond, and ImportError if a package of Spark's client is missing.
    """
    from pyspark.sql import SparkSession

    require_listening(remote)
    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise ImportError(needs_extra("Spark Connect needs grpcio", "connect")) from error
    except Exception as error:
        if not is_sparks(error):
            raise
        raise RuntimeError(
            f"the Spark Connect server at {remote} does not respond: {any_sentence_of(error)}"
        ) from error
    for name, value in {**DEFAULTS, **settings}.items():
        spark.conf.set(name, value)
    return spark


def require_listening(remote: str) -> None:
    """Raise RuntimeError if the address is invalid or no server listens there. Spark's client would retry for ten
    minutes.
    """
    parts = urllib.parse.urlsplit(remote)
    try:
        host, port = parts.hostname, parts.port or CONNECT_PORT
    except ValueError:
        host = None
    if parts.scheme != "sc" or not host:
        raise RuntimeError(f"{remote} is not a Spark Connect address; write sc://HOST:{CONNECT_PORT}")
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise RuntimeError(f"no Spark Connect server listens at {remote}: {error.strerror or error}") from error


def require_java() -> None:
    """Raise RuntimeError if there is no Java to start."""
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").exists():
        raise RuntimeError(f"JAVA_HOME is {home!r}, which has no bin/java; Spark needs Java 17 or newer")
    if not home and shutil.which("java") is None:
        raise RuntimeError("no Java found; install Java 17 or newer for Spark, or set JAVA_HOME")


def java_trouble(memory: str) -> str | None:
    """Return why Java cannot start Spark with this heap size (as for -Xmx), or None if Java works."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        done = subprocess.run(
            [java, f"-Xmx{memory}", "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot run {java} ({getattr(error, 'strerror', None) or error}); Spark needs Java 17 or newer"
    said = [line.strip() for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
    if done.returncode:
        causes = [line for line in said if not line.startswith(JAVA_CAUSELESS)] or said or ["it printed nothing"]
        return f"{java} does not start with a heap of {memory} (spark.driver.memory): {causes[0]}"
    version = re.search(r'version "(?:1[.])?([0-9]+)', "\n".join(said))
    if version is not None and int(version[1]) < JAVA_VERSION_MIN:
        return f"{java} is Java {version[1]}; Spark needs Java {JAVA_VERSION_MIN} or newer"
    return None


def silence_losses(spark: Any) -> None:
    """Stop Spark's libraries from printing traces about a lost Java process.

    Programs that report the loss themselves (`java_loss`) call this.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(is_not_py4js)  # py4j logs there that the process ended during a call
    context = None if type(spark).__module__.startswith("pyspark.sql.connect") else spark.sparkContext
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def is_not_py4js(record: logging.LogRecord) -> bool:
    """Return whether a record of the root logger does not come from py4j."""
    return Path(record.pathname).parent.name != "py4j"


def java_loss(spark: Any, error: BaseException) -> str | None:
    """Return a sentence about the loss of the session's Java process if that loss caused the error, else None."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return None  # the process is on another machine
    name = type(error).__name__
    of_gateway = name == "Py4JNetworkError" or "Answer from Java side is empty" in str(error)
    of_call = name == "Py4JError"  # a call that did not end, or that Java did not accept
    process = getattr(spark.sparkContext._gateway, "proc", None)  # noqa: SLF001  # the only way to it
    if process is not None and (of_gateway or of_call or isinstance(error, ConnectionError | EOFError)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(JAVA_END_S)
            how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
            return f"Spark's Java process {how}"
    return f"the connection to Spark's Java process was lost: {any_sentence_of(error)}" if of_gateway else None

"""A Spark session that works out of the box: Python workers run this interpreter, times are UTC.

Without it PySpark starts the first `python3` on PATH as its workers, and that may know neither pyarrow nor kafkalite.

Thread rule: call it from the thread that owns the program's environment variables.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}


def session(
    app_name: str = "kafkalite", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Any:
    """The SparkSession, made if there is none. `settings` are Spark's own, and go before the defaults here.

    RuntimeError when Java is missing, ImportError when PySpark is: each says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("this needs PySpark: pip install 'kafkalite[spark]'") from error
    require_java()
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def require_java() -> None:
    """RuntimeError when there is no Java to start."""
    home = os.environ.get("JAVA_HOME")
    if home is not None and not Path(home, "bin", "java").exists():
        raise RuntimeError(f"JAVA_HOME is {home!r}, and there is no bin/java; Spark needs Java 17 or newer")
    if home is None and shutil.which("java") is None:
        raise RuntimeError("Spark needs Java 17 or newer, and there is none: install it, or set JAVA_HOME")

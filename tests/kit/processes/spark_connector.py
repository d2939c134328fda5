"""Spark's own Kafka connector, from its published jars: `format("kafka")` needs them, and PySpark does not include
them.

Maven fetches them once into build/spark-connector. A jar that Maven Central lacks in the version of the installed
PySpark is taken in the newest older version known to run with it. `NotAvailable` names the missing jars.
"""

from __future__ import annotations

import shutil
import subprocess

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY
from tests.kit.processes.maven import NotAvailable

OLDER = ("4.2.0", "4.0.0")
"""Versions of Spark that are asked for after the one that is installed."""
SPARKS_OWN = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
)
OTHERS = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.13.1")
FETCH_TIMEOUT_S = 300


@alone()
def connector_jars() -> dict[str, str]:
    """Path of each jar by its name, fetched when they are not there yet."""
    import pyspark

    folder = REPOSITORY / "build" / "spark-connector" / pyspark.__version__
    if not (folder / "complete").exists():
        for tool in ("java", "mvn"):
            if shutil.which(tool) is None:
                raise NotAvailable(f"{tool} is not on the PATH")
        folder.mkdir(parents=True, exist_ok=True)
        for artifact in SPARKS_OWN:
            copy_first(folder, [f"{artifact}:{version}" for version in (pyspark.__version__, *OLDER)])
        for artifact in OTHERS:
            copy_first(folder, [artifact])
        (folder / "complete").touch()
    return {path.name: str(path) for path in sorted(folder.glob("*.jar"))}


def copy_first(folder: object, artifacts: list[str]) -> None:
    """The first of these that Maven can fetch; NotAvailable with what it said about the last."""
    for artifact in artifacts:
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        if done.returncode == 0:
            return
    raise NotAvailable(f"mvn could not fetch {artifacts[-1]}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def settings() -> dict[str, str]:
    """Return the settings of a Spark session that supports `format("kafka")`."""
    return {"spark.jars": ",".join(connector_jars().values())}

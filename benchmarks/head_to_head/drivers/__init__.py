"""Compile and find the load programs, one per client; README.md describes their command line and output.

    DRIVERS["kafka-c"].acks      what each --ack means there; the program refuses any other --ack
    command("kafka-c")           ["build/bench/kafka-c"], compiled first if it is missing or older than its sources

Thread rule: any thread and any process. A program appears under its name only when it is complete.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.head_to_head.drivers.table import TABLE, Driver

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "bench"
JARS = Path("/usr/share/java")
C_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O3", "-Wall", "-Wextra")
JAVA_FLAGS = ("-XX:+UseParallelGC", "-Xms256m", "-Xmx512m")
BUILD_TIMEOUT_S = 120

DRIVERS: Mapping[str, Driver] = {driver.name: driver for driver in TABLE}


class Missing(RuntimeError):
    """A driver cannot run on this machine; the message names what is not installed."""


def command(name: str) -> list[str]:
    """Return the start of a driver's command line. Raises KeyError for an unknown name, Missing if it cannot run."""
    driver = DRIVERS[name]
    make = {"C": _compiled, "Java": _java, "Python": _interpreted}
    return make[driver.language](driver)


def _interpreted(driver: Driver) -> list[str]:
    for library in driver.libraries:
        if importlib.util.find_spec(library) is None:
            raise Missing(f"{driver.name} needs the Python package {driver.package}, which is not installed")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return ["env", f"PYTHONPATH={path}", sys.executable, "-m", f"{__name__}.{driver.source.removesuffix('.py')}"]


def _compiled(driver: Driver) -> list[str]:
    target = BUILD / driver.name
    sources = [HERE / driver.source, *(ROOT / source for source in driver.more_sources)]
    if _is_older(target, [*sources, *HERE.glob("*.h")]):
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise Missing(f"{driver.name} is compiled when it is first used, and gcc is not installed")
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            made = Path(folder) / driver.name
            links = [f"-l{library}" for library in (*driver.libraries, "m", "pthread")]
            _build(driver, [compiler, *C_FLAGS, "-o", str(made), *map(str, sources), *links])
            os.replace(made, target)
    return [str(target)]


def _java(driver: Driver) -> list[str]:
    jars = [JARS / jar for jar in driver.libraries]
    if shutil.which("java") is None or shutil.which("javac") is None:
        raise Missing(f"{driver.name} is compiled when it is first used, and java or javac is not installed")
    if not all(jar.exists() for jar in jars):
        raise Missing(f"{driver.name} needs the package {driver.package}, which is not installed")
    target = BUILD / f"{driver.name}.jar"
    sources = [HERE / source for source in (driver.source, *driver.more_sources)]
    if _is_older(target, sources):
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as folder:
            path = os.pathsep.join(map(str, jars))
            _build(driver, ["javac", "-nowarn", "-cp", path, "-d", f"{folder}/classes", *map(str, sources)])
            made = shutil.make_archive(f"{folder}/made", "zip", f"{folder}/classes")
            os.replace(made, target)
    path = os.pathsep.join(map(str, [target, *jars]))
    return ["java", *JAVA_FLAGS, "-cp", path, driver.source.removesuffix(".java")]


def _is_older(target: Path, sources: Iterable[Path]) -> bool:
    return not target.exists() or target.stat().st_mtime < max(path.stat().st_mtime for path in sources)


def _build(driver: Driver, arguments: list[str]) -> None:
    """Run a compiler. Raises Missing for a missing header or library, RuntimeError for any other error."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, env=environment, check=False
    )
    if done.returncode == 0:
        return
    if "No such file or directory" in done.stderr or "cannot find -l" in done.stderr:
        raise Missing(f"{driver.name} needs the package {driver.package}, which is not installed")
    raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-4000:]}")

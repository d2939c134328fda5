"""The versions of a client and its libraries, as installed, not as requested."""

from __future__ import annotations

import functools
import json
import platform
import re
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from tests.compat import toolchains
from tests.compat.toolchains import BUILD


def said(*command: str) -> str:
    """Return a program's output about itself, from either stream."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def python_package(name: str) -> tuple[str, str]:
    return metadata.version(name), f"Python {platform.python_version()}"


def confluent() -> tuple[str, str]:
    import confluent_kafka

    return metadata.version("confluent-kafka"), f"librdkafka {confluent_kafka.libversion()[0]}"


def kcat() -> tuple[str, str]:
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", said("kcat", "-V"), re.DOTALL)
    assert found, "kcat -V names both"
    return found[1], f"librdkafka {found[2]}"


def java() -> tuple[str, str]:
    (jar,) = (BUILD / "java" / "lib").glob("kafka-clients-*.jar")
    found = re.search(r'version "([^"]+)"', said("java", "-version"))
    assert found, "java -version names it"
    return jar.stem.removeprefix("kafka-clients-"), f"Java {found[1]}"


def node_package(folder: Path, name: str, node: str) -> tuple[str, str]:
    package = json.loads((folder / "node_modules" / name / "package.json").read_text(encoding="utf-8"))
    return package["version"], f"Node {said(node, '--version').strip().removeprefix('v')}"


def go_module(folder: str, module: str) -> tuple[str, str]:
    """Return the module versions recorded in the built program."""
    told = said(toolchains.go(), "version", "-m", str(BUILD / folder / "client"))
    module_version = re.search(rf"dep\s+{re.escape(module)}\s+v(\S+)", told)
    go_version = re.search(r"go(\d\S*)", told)
    assert module_version, told
    assert go_version, told
    return module_version[1], f"Go {go_version[1]}"


PROBES: dict[str, Callable[[], tuple[str, str]]] = {
    "confluent": confluent,
    "kafka_python": lambda: python_package("kafka-python"),
    "aiokafka": lambda: python_package("aiokafka"),
    "kcat": kcat,
    "java": java,
    "kafkajs": lambda: node_package(BUILD / "kafkajs", "kafkajs", "node"),
    "platformatic": lambda: node_package(BUILD / "platformatic", "@platformatic/kafka", toolchains.node()),
    "franz_go": lambda: go_module("franz_go", "github.com/twmb/franz-go"),
    "sarama": lambda: go_module("sarama", "github.com/IBM/sarama"),
}


@functools.cache
def of(folder: str) -> tuple[str, str]:
    """(client's version, name and version of its library or runtime)."""
    return PROBES[folder]()

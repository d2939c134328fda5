"""The steps of docs/cluster.md: three machines from nothing, and a fourth, by the page's own commands.

A comment above a block names its machine: `<!-- on: kafka-1 -->`, `<!-- on: every machine; as: NAME -->`. Steps that
the text tells you to repeat have `<!-- first: NAME, NAME on MACHINE with X=Y -->` above them.
"""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.kit.harness.doc_pages import DOCS, blocks_of
from tests.kit.processes.broker import wait_until
from tests.kit.processes.machines import Machine, Machines, missing

pytestmark = pytest.mark.integration

WAIT_S: Final = 300.0
PAGE: Final = DOCS / "cluster.md"
EVERY: Final = ("kafka-1", "kafka-2", "kafka-3")
NAMES: Final = (*EVERY, "kafka-4")
WALK: Final = re.compile(
    r"^<!-- first: (?P<first>[^\n]*) -->$|"
    r"^<!-- on: (?P<on>[^\n;]*)(?:; as: (?P<named>[\w-]+))? -->\n```sh\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
TOOLS: Final = {
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-server-start": "kafka.Kafka",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
}
"""Of Kafka's release: a script in bin/, and the class that it runs."""
TOOL: Final = """#!/bin/sh
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 ${{KAFKA_HEAP_OPTS:--Xmx256m}} \\
  -Dlog4j2.configurationFile=/opt/kafka/log4j2.yaml -cp '/opt/kafka/libs/*' {name} "$@"
"""
LOG4J: Final = """Configuration:
  status: error
  Appenders:
    Console: {name: out, target: SYSTEM_ERR, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
"""


class Command(NamedTuple):
    """Of the walk."""

    machines: tuple[str, ...]
    text: str
    line: int
    name: str | None


class Repeated(NamedTuple):
    """Commands of a name on a machine, with settings before them."""

    name: str
    machine: str
    settings: str


def walk_of(page: str) -> list[Command | Repeated]:
    """Return the page's steps in order."""
    steps: list[Command | Repeated] = []
    for found in WALK.finditer(page):
        if found["first"]:
            names, _, where = found["first"].partition(" on ")
            machine, _, settings = where.partition(" with ")
            steps += [Repeated(name.strip(), machine, settings) for name in names.split(",")]
        else:
            machines = EVERY if found["on"] == "every machine" else (found["on"],)
            steps.append(Command(machines, found["text"], page.count("\n", 0, found.start("text")) + 1, found["named"]))
    return steps


def install(machine: Machine, jars: Path) -> None:
    """What kafkalite's package and Kafka's release bring."""
    opt = machine.folder / "opt"
    (opt / "kafka" / "bin").mkdir(parents=True)
    (opt / "kafka" / "libs").symlink_to(jars)
    (opt / "kafka" / "log4j2.yaml").write_text(LOG4J)
    commands = {opt / "kafka" / "bin" / f"{name}.sh": TOOL.format(name=main) for name, main in TOOLS.items()}
    commands[opt / "kafkalite" / "bin" / "kafkalite"] = f'#!/bin/sh\nexec {sys.executable} -m kafkalite "$@"\n'
    for path, text in commands.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    machine.run("id kafkalite || useradd --system --home-dir /var/lib/kafkalite kafkalite")


def test_every_command_of_the_page_is_walked_or_says_why_not() -> None:
    walked = {step.text for step in walk_of(PAGE.read_text()) if isinstance(step, Command)}
    assert {block.text for block in blocks_of(PAGE) if block.reason is None} == walked


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing() or "there can be machines")
def test_the_page_is_walked_from_nothing(kafka_jars: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # of folders that other users look into
    steps = walk_of(PAGE.read_text())
    named = {step.name: step for step in steps if isinstance(step, Command) and step.name}
    said: list[str] = []
    with Machines(tmp_path / "machines", NAMES) as machines:
        for machine in machines.machines.values():
            install(machine, kafka_jars)
        for step in steps:
            if isinstance(step, Repeated):
                machines[step.machine].run(f"{step.settings}\n{named[step.name].text}")
                continue
            said += [machines[name].run(step.text) for name in step.machines]
        check_what_was_said("".join(said))
        check_the_end(machines["kafka-1"])


def check_what_was_said(said: str) -> None:
    """What was written was read, with three replicas in sync; brokers and controllers changed as they should."""
    assert {"order-1", "order-2", "order-3"} <= {*said.split("\n")}
    in_sync = in_sync_of(said)
    assert len(in_sync) == 6
    assert {*map(frozenset, in_sync)} == {frozenset("123")}
    assert "Broker 2 is no longer registered" in said
    assert "Removed  KRaft controller 103" in said
    assert "Added controller 103" in said


def check_the_end(machine: Machine) -> None:
    """Alice reads her records from the brokers that are left, which have all replicas."""
    known = ". ./cluster.env; export KAFKALITE_BOOTSTRAP=kafka-1:9092,kafka-4:9092; "
    read = machine.run(f"{known} kafkalite consume -t orders --from-beginning --exit --command-config alice.properties")
    assert {"order-1", "order-2", "order-3"} <= {*read.split("\n")}
    describe = "--bootstrap-server $KAFKALITE_BOOTSTRAP --command-config admin.properties --describe --topic orders"
    whole = frozenset("134")
    wait_until(
        lambda: {*map(frozenset, in_sync_of(machine.run(f"{known} kafka-topics.sh {describe}")))} == {whole},
        WAIT_S,
        "all replicas are in sync",
    )


def in_sync_of(described: str) -> list[list[str]]:
    """The replicas in sync of each partition of orders, as kafka-topics tells them."""
    return [found.split(",") for found in re.findall(r"\tTopic: orders\t.*\tIsr: ([\d,]+)", described)]

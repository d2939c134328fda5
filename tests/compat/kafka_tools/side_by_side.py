"""Every call of `calls.py` on Apache Kafka and on kafkalite, and a comparison; `--write` generates docs/tools.md from
it.

    .venv/bin/python -m tests.compat.kafka_tools.side_by_side [--write] [--only TOOL ...]

The exit status and the output are compared, line by line, in any order: without addresses, ids, times, rates and the
text of error messages, which differs between brokers (`normalised`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite import Broker
from tests.compat.kafka_tools.calls import (
    EXITS_BY_ITSELF,
    MAIN_CLASSES,
    NOT_CALLED,
    RUNS_UNTIL,
    STORY,
    Call,
    write_files,
)
from tests.compat.kafka_tools.one_jvm.runner import QUIET, Ended, ToolRunner
from tests.kit.processes.apache_kafka import HEAP, KAFKA_VERSION, ApacheKafka, jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tools.md"
OPENING = f"""\
# Apache Kafka's command line tools

The tools of Apache Kafka {KAFKA_VERSION} ran with the same calls against a single-node Apache Kafka and against
kafkalite. The comparison covers exit status and output. It ignores addresses, ids, times and the wording of broker
errors. `python -m tests.compat.kafka_tools.side_by_side --write` generates this page.
"""
SETTINGS = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
ONE_CALL_S = 120
NUMBERS_VARY = {
    *("kafka-consumer-perf-test", "kafka-e2e-latency", "kafka-metadata-quorum", "kafka-producer-perf-test"),
    *("kafka-transactions", "kafka-verifiable-consumer", "kafka-verifiable-producer"),
}
"""Tools that print rates, producer ids, and positions in metadata."""


class Side(NamedTuple):
    """One of the two brokers."""

    bootstrap: str
    directory: Path


class Compared(NamedTuple):
    """A call, and how it ended on both."""

    call: Call
    kafka: Ended
    ours: Ended

    @property
    def differences(self) -> list[str]:
        """What differs and should not; a sentence each."""
        found = []
        if self.kafka.status != self.ours.status:
            found.append(f"status {self.kafka.status}, here {self.ours.status}")
        if not self.call.on_purpose:
            for name in ("out", "err"):
                texts = (getattr(side, name) for side in (self.kafka, self.ours))
                kafka, ours = (normalised(text, numbers=self.call.tool not in NUMBERS_VARY) for text in texts)
                found += [f"{name} only there: {line}" for line in _without(kafka, ours)]
                found += [f"{name} only here: {line}" for line in _without(ours, kafka)]
        return found


def _without(lines: list[str], others: list[str]) -> list[str]:
    rest = list(others)
    return [line for line in lines if line not in rest or rest.remove(line)]  # type: ignore[func-returns-value]


_RULES = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"/tmp/\S+?(?=[\"',\s]|$)", "DIR"),
        (r"(localhost|127\.0\.0\.1|[\w.-]+):\d{4,5}\b", "HOST:PORT"),
        (r"PLAINTEXT://|CONTROLLER://", "LISTENER://"),
        (r"console-consumer-\d+", "GROUP"),
        (r"(?<![\w-])[A-Za-z0-9_-]{22}(?![\w-])", "ID"),
        (r"(127\.0\.0\.1|localhost)\s+\d{4,5}\b", "HOST PORT"),
        (r"DEFAULT_CONFIG:num\.io\.threads=\d+", "DEFAULT_CONFIG:num.io.threads=N"),
        (r"consumer-[\w-]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "MEMBER"),
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.:,]\d+)?", "TIME"),
        (r"\b1[6-9]\d{11}\b", "MS"),
        (r"-?\d+\.\d+(E-?\d+)?", "NUMBER"),
        (r"(\w+(Exception|Error)\b).*", r"\1"),
        (r"(Error while executing [\w ]+ command) ?: .*", r"\1"),
        (r"Epoch: \d+", "Epoch: N"),
        # Broker settings that a group's settings come from, which Kafka 4.4 names and 4.1 does not.
        (r", DEFAULT_CONFIG:group\.(consumer|share|streams)\.[^,}]+", ""),
        (r"\{DEFAULT_CONFIG:group\.(consumer|share|streams)\.", r"{DEFAULT_CONFIG:\1."),
        (r"for partition \S+ at offset \d+ among", "for partition P at offset N among"),  # whichever was looked at last
        (r"(Could not (upgrade|downgrade|disable) \S+?( to \d+)?)\. .*", r"\1"),
        (r"[ \t]+", " "),
    )
)


def normalised(text: str, *, numbers: bool = True) -> list[str]:
    """The lines without what must differ, sorted; without `numbers` too, where they vary from run to run."""
    lines = []
    for line in text.splitlines():
        if re.match(r"\s+(at |\.\.\. \d+ more)|Caused by:|SLF4J:", line):
            continue
        with contextlib.suppress(ValueError):
            line = json.dumps(_sorted(json.loads(line)), sort_keys=True)
        for pattern, replacement in _RULES:
            line = pattern.sub(replacement, line)
        if not numbers:
            line = re.sub(r"\d+", "N", line)
        if line.strip():
            lines.append(line.strip())
    return sorted(lines)


def _sorted(value: Any) -> Any:
    """Return a document without the sizes of logs, its lists sorted."""
    if isinstance(value, list):
        return sorted(map(_sorted, value), key=repr)
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items() if key != "size"}
    return value


def arguments_on(side: Side, call: Call) -> list[str]:
    """Return the call's arguments for this side."""
    return [
        text.replace("{bootstrap}", side.bootstrap).replace("{dir}", str(side.directory)) for text in call.arguments
    ]


def run_alone(side: Side, call: Call) -> Ended:
    """A call in a separate JVM."""
    done = subprocess.run(_command(side, call), input=call.text, capture_output=True, text=True, timeout=ONE_CALL_S)
    return Ended(done.returncode, done.stdout, done.stderr)


def run_until(side: Side, call: Call, text: str) -> Ended:
    """A call in a separate JVM, killed as soon as it printed this; -1 if it ends or ONE_CALL_S pass before that."""
    said: list[str] = []
    with subprocess.Popen(
        _command(side, call), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        watch = threading.Timer(ONE_CALL_S, process.kill)
        watch.start()
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if text in line:
                break
        watch.cancel()
        process.kill()
    return Ended(0 if said and text in said[-1] else -1, "".join(said), "")


def _command(side: Side, call: Call) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={side.directory / 'quiet.yaml'}"
    return ["java", HEAP, logging, "-cp", f"{jars()}/*", MAIN_CLASSES[call.tool], *arguments_on(side, call)]


def run(runner: ToolRunner, side: Side, call: Call) -> Ended:
    """A call in the JVM that its tool needs."""
    if call.tool in RUNS_UNTIL:
        return run_until(side, call, RUNS_UNTIL[call.tool])
    if call.tool in EXITS_BY_ITSELF:
        return run_alone(side, call)
    return runner.run(MAIN_CLASSES[call.tool], *arguments_on(side, call), text=call.text)


def compare(calls: Iterable[Call], directory: Path) -> Iterator[Compared]:
    """Plays the calls on both."""
    write_files(str(directory))
    (directory / "quiet.yaml").write_text(QUIET)
    ours = {"listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS}
    with ApacheKafka(directory / "kafka") as kafka, Broker(ours) as broker, ToolRunner(directory) as runner:
        sides = (Side(kafka.bootstrap, directory), Side(broker.bootstrap_servers, directory))
        for call in calls:
            yield Compared(call, *(run(runner, side, call) for side in sides))


def page(compared: Sequence[Compared]) -> str:
    """docs/tools.md."""
    by_tool: dict[str, list[Compared]] = defaultdict(list)
    for one in compared:
        by_tool[one.call.tool].append(one)
    tools = ", ".join(f"`{tool}`" for tool in sorted(by_tool))
    wrapped = textwrap.wrap(f"Tested, with {len(compared)} calls in all: {tools}.", 140, break_on_hyphens=False)
    lines = [*OPENING.splitlines(), "", *wrapped, ""]
    lines += ["All results are the same, except:", "", "| Tool | Calls | Difference |", "| --- | --- | --- |"]
    for tool, ones in sorted(by_tool.items()):
        different = sum(bool(one.differences or one.call.on_purpose) for one in ones)
        reasons = list(dict.fromkeys(one.call.on_purpose for one in ones if one.call.on_purpose))
        lines += [f"| `{tool}` | {different} | {'; '.join(reasons)} |"] if different else []
    lines += ["", "Not tested:", ""]
    lines += [f"- {names}: {why}" for names, why in NOT_CALLED.items()]
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """Exit status 1 where a call ends otherwise and should not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write docs/tools.md")
    parser.add_argument("--only", nargs="+", default=[], metavar="TOOL", help="calls of these tools")
    options = parser.parse_args(arguments)
    wanted = [call for call in STORY if not options.only or call.tool in options.only]
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for one in compare(wanted, Path(directory)):
            found.append(one)
            for difference in one.differences:
                print(f"{one.call.tool} {' '.join(one.call.arguments)}: {difference}")
    if options.write and not options.only:
        PAGE.write_text(page(found), encoding="utf-8")
    return 1 if any(one.differences for one in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

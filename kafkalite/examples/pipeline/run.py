"""Run the example: start the parts, send visits, compare the results, and stop the parts.

    brokers, registry, schemas, topic ─▶ mirror ─▶ streaming load, a failing consumer ─▶ front ends ─▶ all arrived
      ─▶ dead letters are counted ─▶ reader and batch load ─▶ audit

Thread rule: one thread.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.avro import RegistryClient
from kafkalite.client import Client
from kafkalite.errors import KafkaError
from kafkalite.examples.pipeline.follow_up import GROUP
from kafkalite.examples.pipeline.processes import Part, Parts
from kafkalite.examples.pipeline.stages import StageSampler
from kafkalite.examples.pipeline.visits import (
    JAVA_OPTIONS,
    KILLED_WHILE_SENDING,
    MASTER,
    PARTITIONS,
    READERS,
    SUBJECT,
    TOPIC,
    WARM_UP,
    WINDOW_S,
    schema,
)
from kafkalite.failures import Ledger
from kafkalite.failures.rows import UNDECIDED
from kafkalite.load.manifest import Target
from kafkalite.mirror.reports import read_reports
from kafkalite.model import OFFSET_LATEST, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalite.examples.pipeline.stages import Kill, Samples

PIPELINE: Final = "kafkalite.examples.pipeline"
MIRROR: Final = "offline"
SERVERS: Final = ("web1", "web2")
WARM_UP_RATE: Final = 100.0
"""Visits per second, for one second, before the others: a query's first batch starts Spark's Python workers."""
SPARK: Final = ("--master", MASTER, "--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}")
QUICK: Final[dict[str, Any]] = {"connect_timeout_s": 1.0, "request_timeout_s": 2.0, "retry_timeout_s": 1.0}
LOCAL: Final = "kafka://127.0.0.1:0"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run.

    `folder`      the directory for everything: brokers' data, loaded files, output of the parts
    `rate`        visits per second of each server
    `seconds`     how long visits are sent
    `timeout_s`   the limit for the whole run
    `kills`       parts to kill (SIGKILL) once and to restart, of KILLS
    """

    folder: Path
    rate: float = 1000.0
    seconds: float = 45.0
    timeout_s: float = 300.0
    kills: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The results of a run."""

    plan: Plan
    sent: dict[str, int]
    """Visits sent by each server."""
    stream: Path
    batch: Path
    began_ms: int
    """When the servers started; older visits belong to the warm-up."""
    commits: list[dict[str, Any]]
    """The commits of the streaming load, as `stream` logged them."""
    batch_summary: dict[str, Any]
    audit: dict[str, Any]
    caught_up_s: float
    """Time from sending the last visit until the streaming load had all visits."""
    seconds: float
    letters: int = 0
    """Dead letters of the failing consumer."""
    samples: Samples | None = None
    """Visits by stage over time; None if they were not sampled."""
    kills: tuple[Kill, ...] = ()


def run_pipeline(plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Run the pipeline. Raises PartFailed if a part fails or the time is over. All processes are ended in any case."""
    began = time.monotonic()
    logs = plan.folder / "logs"
    logs.mkdir()
    stream, batch = plan.folder / "stream", plan.folder / "batch"
    (commits := plan.folder / "commits.jsonl").touch()
    with contextlib.ExitStack() as stack:
        parts = stack.enter_context(Parts(logs, began + plan.timeout_s))
        live, offline, registry = start_servers(parts, plan.folder)
        killer = Killer(parts, live, offline, registry, say)
        say(f"live broker {live}, offline broker {offline}, registry {registry}")
        parts.start("mirror", "kafkalite", "mirror", *mirror_options(live, offline))
        parts.wait_for(lambda: has_topic(offline), "the mirror has created the topic")
        options = ("--registry", registry, "--to", str(stream), "--log", str(commits))
        parts.start_server("stream", f"{PIPELINE}.stream", "-b", offline, *options)
        parts.start("follow-up", f"{PIPELINE}.follow_up", "-b", live, "--registry", registry)
        sampler = stack.enter_context(StageSampler(counters(stack, live, offline, stream)))
        say("the mirror and the streaming load are ready; a consumer handles visits and fails for some of them")

        def front_end(server: str, rate: float, seconds: float, *more: str) -> Part:
            size = ("--server", server, "--rate", str(rate), "--seconds", str(seconds))
            places = ("-b", live, "--registry", registry, "--ready-file", str(ready_file(plan, server)))
            return parts.start(server, f"{PIPELINE}.front_end", *places, *size, *more)

        fronts = [front_end(WARM_UP, WARM_UP_RATE, 1.0)]
        parts.wait_for(lambda: loaded_rows(stream) >= WARM_UP_RATE, "the first visits are loaded")
        began_ms = time.time_ns() // 1_000_000
        say("the first visits are loaded; now two servers send visits")
        fronts += [front_end(SERVERS[0], plan.rate, plan.seconds, "--old")]
        fronts += [front_end(server, plan.rate, plan.seconds) for server in SERVERS[1:]]
        killer.kill_while_sending(plan)
        sent = {front.name: json.loads(parts.result(front))["sent"] for front in fronts}
        total, ended = sum(sent.values()), time.monotonic()
        say(f"{total} visits were sent")
        parts.wait_for(lambda: loaded_rows(stream) >= total, f"{total} visits are loaded")
        caught_up_s = time.monotonic() - ended
        say(f"the streaming load had loaded all visits {caught_up_s:.1f} s later")
        parts.wait_for(lambda: is_followed_up(live), "each visit is handled or is a dead letter")
        letters = count_letters(parts, live)
        say(f"{letters} visits became dead letters")
        decoding = ("--topics", TOPIC, "--avro", registry, "--read-committed", "--json", "-q", *SPARK)
        reading = parts.start("reader", f"{PIPELINE}.reader", "-b", live, "--count", str(total))
        loading = parts.start("load", "kafkalite", "load", "-b", offline, "--to", str(batch), *decoding)
        if "reader" in plan.kills:
            reading = killer.kill_when(lambda: reading.process.poll() is not None or has_members(live), "reader")
        if "load" in plan.kills:
            loading = killer.kill_when(batch.exists, "load")
        batch_summary = json.loads(parts.result(loading))
        say(f"the batch load has loaded {batch_summary['records']} visits")
        taken = json.loads(parts.result(reading))["taken"]
        say(f"a consumer group has read {taken} visits")
        parts.wait_for(windows_are_closed(time.time()), "the last window is closed")
        audit = run_audit(parts, live, offline, {"stream": stream, "batch": batch})
    rows = [json.loads(line) for line in commits.read_text(encoding="utf-8").splitlines()]
    return Outcome(
        plan,
        sent,
        stream,
        batch,
        began_ms,
        rows,
        batch_summary,
        audit,
        caught_up_s,
        time.monotonic() - began,
        letters,
        sampler.samples,
        tuple(killer.kills),
    )


class Killer:
    """Kills parts and starts them again. `kills` are the kills so far."""

    def __init__(self, parts: Parts, live: str, offline: str, registry: str, say: Callable[[str], None]) -> None:
        self.kills: list[Kill] = []
        self._parts = parts
        self._say = say
        self._ports = {  # the others find them at their old ports
            "live": ("--listeners", f"kafka://{live}"),
            "offline": ("--listeners", f"kafka://{offline}"),
            "registry": ("--port", registry.rpartition(":")[2]),
        }

    def kill_while_sending(self, plan: Plan) -> None:
        """Kill the parts of KILLED_WHILE_SENDING that the plan names, evenly over the time of sending.

        The first kill waits until each server has sent visits, because a program that starts while its broker is down
        fails.
        """
        wanted = [name for name in KILLED_WHILE_SENDING if name in plan.kills]
        if not wanted:
            return
        files = [ready_file(plan, name) for name in SERVERS]
        self._parts.wait_for(lambda: all(file.exists() for file in files), "the servers send visits")
        for name in wanted:
            self.kill_when(is_over(plan.seconds / (len(wanted) + 1)), name)

    def kill_when(self, due: Callable[[], bool], name: str) -> Part:
        """Kill a part once `due` returns true, and return the restarted part. Raises PartFailed as
        Parts.wait_for does.
        """
        self._parts.wait_for(due, f"{name} is killed")
        part, killed = self._parts.kill_and_restart(name, *self._ports.get(name, ()))
        self.kills.append(killed)
        self._say(f"{name} was killed and started again")
        return part


def counters(stack: contextlib.ExitStack, live: str, offline: str, stream: Path) -> dict[str, Callable[[], int]]:
    """Return for each stage a function that counts its visits. The function raises KafkaError or ClientError while a
    broker is down.

    `stack` closes the clients of the functions.
    """
    client, copies = (stack.enter_context(Client(address, **QUICK)) for address in (live, offline))
    places = dict.fromkeys((TopicPartition(TOPIC, number) for number in range(PARTITIONS)), OFFSET_LATEST)
    return {
        "live": lambda: sum(row.offset for row in client.list_offsets(places).values()),
        "mirror": lambda: sum(
            sum(report.offsets.values()) for report in read_reports(copies, MIRROR) if report.topic == TOPIC
        ),
        "stream": lambda: loaded_rows(stream),
        "follow-up": lambda: sum(row.offset for row in client.groups.committed(GROUP).values()),
    }


def ready_file(plan: Plan, server: str) -> Path:
    """Return the file that a web server writes once it has sent visits."""
    return plan.folder / "logs" / f"{server}.ready"


def start_servers(parts: Parts, folder: Path) -> tuple[str, str, str]:
    """Start brokers and registry, and create topic and schemas. Return both brokers' addresses and the
    registry's URL.
    """
    addresses = [
        parts.start_server(name, "kafkalite", "start", "--data-dir", str(folder / name), "--listeners", LOCAL)
        for name in ("live", "offline")
    ]
    live, offline = addresses
    registry = "http://" + parts.start_server("registry", "kafkalite", "registry", "-b", live, "--port", "0")
    with Client(live) as client:
        client.admin.create_topic(TOPIC, PARTITIONS)
    with RegistryClient(registry) as schemas:
        for old in (True, False):
            schemas.register(SUBJECT, schema(old=old))
    return live, offline, registry


def mirror_options(live: str, offline: str) -> tuple[str, ...]:
    """Return flags for `kafkalite mirror`: short transactions, for low latency."""
    brokers = ("--from", live, "--to", offline, "--name", MIRROR)
    return (*brokers, "--topics", TOPIC, "--commit-interval", "0.5", "--refresh", "5", "-q")


def has_topic(address: str) -> bool:
    """Return whether the topic of visits exists."""
    with Client(address) as client:
        try:
            client.topic(TOPIC)
        except KafkaError:
            return False
    return True


def count_letters(parts: Parts, live: str) -> int:
    """Return the number of visits that became dead letters, as `kafkalite letters count` reports it."""
    counting = parts.start("letters", "kafkalite", "letters", "count", GROUP, "-b", live, "--json")
    return sum(json.loads(line)["letters"] for line in parts.result(counting).splitlines())


def run_audit(parts: Parts, live: str, offline: str, loads: dict[str, Path]) -> dict[str, Any]:
    """Return the report of `kafkalite audit` over all stages."""
    brokers = ("--live", live, "--offline", offline, "--mirror", MIRROR, "--consumer", READERS, "--topics", TOPIC)
    places = [text for name, path in loads.items() for text in ("--loaded", f"{name}={path}")]
    auditing = parts.start("audit", "kafkalite", "audit", *brokers, *places, "--grace", "0", "--json", "-q")
    report: dict[str, Any] = json.loads(parts.result(auditing, statuses=(0, 1)))
    return report


def has_members(address: str) -> bool:
    """Return whether the group of readers has assigned its partitions."""
    with Client(address) as client:
        try:
            return client.groups.describe(READERS).state == "Stable"
        except KafkaError:
            return False


def is_followed_up(address: str) -> bool:
    """Return whether the failing consumer has reached the end of the visits, and no retry is pending."""
    with Client(address) as client:
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        committed = client.groups.committed(GROUP, require_stable=True)
        ends = client.list_offsets(dict.fromkeys(places, OFFSET_LATEST))
        if any(key not in committed or committed[key].offset < ends[key].offset for key in places):
            return False
        ledger = Ledger(client, GROUP)
        ledger.refresh()
        return all(row.state not in UNDECIDED for _, row in ledger.records())


def loaded_rows(path: Path) -> int:
    """Return the number of records that readers of a loaded directory see."""
    return sum(file.rows for file in Target(path).refresh().files.values())


def is_over(duration_s: float) -> Callable[[], bool]:
    """Return a function that returns whether this time has passed since now."""
    end = time.monotonic() + duration_s
    return lambda: time.monotonic() >= end


def windows_are_closed(now_s: float) -> Callable[[], bool]:
    """Return a function that returns whether the audit windows that are open at `now_s` have ended."""
    end = (now_s // WINDOW_S + 1) * WINDOW_S
    return lambda: time.time() > end

"""Define what is measured: the cases, the driver of each system in each series, and the size of each profile.

    profile ─▶ sessions of each repeat (system, synchronous or not) ─▶ cases (kind, acknowledgement, batch, size, ...)

A *session* is one start of one system: a warm-up, then its cases in order. A *case* is one call of a driver, or several
at once. A consume case reads what the case named in `after` stored.

Message counts are not defined here. The first repeat determines how many messages a system handles in the profile's
seconds, and later repeats send as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks.head_to_head.kafkas import Kafka, Kafkalite, NullBroker
from benchmarks.head_to_head.queues import ActiveMQ, Nats, RabbitMQ, Redis

if TYPE_CHECKING:
    from benchmarks.head_to_head.system import System

SYSTEMS: dict[str, type[System]] = {
    system.name: system for system in (Kafkalite, NullBroker, Kafka, RabbitMQ, ActiveMQ, Nats, Redis)
}
"""In the order of the tables; kafkalite is what the others are compared with, the null broker is the ceiling."""

NATIVE: dict[str, Sequence[str]] = {
    "kafkalite": ("kafka-c",),
    "null-broker": ("kafka-c",),
    "apache-kafka": ("kafka-c",),
    "rabbitmq": ("rabbitmq-c",),
    "activemq": ("activemq-java",),
    "nats": ("nats-c", "nats-raw"),
    "redis": ("redis-c",),
}
"""System → its fastest client; the first of these that can be built."""
PYTHON: dict[str, Sequence[str]] = {
    "kafkalite": ("kafka-python-user",),
    "null-broker": ("kafka-python-user",),
    "apache-kafka": ("kafka-python-user",),
    "rabbitmq": ("rabbitmq-pika",),
    "activemq": ("activemq-stomp",),
    "redis": ("redis-py",),
}
"""System → the client that a Python user would take."""
BARE: dict[str, Sequence[str]] = dict.fromkeys(("kafkalite", "null-broker", "apache-kafka"), ("kafka-bare",))
"""Kafka's protocol from a bare socket, as JetStream is driven: no client library is the limit."""
CLASSIC: dict[str, Sequence[str]] = {"kafkalite": ("classic-c",)}
"""Kafka 0.7's protocol from C, as the paper had it: nothing is acknowledged."""
CLASSIC_PYTHON: dict[str, Sequence[str]] = {"kafkalite": ("classic",)}
"""The same with kafkalite.classic, from Python."""
SERIES = {"native": NATIVE, "bare": BARE, "python": PYTHON, "classic": CLASSIC, "classic-python": CLASSIC_PYTHON}
SHARES_A_QUEUE = frozenset({"rabbitmq", "activemq"})
"""The broker pushes a queue's messages to whichever consumer is there: several have no share that could be counted."""

PAPER_MESSAGE_SIZE = 200
PAPER_BATCHES = (1, 50)
PAPER_MESSAGE_COUNT = 10_000_000
WINDOW = 5
"""Batches in flight where not one: what Kafka's clients allow an idempotent producer."""
LATENCY_RATES = (1_000, 10_000, 50_000)
SIZES = (100, 1_000, 10_000, 100_000)
BATCH_SIZE_MAX = 1_000_000
"""Bytes of a batch at most: what brokers take without being told."""


@dataclass(frozen=True)
class Case:
    """One measurement of one system. A `count_max` of 0 means the profile's."""

    name: str
    kind: str
    """produce, consume, latency, or both (produce and consume at once)."""
    series: str = "native"
    ack: str = "one"
    batch: int = 50
    in_flight: int = WINDOW
    size: int = PAPER_MESSAGE_SIZE
    clients: int = 1
    rate: int = 0
    after: str = ""
    backlog: int = 0
    factor: int = 1
    """Times as many messages as the profile's seconds need."""


@dataclass(frozen=True)
class Profile:
    """How much is measured. `seconds` is the target duration of a case; `latency_s` of one rate in the latency test."""

    name: str
    repeat_count: int
    seconds: float
    latency_s: float
    warm_up_s: float
    idle_s: float
    count_max: int
    cases: Sequence[Case]
    synchronous_cases: Sequence[Case] = ()
    count: int = 0
    """Messages of every case; 0 to find out."""
    systems: Sequence[str] = field(default_factory=lambda: tuple(SYSTEMS))


def produce(ack: str, batch: int, **more: object) -> Case:
    """Return a produce case. A batch of one message is sent alone in flight, as in the paper and by a caller that
    waits."""
    case = Case(f"produce-{ack}-{batch}", "produce", ack=ack, batch=batch, in_flight=1 if batch == 1 else WINDOW)
    return replace(case, **more)  # type: ignore[arg-type]


def paper_cases() -> list[Case]:
    """Return the paper's producer test, the same with acknowledgements, and its consumer test."""
    cases = [produce(ack, batch) for ack in ("none", "one") for batch in PAPER_BATCHES]
    cases.append(Case("consume", "consume", after="produce-one-50"))
    for series in ("classic", "classic-python"):
        cases += [
            produce("none", batch, name=f"produce-none-{batch}-{series}", series=series) for batch in PAPER_BATCHES
        ]
        cases.append(Case(f"consume-{series}", "consume", series=series, after=f"produce-none-50-{series}"))
    return cases


def bare_cases() -> list[Case]:
    """Return the acknowledged producer test and the consumer test without a client library."""
    cases = [produce("one", batch, name=f"produce-one-{batch}-bare", series="bare") for batch in PAPER_BATCHES]
    return [*cases, Case("consume-bare", "consume", series="bare", after="produce-one-50-bare")]


def python_cases() -> list[Case]:
    """Return the acknowledged tests with the client of a Python user."""
    cases = [produce("one", 50, name="produce-one-50-python", series="python")]
    return [*cases, Case("consume-python", "consume", series="python", after="produce-one-50-python")]


def latency_cases(rates: Sequence[int] = LATENCY_RATES) -> list[Case]:
    return [Case(f"latency-{rate}", "latency", rate=rate) for rate in rates]


def synchronous_cases() -> list[Case]:
    """Return cases acknowledged from the disk: one message, a batch, and eight producers that could share a flush."""
    eight = produce("disk", 1, name="produce-disk-1-of-8", clients=8)
    return [produce("disk", 1), produce("disk", 50), eight]


def full_cases() -> list[Case]:
    """Return cases with other sizes, more clients, produce and consume at once, a lagging consumer, and a growing
    backlog."""
    cases = []
    for size in SIZES:
        batch = max(1, min(50, BATCH_SIZE_MAX // size // 2))
        name = f"produce-size-{size}"
        cases.append(Case(name, "produce", batch=batch, size=size))
        cases.append(Case(f"consume-size-{size}", "consume", size=size, after=name))
    for clients in (2, 4):
        cases.append(produce("one", 50, name=f"produce-of-{clients}", clients=clients))
        cases.append(Case(f"consume-of-{clients}", "consume", clients=clients, after=f"produce-of-{clients}"))
    cases.append(Case("both-at-once", "both", backlog=1))
    cases.append(Case("both-far-behind", "both", backlog=4))
    cases.append(produce("one", 50, name="growing-backlog", factor=8))
    return cases


def profile(name: str) -> Profile:
    """Return the profile quick, default, full or paper."""
    paper, python = paper_cases(), python_cases()
    if name == "quick":
        quick = [case for case in paper if case.name in {"produce-one-1", "produce-one-50", "consume"}]
        return Profile("quick", 1, 0.4, 1.0, 0.2, 0.1, 100_000, [*quick, *latency_cases((1_000,))])
    common = [*paper, *bare_cases(), *python, *latency_cases()]
    if name == "default":
        return Profile("default", 3, 3.0, 5.0, 1.5, 2.0, 3_000_000, common, synchronous_cases())
    if name == "full":
        return Profile("full", 5, 5.0, 20.0, 3.0, 2.0, 8_000_000, [*common, *full_cases()], synchronous_cases())
    if name == "paper":
        cases = [case for case in paper if case.name != "produce-one-1"]
        return Profile("paper", 1, 0, 0, 3.0, 2.0, 0, cases, count=PAPER_MESSAGE_COUNT)
    raise ValueError(f"unknown profile {name!r}")


def only(chosen: Profile, names: Sequence[str]) -> Profile:
    """Return a profile with only these cases, and those that store what they read. Raises ValueError for an unknown
    one."""
    every = [*chosen.cases, *chosen.synchronous_cases]
    if unknown := sorted(set(names) - {case.name for case in every}):
        raise ValueError(
            f"no case {', '.join(unknown)} in this profile; choose from {', '.join(c.name for c in every)}"
        )
    wanted = {*names, *(case.after for case in every if case.name in names)}
    return replace(
        chosen,
        cases=[case for case in chosen.cases if case.name in wanted],
        synchronous_cases=[case for case in chosen.synchronous_cases if case.name in wanted],
    )

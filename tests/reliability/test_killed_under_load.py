"""A1 to A6: the process ends at a bad moment under load, and nothing acknowledged may be lost, doubled or moved.

Each test runs the same load with 0 kills as its control. The small counts are the default, the quick counts of the plan
are marked slow.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.kit.checkers.ledger import Ledger, Verdict, compare_reads
from tests.kit.harness.load import Producers, create_topic, read_all
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import BrokerProcess, wait_until

PARTITION_COUNT = 8
ACKNOWLEDGED_COUNT_MIN = 500
RECOVERY_TIMEOUT_S = 30
MakeBroker = Callable[..., BrokerProcess]
Fault = Callable[[BrokerProcess, random.Random], None]


def slow(count: int) -> object:
    return pytest.param(count, marks=pytest.mark.slow)


def kill(broker: BrokerProcess, chance: random.Random) -> None:
    time.sleep(chance.uniform(0.1, 0.7))
    broker.kill()
    broker.start(timeout_s=RECOVERY_TIMEOUT_S)


def stop(broker: BrokerProcess, chance: random.Random) -> None:
    time.sleep(chance.uniform(0.1, 0.7))
    broker.stop()
    broker.start(timeout_s=RECOVERY_TIMEOUT_S)


def mix(broker: BrokerProcess, chance: random.Random) -> None:
    """Kill, stop or freeze; half of the time again within 0.3 s of the new start, recovery included."""
    time.sleep(chance.uniform(0, 0.3))
    kind = chance.choice(["kill", "stop", "freeze", "kill-while-starting"])
    assert broker.process is not None
    if kind == "freeze":
        broker.process.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(0, 0.3))
        broker.process.send_signal(signal.SIGCONT)
        return
    if kind == "stop":
        broker.stop()
    else:
        broker.kill()
    if kind == "kill-while-starting":
        broker.launch()
        time.sleep(chance.uniform(0, 0.3))
        broker.kill()
    broker.start(timeout_s=RECOVERY_TIMEOUT_S)


def run_under_load(
    broker: BrokerProcess,
    fault: Fault,
    fault_count: int,
    seed: int,
    *,
    topic_configs: dict[str, str] | None = None,
    doubles_allowed: bool = False,
    order_required: bool = True,
    **load: object,
) -> Verdict:
    """Load, faults with progress between them, drain; then two reads with a clean restart in between."""
    chance = random.Random(seed)
    broker.start()
    create_topic(broker.port, "load", PARTITION_COUNT, topic_configs)
    ledger = Ledger()
    producers = Producers(broker.bootstrap, "load", ledger, PARTITION_COUNT, seed=seed, **load).start()  # type: ignore[arg-type]
    for _ in range(fault_count):
        before = ledger.acknowledged_count
        wait_until(lambda before=before: ledger.acknowledged_count > before, 30, "progress between faults")
        fault(broker, chance)
    wait_until(lambda: ledger.acknowledged_count >= ACKNOWLEDGED_COUNT_MIN, 30, "enough acknowledged")
    producers.stop()
    first = read_all(broker.port, "load", PARTITION_COUNT)
    broker.stop()
    broker.start()
    second = read_all(broker.port, "load", PARTITION_COUNT)
    verdict = ledger.judge(first, doubles_allowed=doubles_allowed, order_required=order_required)
    assert not ledger.failures, f"given up by the client: {ledger.failures}"
    again = compare_reads(first, second)
    assert again, str(again)
    assert verdict, f"seed {seed}: {verdict}"
    return verdict


@pytest.mark.parametrize("kill_count", [slow(0), 2, slow(20)])
@pytest.mark.scenario("A1")
def test_killed_under_idempotent_load(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    run_under_load(make_broker(), kill, kill_count, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kill_count", [slow(0), 2, slow(20)])
@pytest.mark.scenario("A2")
def test_killed_while_segments_roll(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    broker = make_broker()
    run_under_load(broker, kill, kill_count, seed, topic_configs={"segment.bytes": "65536"}, sizes=(400, 800))
    segments = list(broker.data_dir.glob("load-*/*.log"))
    assert len(segments) > PARTITION_COUNT, "no segment rolled: the test showed nothing"


@pytest.mark.slow
@pytest.mark.parametrize("kill_count", [1, slow(5)])
@pytest.mark.parametrize("codec", sample(["zstd", "gzip", "snappy", "lz4"], 1))
@pytest.mark.scenario("A3")
def test_killed_with_codec(make_broker: MakeBroker, seed: int, codec: str, kill_count: int) -> None:
    run_under_load(make_broker(), kill, kill_count, seed, settings={"compression.type": codec}, sizes=(0, 1, 300))


@pytest.mark.slow
@pytest.mark.parametrize("kill_count", [slow(0), 1, slow(5)])
@pytest.mark.scenario("A3")
def test_killed_with_empty_tiny_and_large_records(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    broker = make_broker(settings={"message.max.bytes": "4194304"})
    sizes = (0, 1) * 24 + (1 << 20,)
    run_under_load(broker, kill, kill_count, seed, sizes=sizes, rate_per_s=400)


@pytest.mark.slow
@pytest.mark.parametrize("kill_count", [slow(0), 1, slow(10)])
@pytest.mark.scenario("A4")
def test_killed_without_idempotence(make_broker: MakeBroker, seed: int, kill_count: int) -> None:
    settings = {"enable.idempotence": False}
    run_under_load(make_broker(), kill, kill_count, seed, settings=settings, doubles_allowed=True, order_required=False)


@pytest.mark.parametrize("stop_count", [1, slow(10)])
@pytest.mark.scenario("A5")
def test_stopped_cleanly_under_load(make_broker: MakeBroker, seed: int, stop_count: int) -> None:
    broker = make_broker()

    def stop_and_look(broker: BrokerProcess, chance: random.Random) -> None:
        time.sleep(chance.uniform(0.1, 0.7))
        broker.stop(timeout_s=30)
        assert (broker.data_dir / ".kafka_cleanshutdown").exists(), "no mark of a clean stop"
        broker.start()

    run_under_load(broker, stop_and_look, stop_count, seed)


@pytest.mark.slow
@pytest.mark.parametrize("fault_count", [3, slow(20)])
@pytest.mark.scenario("A6")
def test_killed_stopped_frozen_and_killed_while_starting(make_broker: MakeBroker, seed: int, fault_count: int) -> None:
    run_under_load(make_broker(), mix, fault_count, seed)

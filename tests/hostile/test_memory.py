"""One ceiling for all that clients make the broker hold: attacks of gigabytes, with a ceiling of a quarter of one."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from tests.hostile.bounds import HONEST_ROUNDS, MIB, WAIT_S
from tests.hostile.conftest import POPULACE
from tests.kit.hostile.families import Family, all_metadata, join, parked_fetch
from tests.kit.hostile.honest import HonestClient
from tests.kit.hostile.world import AUTHORISER, Watch, World, work_ends_after
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until

CEILING = 256 * MIB
LARGE = 80 * MIB
"""Of a request. It is held twice while it is copied out of its connection's buffer, which has to fit."""
ATTACK_S = 15.0
"""Longer than a frame may be unfinished while others need its memory."""

ATTACKS = (
    Family("joins with large metadata", lambda _s, _p: [join("hostile", LARGE)], connections=40, requests=1),
    Family("unfinished frames", lambda _s, _p: [join("hostile", LARGE)], connections=200, withheld=10 * MIB),
    Family("frames that are only announced", lambda _s, _p: [join("h", LARGE)], connections=200, withheld=LARGE - 9),
    Family("parked fetches", lambda _s, p: [parked_fetch(3000, p)], connections=3000, addresses=100),
    Family("unread answers", lambda _s, _p: [all_metadata()], connections=500, in_flight=1000, reads=False),
)


@pytest.fixture
def broker(world: World) -> Iterator[BrokerProcess]:
    settings = {
        **AUTHORISER,
        "broker.memory.max": str(CEILING),
        "metrics.listeners": f"http://127.0.0.1:{free_port()}",
        "max.connections": "10000",
    }
    broker = world.broker(settings)
    try:
        yield broker
    finally:
        world.forget(broker)


def metric(broker: BrokerProcess, name: str) -> float:
    port = str(broker.settings["metrics.listeners"]).rpartition(":")[2]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("family", ATTACKS, ids=lambda family: family.name)
def test_clients_hold_no_more_than_the_ceiling(broker: BrokerProcess, family: Family) -> None:
    with HonestClient(broker.port) as honest, family.flood(broker.port, 1, POPULACE) as flood:
        with Watch(broker.pid, guard=4 * CEILING) as watch:
            flood.begin_run(ATTACK_S, family.requests)
            served = honest.run(ATTACK_S, grace_s=WAIT_S, rounds_min=HONEST_ROUNDS)
            flood.end(ATTACK_S + WAIT_S)
        assert not watch.killed, broker.log()[-4000:]
        assert not served["unanswered"], served
        assert not served["refused"], served
        assert served["rounds"] >= HONEST_ROUNDS
        assert watch.peak <= CEILING + 256 * MIB, f"RssAnon {watch.peak >> 20} MiB"
        assert metric(broker, "kafkalite_memory_max_bytes") == CEILING
    assert work_ends_after(broker.pid, WAIT_S) is not None, "the work has not ended"

    def held() -> float:
        return metric(broker, 'kafkalite_memory_bytes{kind="frames"') + metric(
            broker, 'kafkalite_memory_bytes{kind="requests"'
        )

    wait_until(lambda: held() < MIB, WAIT_S, "what the attack held is given back")
    assert broker.alive, broker.log()[-4000:]


SMALL_CEILING = 16 * MIB


@pytest.mark.integration
def test_parked_fetches_fill_the_ceiling(world: World) -> None:
    """Another client is served meanwhile, and what they held is given back when their clients have gone: those that
    are not read, because there is no memory, too."""
    settings = {
        **AUTHORISER,
        "broker.memory.max": str(SMALL_CEILING),
        "metrics.listeners": f"http://127.0.0.1:{free_port()}",
    }
    attack = Family("parked fetches", lambda _s, p: [parked_fetch(3000, p)], connections=300, addresses=100)
    broker = world.broker(settings)

    def held() -> float:
        return metric(broker, "kafkalite_memory_bytes")

    try:
        with HonestClient(broker.port) as honest:
            with attack.flood(broker.port, 1, POPULACE) as flood:
                flood.begin_run(WAIT_S)
                wait_until(lambda: held() > SMALL_CEILING * 0.9, WAIT_S, "the attack reaches the ceiling")
                assert metric(broker, "kafkalite_memory_pauses_total") > 0
                served = honest.run(0.2, grace_s=WAIT_S, rounds_min=HONEST_ROUNDS)
                assert (served["unanswered"], served["refused"]) == ("", [])
                assert served["rounds"] >= HONEST_ROUNDS
                assert held() <= SMALL_CEILING + MIB
            wait_until(lambda: held() < MIB, WAIT_S, "what the attack held is given back")
            assert honest.run(0.2, grace_s=WAIT_S, rounds_min=HONEST_ROUNDS)["unanswered"] == ""
    finally:
        world.forget(broker)

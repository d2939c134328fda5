"""G4: sessions in ZooKeeper end, of brokers and consumers, by force and by silence.

Their owner nodes go in time, every partition is owned again, by one. Judged from ZooKeeper's own transaction log.
Also: a broker without ZooKeeper, and a broker whose id another one has taken.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.checkers import classic_checker as events
from tests.kit.checkers.classic_checker import GRACE_S, judge, running_s
from tests.kit.oracles import zookeeper_log
from tests.kit.processes.broker import BrokerDidNotStart, BrokerProcess, wait_until
from tests.kit.processes.classic_cluster import Cluster, Member, running_cluster
from tests.kit.processes.zookeeper import TICK_MS

pytestmark = pytest.mark.zookeeper

WAIT_S = 120.0
SESSION_MS = 1000
SERVER_STEPS_S = 2 * TICK_MS / 1000
CONFIG = {"zk_sync_time_ms": 100, "fetcher_backoff_ms": 20, "auto_commit_interval_ms": 200, "rebalance_retries_max": 50}
Fault = Callable[[], object]
KINDS = [
    "consumer expired",
    "consumer frozen",
    "consumer cut off",
    "consumer killed",
    "broker expired",
    "broker frozen",
]


class Expiry(NamedTuple):
    """One end of a session: how, which, since when."""

    kind: str
    session: int
    since_s: float


def fault_of(cluster: Cluster, kind: str, number: int) -> tuple[str, Fault, Fault]:
    """Whose session it is, what ends it in the end, and what brings the `number`-th consumer or broker back."""
    if kind.startswith("broker"):
        number %= len(cluster.brokers)
        process = cluster.brokers[number].process
        assert process is not None
        signals = partial(process.send_signal, signal.SIGSTOP), partial(process.send_signal, signal.SIGCONT)
        return f"/brokers/ids/{number}", *signals
    members = [member for member in cluster.members if member.sound]
    member = members[number % len(members)]
    begin, end = {
        "consumer expired": (member.freeze, member.thaw),  # never called
        "consumer frozen": (member.freeze, member.thaw),
        "consumer cut off": (member.cut, member.mend),
        "consumer killed": (member.kill, partial(join, cluster)),
    }[kind]
    return f"/consumers/g/ids/g_{member.name}", begin, end


def end_a_session(cluster: Cluster, kind: str, number: int) -> Expiry:
    """Ends a session, waits until it is gone, and brings its owner back."""
    path, begin, end = fault_of(cluster, kind, number)
    session = wait_until(lambda: cluster.session_of(path), WAIT_S, f"{path} is registered")
    expiry = Expiry(kind, session, time.time())
    by_force = kind.endswith("expired")
    if by_force:
        cluster.zookeeper.expire_session(session)
    else:
        begin()
    wait_until(lambda: cluster.session_of(path) != session, WAIT_S, f"{kind}: the session is over")
    if not by_force:
        end()
    return expiry


def join(cluster: Cluster) -> Member:
    return cluster.join(f"m{len(cluster.members)}")


@pytest.mark.parametrize("count", [2, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
@pytest.mark.scenario("G4")
def test_sessions_end(tmp_path: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)
    with running_cluster(tmp_path, (3, 2), session_ms=SESSION_MS, member_config=CONFIG) as cluster:
        for _ in range(3):
            join(cluster)
        wait_until(cluster.all_owned, WAIT_S, "a group of three")
        cluster.start_load(300)
        kinds = (KINDS * (count // len(KINDS) + 1))[:count]
        chance.shuffle(kinds)
        ended = []
        for kind in kinds:
            ended.append(end_a_session(cluster, kind, chance.randrange(100)))
            wait_until(cluster.all_owned, WAIT_S, f"every partition has an owner after: {kind}")
            wait_until(lambda: len(cluster.children("/brokers/ids")) == 2, WAIT_S, "both brokers are registered")
        cluster.finish()
        changes = zookeeper_log.read_changes(cluster.zookeeper.transaction_log)
        history = cluster.history()
        verdict = judge(history, cluster.session_s)
        late = [(expiry.kind, seconds) for expiry in ended if (seconds := too_long(cluster, expiry, changes, history))]
        print(f"{count} sessions ended ({dict(Counter(kinds))}); {verdict}")
        assert verdict, str(verdict)
        assert not late, late
        assert verdict.given_count > min(500, 100 * count)


def too_long(
    cluster: Cluster, expiry: Expiry, changes: list[zookeeper_log.Change], history: list[events.Event]
) -> float | None:
    """Seconds until ZooKeeper ended the session, and its nodes with it, if that is more than it may be."""
    end = next(change for change in changes if change.kind == zookeeper_log.END and change.session == expiry.session)
    stalls = [event for event in history if isinstance(event, events.Stalled) and event.consumer == events.ZOOKEEPER]
    seconds = running_s(expiry.since_s, end.time_s, stalls)
    return seconds if seconds > cluster.session_s + GRACE_S + SERVER_STEPS_S else None


@pytest.mark.slow
def test_zookeeper_that_is_away_stops_neither_producers_nor_consumers_nor_brokers(tmp_path: Path) -> None:
    """Sessions are long enough that none expires before ZooKeeper is back."""
    with running_cluster(tmp_path, (2, 1), session_ms=20_000, member_config=CONFIG) as cluster:
        member = join(cluster)
        wait_until(cluster.all_owned, WAIT_S, "a group of one")
        cluster.start_load(300)
        wait_for_more(member, 100)
        cluster.stop_zookeeper()
        sent = {load.name: len(load.sent) for load in cluster.loads}
        wait_for_more(member, 300)
        assert all(len(load.sent) > sent[load.name] for load in cluster.loads if load.is_alive())
        assert not any(load.refused for load in cluster.loads)
        cluster.start_zookeeper()
        cluster.finish()
        verdict = judge(cluster.history(), cluster.session_s)
        assert verdict, str(verdict)
        assert verdict.repeated_count == 0
        assert cluster.lost_sends()[1] == 0


def wait_for_more(member: Member, count: int) -> None:
    target = member.given_count() + count
    wait_until(lambda: member.given_count() >= target, WAIT_S, "more was handed out", 0.05)


@pytest.mark.slow
def test_id_that_another_broker_has_is_fatal_and_said(tmp_path: Path) -> None:
    with running_cluster(tmp_path, (1, 1), session_ms=SESSION_MS) as cluster:
        first, second = cluster.brokers
        second.kill()
        other = BrokerProcess(tmp_path / "other", {**second.settings, "node.id": "0"}, port=second.port)
        with pytest.raises(BrokerDidNotStart) as refused:
            other.start()
        assert refused.value.status == 2
        assert "broker id 0 is already registered" in refused.value.log
        # The id is taken while its broker sleeps: two must not answer for one.
        assert first.process is not None
        first.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: cluster.session_of("/brokers/ids/0") is None, WAIT_S, "the session is over")
        cluster.look.create("/brokers/ids/0", b"thief:10.0.0.1:9", ephemeral=True)
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(WAIT_S) == 1
        assert "broker id 0 is already registered" in first.log()
        assert cluster.look.get("/brokers/ids/0")[0] == b"thief:10.0.0.1:9"

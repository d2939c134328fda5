"""Groups of 0.7 consumers and their brokers as processes: the documents' examples, and ten bad minutes.

What happened is read afterwards from ZooKeeper's transaction log, the segment files and the consumers' notes, and
judged by `tests.kit.checkers.classic_checker`. `KAFKALITE_STORM_S` sets the duration of the slow test.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.kit.checkers import classic_checker as events
from tests.kit.checkers.classic_checker import GRACE_S, judge
from tests.kit.harness.classic_storm import WEIGHTS, Storm
from tests.kit.oracles import zookeeper_log
from tests.kit.processes.broker import wait_until
from tests.kit.processes.classic_cluster import Cluster, running_cluster, takeover_s
from tests.kit.processes.zookeeper import TICK_MS

pytestmark = pytest.mark.zookeeper

WAIT_S = 120.0
QUICK_CONFIG = {"zk_sync_time_ms": 200, "fetcher_backoff_ms": 50, "auto_commit_interval_ms": 500}
SERVER_STEPS_S = 2 * TICK_MS / 1000
"""ZooKeeper looks for sessions that are over once a tick, and rounds their end up to one."""
MESSAGES_MIN = 500
SILENCE_S_MAX = 60.0
"""Somebody is always sound, so that messages come out; what a loaded machine may take is allowed for generously."""


def progress(cluster: Cluster, count: int) -> None:
    """Wait until `count` more messages were handed out."""
    target = cluster.given_count() + count
    wait_until(lambda: cluster.given_count() >= target, WAIT_S, f"{count} more messages handed out", 0.05)


@pytest.mark.slow
@pytest.mark.scenario("0.7")
def test_documents_groups_and_kill_9_of_a_consumer(tmp_path: Path) -> None:
    """Of five partitions two consumers have [p0 p1 p2] and [p3 p4], two with four streams each [p0 ... p3] and [p4]."""
    with running_cluster(tmp_path, (3, 2), member_config=QUICK_CONFIG) as cluster:
        takeovers = []
        for names, streams, wanted in (
            (("c1", "c2"), 1, ["c1-0", "c1-0", "c1-0", "c2-0", "c2-0"]),
            (("d1", "d2"), 4, ["d1-0", "d1-1", "d1-2", "d1-3", "d2-0"]),
        ):
            first, second = (cluster.join(name, streams) for name in names)
            cluster.wait_owners(dict(zip(cluster.all_partitions(), wanted, strict=True)))
            if not cluster.loads[-1].is_alive():
                cluster.start_load(400)
            progress(cluster, 150)
            victims = {partition for partition, thread in cluster.owners().items() if thread.startswith(second.name)}
            second.kill()
            wait_until(
                lambda left=first: {t[:2] for t in cluster.owners().values()} == {left.name}, WAIT_S, "taken over"
            )
            wait_until(cluster.all_owned, WAIT_S, "every partition is owned again")
            takeovers.append((victims, second.killed_s))
            progress(cluster, 150)
            if streams == 1:
                first.leave()
                first.process.wait(WAIT_S)
        cluster.finish()
        history = cluster.history()
        verdict = judge(history, cluster.session_s)
        seconds = [takeover_s(cluster, history, victims, killed_s) for victims, killed_s in takeovers]
        print(f"taken over after {', '.join(f'{value:.2f} s' for value in seconds)}; {verdict}")
        assert verdict, str(verdict)
        assert verdict.read_count >= MESSAGES_MIN
        assert not any(member.errors() for member in cluster.members)
        assert max(seconds) <= cluster.session_s + GRACE_S + SERVER_STEPS_S, seconds


QUICK = pytest.param((3, 2), 5, 7.0, (0.4, 1.0), 400.0, WEIGHTS, id="7-seconds")
FULL = pytest.param(
    (3, 2, 2),
    6,
    float(os.environ.get("KAFKALITE_STORM_S", "600")),
    (0.3, 2.5),
    500.0,
    {**WEIGHTS, "ZooKeeper restarted": 1},
    id="ten-minutes",
    marks=[pytest.mark.slow, pytest.mark.timeout(3600)],
)


@pytest.mark.parametrize(
    ("partition_counts", "member_count", "storm_s", "pause_s", "rate_per_s", "weights"), [QUICK, FULL]
)
@pytest.mark.scenario("0.7")
def test_random_deaths_of_brokers_and_consumers(
    tmp_path: Path,
    seed: int,
    partition_counts: tuple[int, ...],
    member_count: int,
    storm_s: float,
    pause_s: tuple[float, float],
    rate_per_s: float,
    weights: dict[str, int],
) -> None:
    config = {**QUICK_CONFIG, "rebalance_retries_max": 20}
    with running_cluster(tmp_path, partition_counts, member_config=config) as cluster:
        storm = Storm(cluster, random.Random(seed), member_count, weights)
        for _ in range(3):
            storm.add()
        wait_until(cluster.all_owned, WAIT_S, "a group of three")
        cluster.start_load(rate_per_s)
        progress(cluster, MESSAGES_MIN)  # the control: nothing fails yet
        calm = repeats_in_the_calm(cluster)
        storm.blow(storm_s, pause_s)
        storm.add()
        cluster.finish()
        verdict = judge(cluster.history(), cluster.session_s)
        sent, lost, refused = cluster.lost_sends()
        print(
            f"{sum(cluster.hits.values())} faults: {dict(cluster.hits)}; "
            f"{len(cluster.members)} members, {storm.not_joined_count} could not join, "
            f"longest silence {storm.longest_silence_s:.1f} s; sent {sent}, of them lost unacknowledged {lost}, "
            f"refused and stored all the same {refused}; {verdict}"
        )
        assert calm == 0, f"{calm} messages came twice before anything failed"
        assert verdict, str(verdict)
        assert verdict.read_count >= MESSAGES_MIN
        assert sum(cluster.hits.values()) >= storm_s / pause_s[1] / 4, f"faults that hit: {cluster.hits}"
        assert not any(member.errors() for member in cluster.members)
        assert storm.longest_silence_s < SILENCE_S_MAX
        assert not any("Traceback" in broker.log() for broker in cluster.brokers)


def repeats_in_the_calm(cluster: Cluster) -> int:
    """Messages handed out more than once so far; none are counted when a slow machine has cost somebody its session."""
    changes = zookeeper_log.read_changes(cluster.zookeeper.transaction_log)
    if any(change.kind == zookeeper_log.END for change in changes):
        print("a session ended before anything was done to anybody: no control in this run")
        return 0
    names = [event.name for member in cluster.members for event in member.events() if isinstance(event, events.Given)]
    return len(names) - len(set(names))

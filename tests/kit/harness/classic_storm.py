"""Random faults for a cluster of 0.7 brokers and consumers: what dies, freezes or is cut off comes back a little later.

Each fault is a method that does one thing to somebody who is sound, says so in `cluster.hits`, and plans the return. At
least one member and one broker are left alone at any time, so that there is always progress to be checked.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from random import Random

from tests.kit.processes.classic_cluster import Cluster, Member
from tests.kit.processes.classic_member import NOT_JOINED

WEIGHTS: Mapping[str, int] = {
    "member killed": 4,
    "member frozen": 3,
    "member cut off": 3,
    "member's session expired": 4,
    "member left": 1,
    "member added": 3,
    "broker killed": 3,
    "broker frozen": 2,
    "broker's session expired": 2,
}


class Storm:
    """Not thread-safe: everything happens in `blow`."""

    def __init__(self, cluster: Cluster, chance: Random, member_count_max: int, weights: Mapping[str, int]) -> None:
        self.cluster = cluster
        self.longest_silence_s = 0.0
        self.not_joined_count = 0
        self._chance = chance
        self._member_count_max = member_count_max
        self._weights = dict(weights)
        self._plans: list[tuple[float, Callable[[], None]]] = []
        self._down: set[int] = set()
        self._joined = 0
        self._progress = (0, time.monotonic())
        self._judged: set[str] = set()
        self._faults: Mapping[str, Callable[[], bool]] = {
            "member killed": self._kill_member,
            "member frozen": lambda: self._away(Member.freeze, Member.thaw),
            "member cut off": lambda: self._away(Member.cut, Member.mend),
            "member's session expired": self._expire_member,
            "member left": self._leave,
            "member added": self.add,
            "broker killed": self._kill_broker,
            "broker frozen": self._freeze_broker,
            "broker's session expired": self._expire_broker,
            "ZooKeeper restarted": self._restart_zookeeper,
        }

    def blow(self, seconds: float, pause_s: tuple[float, float]) -> None:
        """Inject faults for `seconds`, with a pause from `pause_s` after each; afterwards all processes run or are
        starting.
        """
        until = time.monotonic() + seconds
        due = time.monotonic()
        while time.monotonic() < until:
            self._look()
            for plan in [plan for plan in self._plans if plan[0] <= time.monotonic()]:
                self._plans.remove(plan)
                plan[1]()
            if time.monotonic() >= due:
                what = self._chance.choices(list(self._weights), list(self._weights.values()))[0]
                self.cluster.hits[what] += self._faults[what]()
                due = time.monotonic() + self._chance.uniform(*pause_s)
            time.sleep(0.02)
        for _, plan in sorted(self._plans, key=lambda plan: plan[0]):
            plan()
        self._plans.clear()

    def add(self) -> bool:
        """A new member joins."""
        if len([member for member in self.cluster.members if member.alive]) >= self._member_count_max:
            return False
        self._joined += 1
        pace_s = self._chance.choice([0.0, 0.001])
        self.cluster.join(f"m{self._joined}", streams=self._chance.choice([1, 1, 2, 3]), pace_s=pace_s)
        return True

    # ---- checks on the way ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Check that no process ended by itself and that messages keep arriving."""
        for number, broker in enumerate(self.cluster.brokers):
            assert broker.alive or number in self._down, f"broker {number} ended by itself:\n{broker.log()[-4000:]}"
        for member in self.cluster.members:
            if member.alive or member.killed_s is not None or member.name in self._judged:
                continue
            self._judged.add(member.name)
            status = member.process.returncode
            assert status in {0, NOT_JOINED}, f"{member.name} ended: {status}\n{member.log.read_text()[-4000:]}"
            self.not_joined_count += status == NOT_JOINED
        count = self.cluster.given_count()
        now = time.monotonic()
        if count != self._progress[0]:
            self._progress = (count, now)
        self.longest_silence_s = max(self.longest_silence_s, now - self._progress[1])

    # ---- faults -----------------------------------------------------------------------------------------------------

    def _plan(self, after_s: float, action: Callable[[], None]) -> None:
        self._plans.append((time.monotonic() + after_s, action))

    def _beyond_session_s(self) -> float:
        return self.cluster.session_s + self._chance.uniform(0.5, 2.5)

    def _victim(self) -> Member | None:
        """A sound member that has joined, if another is left."""
        joined = [member for member in self.cluster.members if member.sound and member.joined]
        return self._chance.choice(joined) if len(joined) > 1 else None

    def _kill_member(self) -> bool:
        victim = self._victim()
        if victim is None:
            return False
        victim.kill()
        self._plan(self._chance.uniform(0.0, 3.0), lambda: self.add() and None)
        return True

    def _away(self, begin: Callable[[Member], None], end: Callable[[Member], None]) -> bool:
        victim = self._victim()
        if victim is None:
            return False
        begin(victim)
        self._plan(self._beyond_session_s(), lambda: end(victim))
        return True

    def _expire_member(self) -> bool:
        victim = self._victim()
        return victim is not None and self.cluster.expire(f"/consumers/g/ids/g_{victim.name}")

    def _leave(self) -> bool:
        victim = self._victim()
        if victim is not None:
            victim.leave()
        return victim is not None

    def _broker(self) -> int | None:
        """A broker that is up, if another is."""
        up = [
            number
            for number, broker in enumerate(self.cluster.brokers)
            if number not in self._down | self.cluster.frozen_brokers and (broker.directory / "ready").exists()
        ]
        return self._chance.choice(up) if len(up) > 1 else None

    def _kill_broker(self) -> bool:
        number = self._broker()
        if number is None:
            return False
        broker = self.cluster.brokers[number]
        self._down.add(number)
        broker.kill()

        def back() -> None:
            broker.launch()
            self._down.discard(number)

        self._plan(self._chance.uniform(0.0, 3.0), back)
        return True

    def _freeze_broker(self) -> bool:
        number = self._broker()
        if number is None:
            return False
        process = self.cluster.brokers[number].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self.cluster.frozen_brokers.add(number)

        def thaw() -> None:
            process.send_signal(signal.SIGCONT)
            self.cluster.frozen_brokers.discard(number)

        self._plan(self._beyond_session_s(), thaw)
        return True

    def _expire_broker(self) -> bool:
        number = self._broker()
        return number is not None and self.cluster.expire(f"/brokers/ids/{number}")

    def _restart_zookeeper(self) -> bool:
        self.cluster.stop_zookeeper()
        self.cluster.start_zookeeper()
        return True

"""A network in namespaces of this process: hosts around a router, with links that go down and packets that are lost.

This process is the router, by `unshare`; a killed broker keeps its address, since an idle process holds its namespace.
Everything ends with this process. Needs root on Linux, iproute2, util-linux.

Silent cuts: rules of the router drop packets, so that one direction can be cut alone. A link that is taken down is cut
both ways, and its end loses the carrier.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of linux/sched.h."""
DYING_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""Of a command that is to end with the thread that runs it."""
_IN_NAMESPACE = "nsenter"
TOOLS = ("ip", "nsenter", "setpriv", "unshare")
ALL = 0
"""Instead of a host's number: every one."""


def missing() -> str:
    """Why there can be no such network; empty where there can."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    found = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{found[0]} is not installed (packages iproute2, util-linux)" if found else ""


def address(number: int) -> str:
    """Of a host."""
    return f"10.77.{number}.1"


class Links:
    """The network. Create it in the main thread before any other thread: it moves this process into a new namespace."""

    def __init__(self) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "unshare")
        _run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._cut: list[tuple[str, ...]] = []
        self._down: set[int] = set()

    def join(self, number: int) -> None:
        """Makes host `number` (1 to 250)."""
        hold = [*DYING_WITH_US, "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
        holder = subprocess.Popen(hold, stdout=subprocess.PIPE)
        assert holder.stdout is not None
        holder.stdout.readline()
        self._holders[number] = holder
        router = f"10.77.{number}.254"
        ours = _name(number)
        _run("ip", "link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "addr", "add", f"{router}/24", "dev", ours)
        _run("ip", "link", "set", ours, "up")
        inside = self.prefix(number)
        _run(*inside, "ip", "link", "set", "lo", "up")
        _run(*inside, "ip", "addr", "add", f"{address(number)}/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        _run(*inside, "ip", "route", "add", "default", "via", router)

    def prefix(self, number: int) -> tuple[str, ...]:
        """Of a command that is to run on a host; it ends with this process."""
        return (*DYING_WITH_US, _IN_NAMESPACE, "--target", str(self._holders[number].pid), "--net")

    def cut(self, source: int, target: int) -> None:
        """Nothing that `source` sends reaches `target`; either may be ALL."""
        rule: tuple[str, ...] = ("pref", "10")
        rule += ("iif", _name(source)) if source != ALL else ()
        rule += ("to", address(target)) if target != ALL else ()
        _run("ip", "rule", "add", *rule, "blackhole")
        self._cut.append(rule)

    def down(self, number: int) -> None:
        """A host's link."""
        _run("ip", "link", "set", _name(number), "down")
        self._down.add(number)

    def mend(self) -> None:
        """Everything is joined again."""
        while self._cut:
            _run("ip", "rule", "del", *self._cut.pop(), "blackhole")
        for number in self._down:
            _run("ip", "link", "set", _name(number), "up")
        self._down.clear()

    def close(self) -> None:
        """Hosts go, with their links."""
        self.mend()
        for number, holder in self._holders.items():
            _run("ip", "link", "del", _name(number))
            holder.kill()
            holder.wait()
        self._holders.clear()


def _name(number: int) -> str:
    """The router's end of a host's link."""
    return f"host{number}"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

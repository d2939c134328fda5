"""Machines on one host: namespaces of network, mounts, processes and host name, with separate folders, joined by a
switch. Tests type there, as root, the commands that a page of docs/ gives an administrator.

A machine has its own /etc, /opt, /root and /var/lib, and finds the others by name. Two commands are stand-ins, from
`STAND_INS`: `systemctl`, which runs a unit's ExecStart as its User, with its environment and folders, and waits for
READY=1 where its Type is notify; and `scp`, which copies to another machine's folders. `close` ends everything.

Needs root on Linux, iproute2, util-linux.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

from tests.kit.processes.broker import REPOSITORY

STAND_INS: Final = Path(__file__).parent / "stand_ins"
TOOLS: Final = ("ip", "nsenter", "setpriv", "unshare", "useradd", "runuser", "mount")
FOLDERS: Final = {"etc": "/etc", "opt": "/opt", "root": "/root", "lib": "/var/lib"}
"""A machine's own, under its folder: where they are mounted."""
DYING_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL")
"""Of a command that is to end with the thread that runs it."""
HOLD: Final = "echo; exec sleep infinity"
COMMAND_TIMEOUT_S: Final = 600.0


def missing() -> str:
    """Why there can be no machines; empty where there can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "making namespaces needs root on Linux"
    found = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{found[0]} is not installed (packages iproute2, util-linux, passwd)" if found else ""


class Machine:
    """One of `Machines`."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.name = name
        self.address = f"10.78.0.{number}"
        self.folder = folder
        self._holder: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that its namespaces live by."""
        assert self._holder is not None, "it is switched on"
        return int(Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()[0])

    def switch_on(self) -> None:
        """With the folders that it has."""
        new = (
            *DYING_WITH_US,
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        )
        self._holder = subprocess.Popen([*new, "sh", "-euc", self._boot()], stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        if not self._holder.stdout.readline():
            raise RuntimeError(f"{self.name} has not begun: status {self._holder.wait()}")

    def _boot(self) -> str:
        mounts = [f"mount --bind {self.folder / ours} {place}" for ours, place in FOLDERS.items()]
        # An interpreter or a clone that is in /root stays there.
        kept = {path.relative_to("/root").parts[0] for path in (Path(sys.base_prefix), REPOSITORY) if _in_root(path)}
        for part in kept:
            (self.folder / "root" / part).mkdir(exist_ok=True)
            mounts.insert(0, f"mount --bind /root/{part} {self.folder / 'root' / part}")
        bind = "; ".join(text.replace("--bind", "--rbind") for text in mounts)
        ended = "find /root/units -type f ! -name '*.log' -delete 2> /dev/null || true"  # what ran before
        return f"hostname {self.name}; ip link set lo up; {bind}; {ended}; {HOLD}"

    def switch_off(self) -> None:
        """As if the power failed: every process is gone at once. What it has written is in its folders."""
        if self._holder is not None:
            with contextlib.suppress(ProcessLookupError, IndexError, FileNotFoundError):
                os.kill(self.pid, signal.SIGKILL)
            self._holder.kill()
            self._holder.wait()
            if self._holder.stdout is not None:
                self._holder.stdout.close()
            self._holder = None

    def run(self, text: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Has root's shell do this, which ends at the first command that fails; its output. AssertionError."""
        inside = ("nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--pid")
        environment = {
            "PATH": f"{STAND_INS}:/opt/kafkalite/bin:{os.environ['PATH']}",
            "HOME": "/root",
            "HOSTNAME": self.name,
            "LANG": "C.UTF-8",
            "KAFKALITE_MACHINES": str(self.folder.parent),
            "KAFKALITE_UNITS": str(REPOSITORY / "packaging"),
            "KAFKALITE_PYTHON": sys.executable,
        }
        shell = ["env", "-C", "/root", "bash", "-euo", "pipefail", "-c", text]
        output = self.folder / "output"
        with output.open("wb") as out:
            process = subprocess.Popen(
                [*inside, *shell], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment
            )
        status = process.wait(timeout_s)
        said = output.read_text(errors="replace")
        assert status == 0, f"on {self.name}, status {status}:\n{text}\n{said}"
        return said


class Machines:
    """A context manager: machines of these names, each with what `prepare` puts into its folders."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.machines = {name: Machine(name, number, folder / name) for number, name in enumerate(names, 1)}
        self._switch: subprocess.Popen[bytes] | None = None

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __enter__(self) -> Self:
        try:
            self._switch = subprocess.Popen(
                [*DYING_WITH_US, "unshare", "--net", "sh", "-c", HOLD], stdout=subprocess.PIPE
            )
            assert self._switch.stdout is not None
            self._switch.stdout.readline()
            self._in_switch("ip", "link", "add", "switch", "type", "bridge")
            self._in_switch("ip", "link", "set", "switch", "up")
            hosts = "127.0.0.1 localhost\n" + "".join(f"{m.address} {m.name}\n" for m in self.machines.values())
            for machine in self.machines.values():
                for ours in FOLDERS:
                    (machine.folder / ours).mkdir(parents=True)
                    (machine.folder / ours).chmod(0o755)
                machine.folder.chmod(0o755)
                shutil.copytree("/etc", machine.folder / "etc", symlinks=True, dirs_exist_ok=True)
                (machine.folder / "etc" / "hosts").write_text(hosts)
                self.switch_on(machine.name)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def switch_on(self, name: str) -> None:
        """A machine, with its cable."""
        machine = self.machines[name]
        machine.switch_on()
        number = machine.address.rpartition(".")[2]
        with contextlib.suppress(subprocess.CalledProcessError):  # one that was switched off may not be quite gone
            self._in_switch("ip", "link", "del", f"port{number}")
        self._in_switch(
            "ip", "link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid)
        )
        self._in_switch("ip", "link", "set", f"port{number}", "master", "switch", "up")
        machine.run(f"ip addr add {machine.address}/24 dev eth0; ip link set eth0 up")

    def close(self) -> None:
        """Machines and switch are gone."""
        for machine in self.machines.values():
            machine.switch_off()
        if self._switch is not None:
            self._switch.kill()
            self._switch.wait()
            if self._switch.stdout is not None:
                self._switch.stdout.close()

    def _in_switch(self, *command: str) -> None:
        assert self._switch is not None
        inside = ("nsenter", "--target", str(self._switch.pid), "--net")
        subprocess.run([*inside, *command], check=True, capture_output=True)


def _in_root(path: Path) -> bool:
    return path.is_relative_to("/root")

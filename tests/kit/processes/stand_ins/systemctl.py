"""The systemctl commands that pages of docs/ use, without systemd: applies a unit's [Service] except its sandboxing. A
unit that ends is not restarted.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNITS = Path(os.environ["KAFKALITE_UNITS"])
STATE = Path("/root/units")


def unit_of(name: str) -> dict[str, str]:
    """What [Service] says, the last of each key, but Environment, of which all count."""
    said: dict[str, str] = {}
    texts = [UNITS / f"{name}.service", *sorted(Path(f"/etc/systemd/system/{name}.service.d").glob("*.conf"))]
    for path in texts:
        for key, value in re.findall(r"^([A-Za-z]+)=(.*)$", path.read_text(), re.MULTILINE):
            said[key] = f"{said[key]} {value}" if key == "Environment" and key in said else value
    return said


def pid_of(name: str) -> int | None:
    """Of its process, while it runs."""
    try:
        pid = int((STATE / name).read_text())
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ValueError):
        return None
    return None if stat.rpartition(")")[2].split()[0] == "Z" else pid


def start(name: str) -> str:
    """Why it has not begun; empty: it has."""
    if pid_of(name) is not None:
        return ""
    unit = unit_of(name)
    user = pwd.getpwnam(unit["User"])
    if folder := unit.get("StateDirectory"):
        state = Path("/var/lib") / folder
        state.mkdir(parents=True, exist_ok=True)
        os.chown(state, user.pw_uid, user.pw_gid)
        state.chmod(int(unit.get("StateDirectoryMode", "755"), 8))
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **pairs(unit.get("Environment", ""))}
    STATE.mkdir(exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(f"\0{name}")
    if notified := unit.get("Type") == "notify":
        environment["NOTIFY_SOCKET"] = f"@{name}"
    with (STATE / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            shlex.split(unit["ExecStart"]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            umask=int(unit.get("UMask", "22"), 8),
            start_new_session=True,
            cwd="/",
        )
    (STATE / name).write_text(str(process.pid))
    deadline = time.monotonic() + 5 * float(unit.get("TimeoutStartSec", "90"))
    listener.settimeout(0.2)
    while notified:
        try:
            if "READY=1" in listener.recv(65536).decode().split("\n"):
                break
        except TimeoutError:
            if process.poll() is not None:
                return f"{name} ended with {process.returncode}: {(STATE / f'{name}.log').read_text()[-2000:]}"
            if time.monotonic() > deadline:
                return f"{name} was not ready: {(STATE / f'{name}.log').read_text()[-2000:]}"
    return ""


def pairs(text: str) -> dict[str, str]:
    """Of `Environment=`."""
    return dict(word.split("=", 1) for word in shlex.split(text))


def stop(name: str) -> str:
    """As `start`."""
    pid = pid_of(name)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 5 * float(unit_of(name).get("TimeoutStopSec", "90"))
        while pid_of(name) is not None:
            if time.monotonic() > deadline:
                return f"{name} does not stop"
            time.sleep(0.05)
    return ""


def main() -> int:
    action, *names = [word for word in sys.argv[1:] if not word.startswith("-")]
    why = ""
    for name in names:
        if action in ("start", "enable"):
            why = why or (start(name) if action == "start" or "--now" in sys.argv else "")
        elif action in ("stop", "disable"):
            why = why or (stop(name) if action == "stop" or "--now" in sys.argv else "")
        elif action == "restart":
            why = why or stop(name) or start(name)
        elif action == "reload":
            pid = pid_of(name)
            if pid is None:
                why = f"{name} does not run"
            else:
                os.kill(pid, signal.SIGHUP)
        elif action == "is-active":
            why = "" if pid_of(name) is not None else f"{name} is inactive"
        else:
            why = f"no stand-in for {action}"
    if why:
        print(why, file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())

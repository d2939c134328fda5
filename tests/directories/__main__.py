"""A data directory written by one commit, opened by another: `python -m tests.directories [COMMIT] [--only old-new]`.

    built     COMMIT in a worktree, build/trees/COMMIT, which is kept
    old-new   COMMIT writes one of everything, this tree opens it, carries on, and COMMIT opens it again
    new-old   the other way round

Each with a clean stop and with kill -9 in between. The clients' views before and after are compared. Differences are
reported with exit status 1, except those that docs/operations.md lists for downgrades.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.directories.content import Clients, differences
from tests.kit.processes.broker import REPOSITORY, BrokerDidNotStart, BrokerProcess, free_port

COMMIT = "793dff2"
COMMIT_NAME = re.compile(r"[0-9a-f]{7,40}")
SETTINGS = {
    "log.cleaner.backoff.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
ENDS = ("stop", "kill")
NOT_SEEN = {COMMIT: "group new-members:"}
"""Older release → what it does not see of a newer one's directory: "Upgrade and downgrade" in docs/operations.md."""


@functools.cache
def tree_of(commit: str) -> Path:
    """A worktree of a commit, a branch or a tag with its native modules built."""
    if COMMIT_NAME.fullmatch(commit) is None:  # the name may mean another commit later
        command = ["git", "rev-parse", "--short=10", f"{commit}^{{commit}}"]
        commit = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.strip()
    tree = REPOSITORY / "build" / "trees" / commit
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=REPOSITORY, check=True)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "-j", str(os.cpu_count())]
    subprocess.run(build, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree


def environment_of(tree: Path) -> dict[str, str]:
    """Return the variables with which a Python process runs a tree's kafkalite."""
    native = os.environ.get("KAFKALITE_NATIVE_PATH", "") if tree == REPOSITORY else ""  # that build is this tree's
    return {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "KAFKALITE_NATIVE_PATH": native}


def runs(pid: int, tree: Path) -> bool:
    """Return whether a process has loaded a tree's native modules."""
    native = environment_of(tree)["KAFKALITE_NATIVE_PATH"] or tree / "kafkalite" / "_native"
    return f"{native}/" in Path(f"/proc/{pid}/maps").read_text()


@dataclass
class Directory:
    """A data directory, and the brokers of several trees that serve it in turn."""

    path: Path
    port: int = field(default_factory=free_port)
    classic_port: int = field(default_factory=free_port)

    def broker(self, tree: Path) -> BrokerProcess:
        """The broker of a tree, started."""
        listeners = f"kafka://127.0.0.1:{self.port},kafka07://127.0.0.1:{self.classic_port}"
        settings = {**SETTINGS, "listeners": listeners}
        broker = BrokerProcess(self.path, settings, port=self.port, environment=environment_of(tree)).start()
        assert runs(broker.pid, tree), f"the broker is not {tree}'s"
        return broker

    def clients(self) -> Clients:
        return Clients(f"127.0.0.1:{self.port}", self.classic_port)


def exchange(path: Path, writer: Path, reader: Path, end: str) -> list[str]:
    """What differs when one tree's directory is opened by another, and when it comes back."""
    directory = Directory(path)
    found: list[str] = []

    def turn(tree: Path, *steps: str) -> dict[str, object]:
        broker = directory.broker(tree)
        clients = directory.clients()
        first: dict[str, object] = {}
        try:
            for step in steps:
                if step == "look":
                    first = clients.look()
                else:
                    getattr(clients, step)()
            return first
        finally:
            getattr(broker, end)()

    written = turn(writer, "fill", "look")
    opened = turn(reader, "look")
    found += [f"opened: {text}" for text in differences(written, opened)]
    carried_on = turn(reader, "go_on", "look")
    again = turn(writer, "look")
    return found + [f"back: {text}" for text in differences(carried_on, again)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.directories", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("commit", nargs="?", default=COMMIT, help=f"the older commit (default: {COMMIT})")
    parser.add_argument("--only", choices=["old-new", "new-old", "new-new"], help="one direction")
    parser.add_argument("--end", choices=ENDS, help="one way for a broker to end")
    arguments = parser.parse_args()
    trees = {"new": REPOSITORY}
    if arguments.only != "new-new":
        trees["old"] = tree_of(arguments.commit)
    status = 0
    for direction in [arguments.only] if arguments.only else ["old-new", "new-old"]:
        writer, reader = direction.split("-")
        for end in [arguments.end] if arguments.end else ENDS:
            with tempfile.TemporaryDirectory(prefix="kafkalite-directories-") as folder:
                try:
                    found = exchange(Path(folder), trees[writer], trees[reader], end)
                except BrokerDidNotStart as failure:
                    found = [str(failure)]
            if direction == "new-old" and (unseen := NOT_SEEN.get(arguments.commit)):
                others = [text for text in found if not text.partition(": ")[2].startswith(unseen)]
                print(f"{direction}, {end}: {arguments.commit} does not see {unseen[:-1]}: {len(found) - len(others)}")
                found = others
            print(f"{direction}, {end}: {len(found)} differences", *found, sep="\n  ", flush=True)
            status = 1 if found else status
    raise SystemExit(status)


if __name__ == "__main__":
    main()

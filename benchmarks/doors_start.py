"""Measure the CPU time of a broker's start with TLS or an authorizer: `python -m benchmarks.doors_start [--rules
100000]`.

    plain, TLS, an authorizer, an authorizer with many ACLs   in turns, in reverse order each second time

Each start uses a data directory that was used before. CPU seconds are measured until the broker is ready, because other
programs affect them less than elapsed time. It also reports whether libssl is in the process: without a TLS listener it
must not be.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from benchmarks.instructions import write_rules
from benchmarks.path.harness import cpu_seconds
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.harness.certificates import Authority
from tests.kit.processes.broker import BrokerProcess, free_port


class Start(NamedTuple):
    cpu_s: float
    ready_s: float
    has_libssl: bool


def start(kind: str, folder: Path, rules: int) -> Start:
    port = free_port()
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    if kind == "TLS":
        settings["listeners"] += f",SSL://127.0.0.1:{free_port()}"
        settings["ssl.keystore.location"] = str(folder / "server.pem")
    if "authoriser" in kind:
        settings["authorizer.class.name"] = STANDARD_AUTHORIZER
    directory = folder / kind
    if kind.endswith("rules") and not directory.exists():
        write_rules(directory / "data", rules)
    with BrokerProcess(directory, settings, port=port) as process:
        spent = cpu_seconds(process.pid)
        libraries = Path(f"/proc/{process.pid}/maps").read_text()
        process.stop()
        return Start(spent, process.ready_s, "libssl" in libraries)


KINDS = {"plain": "", "TLS": "plain", "authoriser": "plain", "authoriser with rules": "authoriser"}
"""What is started → what it is compared with."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.doors_start", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="beside one that warms up")
    parser.add_argument("--rules", type=int, default=100_000)
    arguments = parser.parse_args()
    found: dict[str, list[Start]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="kafkalite-start-") as name:
        folder = Path(name)
        Authority().issue("server").write_pem(folder / "server.pem")
        for number in range(arguments.rounds + 1):
            for kind in list(KINDS)[:: 1 if number % 2 else -1]:
                taken = start(kind, folder, arguments.rules)
                if number:
                    found[kind].append(taken)
    for kind, starts in found.items():
        cpu, ready = (statistics.median(each) * 1e3 for each in list(zip(*starts, strict=True))[:2])
        libssl = "libssl" if any(each.has_libssl for each in starts) else "no libssl"
        line = f"{kind:22} {cpu:6.0f} ms of CPU, ready after {ready:6.0f} ms, {libssl}"
        if other := KINDS[kind]:
            more = [one.cpu_s - two.cpu_s for one, two in zip(starts, found[other], strict=True)]
            line += f"; {statistics.median(more) * 1e3:+.1f} ms of CPU beside {other}"
        print(line)


if __name__ == "__main__":
    main()

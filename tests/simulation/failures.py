"""Many seeds of the core of kafkalite.failures: `python -m tests.simulation.failures 0-9999 --progress FILE`.

Stopped at any moment and restarted with the same file, it continues after the last completed seed. With `--count`, as
`make prove FAMILY=failures` has it, the file is one of the commit, and the counts are in docs/proof.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.kills.campaign import commit
from tests.kit.processes.broker import REPOSITORY
from tests.power import proof
from tests.simulation.failure_world import faults, run_seed


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.simulation.failures", description=(__doc__ or "").split(":")[0])
    parser.add_argument("seeds", help="SEED or FIRST-LAST")
    parser.add_argument("--progress", type=Path, help="where to keep how far it is")
    parser.add_argument("--count", action="store_true", help="write the counts down for this commit")
    arguments = parser.parse_args()
    tried = commit()  # it may have gone on when this ends
    if arguments.count and arguments.progress is None:
        arguments.progress = REPOSITORY / "build" / "failures" / f"{tried}-{arguments.seeds}"
        arguments.progress.parent.mkdir(parents=True, exist_ok=True)
    first, _, last = arguments.seeds.partition("-")
    start, broken, steps = int(first), 0, 0
    if arguments.progress is not None and arguments.progress.exists():
        done, broken, steps = map(int, arguments.progress.read_text().split())
        start = max(start, done + 1)
    for seed in range(start, int(last or first) + 1):
        world = run_seed(seed)
        steps += world.steps
        found = list(faults(world))
        broken += bool(found)
        sys.stdout.writelines(f"{seed}: {line}\n" for line in found)
        if arguments.progress is not None:
            arguments.progress.write_text(f"{seed} {broken} {steps}\n")
    if arguments.count and not tried.endswith("+"):
        counts = {"seeds": int(last or first) - int(first) + 1, "steps": steps, "broken": broken}
        proof.add("failures", tried, counts, f"{first}-{last or first}")
    print(f"seeds up to {last or first}, {steps} steps, {broken} seeds with promises broken")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()

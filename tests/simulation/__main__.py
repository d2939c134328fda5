"""Many seeds, or one again: `python -m tests.simulation 0-999 --left posix`, `... 17 --trace`."""

from __future__ import annotations

import argparse
import logging
import sys

from tests.simulation.disk import LEFT
from tests.simulation.test_simulation import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=(__doc__ or "").split(":")[0])
    parser.add_argument("seeds", help="SEED or FIRST-LAST")
    parser.add_argument("--left", choices=sorted(LEFT), default="durable", help="what a power cut leaves")
    parser.add_argument("--cuts", type=int, default=3, help="of the power, in each run")
    parser.add_argument("--size", type=int, default=4, help="of the workload")
    parser.add_argument("--trace", action="store_true", help="what ran when, and each change of a disk")
    arguments = parser.parse_args()
    if not arguments.trace:
        logging.disable(logging.CRITICAL)  # the ends of brokers without power, by the thousand
    first, _, last = arguments.seeds.partition("-")
    broken = answers = 0
    for seed in range(int(first), int(last or first) + 1):
        trace, found, answered = run(seed, cuts=arguments.cuts, left=arguments.left, size=arguments.size)
        answers += answered
        broken += bool(found)
        lines = [*(trace if arguments.trace else []), *found]
        sys.stdout.writelines(f"{seed}: {line}\n" for line in lines)
    print(f"{int(last or first) - int(first) + 1} seeds, {answers} answers, {broken} seeds with promises broken")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()

"""Run the benchmarks of clusters: `python -m benchmarks.cluster [--small] [--repeats N] [NAME]...`

Results are written to benchmarks/results.
"""

from __future__ import annotations

import argparse
import importlib

NAMES = ("partitions", "replication", "rates", "metadata", "placement")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cluster", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--small", action="store_true", help="tiny parameters, to see that it works")
    parser.add_argument("--repeats", type=int, default=3, help="of each measurement (3)")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown measurement {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        importlib.import_module(f"benchmarks.cluster.{name}").main(small=arguments.small, repeats=arguments.repeats)


if __name__ == "__main__":
    main()

"""Run the benchmarks of a whole broker: `python -m benchmarks.path [--small] [NAME]...`

Results are written to benchmarks/results.
"""

from __future__ import annotations

import argparse
import importlib

NAMES = (
    "throughput",
    "latency",
    "python_client",
    "columns",
    "track",
    "startup",
    "partitions",
    "recovery",
    "compaction",
    "guarantees",
    "connections",
    "classic",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.path", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--small", action="store_true", help="tiny parameters, to see that it works")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown measurement {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        importlib.import_module(f"benchmarks.path.{name}").main(small=arguments.small)


if __name__ == "__main__":
    main()

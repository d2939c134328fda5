"""Power cuts, drawn by number: states of recorded runs, a broker on each, and what it kept of what was promised.

  python -m tests.power prove --seeds 1-5 --states 600 --acks 50000     all of it; what is done is not done again
  python -m tests.power again build/power/COMMIT/seed-1 17              one state once more, with what the broker logged
  python -m tests.power sites                                           each sync left out once: which state finds it
  python -m tests.power page                                            docs/proof.md from tests/power/proof.json

Results are in build/power/COMMIT/: a directory with trace and history a recording, one line a state. `prove` ends with
status 1 when it found something.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.power import campaign, proof
from tests.power.prove import MODELS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    prove = commands.add_parser("prove", help="states and audit of some seeds")
    prove.add_argument("--seeds", type=seeds, default=list(range(1, 6)), metavar="1-5")
    prove.add_argument("--states", type=int, default=600, metavar="N", help="states a seed, of each model as many")
    prove.add_argument("--model", choices=MODELS, help="states of this one alone")
    prove.add_argument("--acks", type=int, default=50_000, metavar="N", help="answers to look at in the audit")
    prove.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    prove.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker's")
    again = commands.add_parser("again", help="one state once more")
    again.add_argument("recording", type=Path)
    again.add_argument("number", type=int)
    again.add_argument(
        "--keep", type=Path, help="leave the state's directory here, as it was before the broker started"
    )
    left_out = commands.add_parser("sites", help="each sync left out once")
    left_out.add_argument("sites", nargs="*", help="some of them alone")
    left_out.add_argument("--seeds", type=seeds, default=[1, 2, 3], metavar="1-3")
    left_out.add_argument("--states", type=int, default=300, metavar="N", help="states a seed at most")
    left_out.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N")
    commands.add_parser("page", help="docs/proof.md")
    given = parser.parse_args(arguments)
    if given.command == "prove":
        overrides = dict(text.split("=", 1) for text in given.set)
        return campaign.prove(given.seeds, given.states, given.acks, given.jobs, overrides, given.model)
    if given.command == "again":
        return campaign.again(given.recording, given.number, given.keep)
    if given.command == "sites":
        return campaign.leave_out(given.sites, given.seeds, given.states, given.jobs)
    proof.write_page()
    return 0


def seeds(text: str) -> list[int]:
    """`1-5`, `7` or `1,4,9` as numbers."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


if __name__ == "__main__":
    sys.exit(main())

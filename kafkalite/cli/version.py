"""Print the version, the interpreter, and where kafkalite is installed.

kafkalite version
kafkalite version --json

There is no release on a package index. If another installed distribution also contains a package named kafkalite, one
has overwritten files of the other. The command then prints the name of the other distribution on stderr, and the exit
status is 1.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.base.extras import DISTRIBUTION
from kafkalite.cli.output import note, print_json, say
from kafkalite.version import VERSION

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    place = str(Path(__file__).resolve().parents[1])
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}"
    others = foreign_distributions()
    if arguments.json:
        row = {"version": VERSION, "python": python, "system": system, "place": place, "foreign": others}
        print_json(row)
    else:
        say(f"kafkalite {VERSION}")
        say(f"{python} ({sys.executable}), {system}")
        say(f"installed in {place}")
    for name in others:
        note(f"kafkalite: the distribution {name} also installs a package named kafkalite; uninstall one of them")
    return 1 if others else 0


def foreign_distributions() -> list[str]:
    """Return the names of other installed distributions that contain a package named kafkalite."""
    names = metadata.packages_distributions().get("kafkalite", [])
    return sorted({name for name in names if name.lower().replace("_", "-") != DISTRIBUTION})

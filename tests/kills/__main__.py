"""kill -9 under a storm of changes of ACLs, users and quotas: `python -m tests.kills --kills 200`.

After each kill a broker is started on the directory. Every acknowledged change has to be there, every other one
completely or not at all, and decisions and passwords have to match the listed ones. Results are in build/kills/COMMIT,
a line a kill; a stopped run continues there. It ends with status 1 when it found something.
"""

from __future__ import annotations

import argparse
import sys

from tests.kills import campaign
from tests.kit.processes.broker import REPOSITORY
from tests.power import proof


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kills", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    given = parser.parse_args(arguments)
    commit = campaign.commit()
    rows_file = REPOSITORY / "build" / "kills" / commit
    rows_file.parent.mkdir(parents=True, exist_ok=True)
    rows = campaign.run(given.kills, rows_file, print)
    counts = campaign.summary(rows)
    print(counts)
    if not commit.endswith("+"):
        proof.add("kills", commit, counts, f"0-{len(rows) - 1}")
    return 1 if counts["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())

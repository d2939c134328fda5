"""Series of faults on clusters. Each series is recorded as a line, and not repeated.

A fault counts when at least RECORDS_MIN records were acknowledged since the last one, and the cluster was in sync
before and after it with every kind of client making progress. Replicas are compared after each fault; a series ends
with the judgement of all responses to its clients.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster.faults import EXCHANGES, FAULTS, draw
from tests.cluster.judge import sentences
from tests.cluster.scene import CLIENT_KINDS, EXCHANGED, KINDS_OF_BROKERS, Scene, settled
from tests.kit.checkers.transaction_ledger import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.cluster.links import Links

RECORDS_MIN = 500
"""That are acknowledged between two faults."""
SERIES = 10
"""Faults of one cluster."""
QUIET_S = 10.0
"""Without a fault, for pauses to be compared with."""


@dataclass
class Series:
    """What was done to one cluster, and found."""

    number: int
    brokers: str
    faults: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    transactions: int = 0
    aborted: int = 0
    commits: int = 0
    whole_s: float = 0.0
    """The longest time from a fault's end until all was in sync and every client had gone on."""
    pauses: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    """The longest pauses in seconds, by activity, at each replacement of a broker; also shortly before the first."""
    renumbered: list[str] = field(default_factory=list)
    """Records that a client was right to send as new ones, and the log has twice: `tests.cluster.judge`."""
    findings: list[str] = field(default_factory=list)


def run_series(
    number: int,
    brokers: str,
    directory: Path,
    links: Links,
    say: Callable[[str], None],
    stopping: Callable[[], bool],
    kinds: Sequence[str] = (),
    cheat: str = "",
    controllers: int = 1,
) -> Series:
    """A cluster, its faults (`kinds`, or SERIES that are drawn), and the judgement."""
    row = Series(number, brokers)
    chance = random.Random(f"{brokers} {number}")
    directory.mkdir(parents=True)
    scene = Scene(directory, KINDS_OF_BROKERS[brokers], links, number, cheat, controller_count=controllers)
    try:
        scene.start()
        for kind in kinds or draw(chance, exchanges=brokers in EXCHANGED)[:SERIES]:
            if stopping() or row.findings:
                break
            scene.wait_progress(RECORDS_MIN)
            _fault(scene, kind, chance, row, say)
        _judge(scene, row)
    except (TimeoutError, OSError) as error:
        row.findings.append(str(error))
        scene.workers.ask_where()
    finally:
        scene.close()
    history = scene.workers.history
    row.acknowledged, row.commits = history.acknowledged, sum(history.commits.values())
    row.transactions = history.transactional.count(Outcome.COMMITTED)
    row.aborted = history.transactional.count(Outcome.ABORTED)
    row.renumbered = history.renumbered
    return row


def _fault(scene: Scene, kind: str, chance: random.Random, row: Series, say: Callable[[str], None]) -> None:
    """One fault, until it is over and counted."""
    fault = FAULTS[kind]
    hold_s = chance.uniform(*fault.holds_s)
    if kind in EXCHANGES and not row.pauses:
        scene.workers.begin_pauses()
        time.sleep(QUIET_S)
        row.pauses.append(("nothing happens", scene.workers.end_pauses()))
    scene.workers.begin_pauses()
    with fault.happen(scene, chance) as what:
        say(f"  {kind}: {what}, {hold_s:.1f} s")
        time.sleep(hold_s)
    began = time.monotonic()
    scene.wait_whole()
    scene.wait_progress()
    if kind in EXCHANGES:
        row.pauses.append((what, scene.workers.end_pauses()))
        say(f"    longest pauses, s: {row.pauses[-1][1]}")
    row.whole_s = max(row.whole_s, round(time.monotonic() - began, 1))
    scene.ask()
    row.findings += sentences(f"after {kind} of {what}", settled(scene.compare))
    row.faults += 1
    row.kinds = dict(Counter(row.kinds) + Counter([kind]))


def _judge(scene: Scene, row: Series) -> None:
    """Compare all responses to clients with the logs once the clients have ended."""
    workers = scene.workers
    workers.finish(*CLIENT_KINDS)
    workers.start("sweep")
    workers.finish("sweep", ask=False)
    row.findings += workers.problems
    scene.wait_whole()
    row.findings += sentences("at the end", settled(scene.compare))
    final, undecided = scene.final()
    row.findings += [*sentences("at the end", undecided), *workers.history.judge(final)]


def run(
    count: int,
    brokers: str,
    rows_file: Path,
    links: Links,
    say: Callable[[str], None],
    stopping: Callable[[], bool],
    controllers: int = 1,
) -> list[dict[str, Any]]:
    """Continue until `faults` faults are recorded, or until stopped; return all rows."""
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()] if rows_file.exists() else []
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-cluster-"))
    with rows_file.open("a") as written:
        while sum(row["faults"] for row in rows) < count and not stopping():
            directory = folder / str(len(rows))
            row = asdict(run_series(len(rows), brokers, directory, links, say, stopping, controllers=controllers))
            rows.append(row)
            written.write(json.dumps(row) + "\n")
            written.flush()
            say(f"{sum(row['faults'] for row in rows)} of {count}: {row}")
            if row["findings"]:
                say(f"its directories stay in {directory}")
            else:
                shutil.rmtree(directory, ignore_errors=True)
    return rows


def one_series(
    brokers: str,
    kinds: Sequence[str],
    links: Links,
    say: Callable[[str], None],
    stopping: Callable[[], bool],
    cheat: str = "",
    controllers: int = 1,
) -> Series:
    """Of these faults; the clients' seed is the time."""
    directory = Path(tempfile.mkdtemp(prefix="kafkalite-cluster-")) / "0"
    row = run_series(time.time_ns() % 1_000_000, brokers, directory, links, say, stopping, kinds, cheat, controllers)
    say(str(row))
    if row.findings:
        say(f"its directories stay in {directory}")
    else:
        shutil.rmtree(directory.parent, ignore_errors=True)
    return row


def summary(brokers: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all rows."""
    counts: dict[str, Any] = {
        key: sum(row[key] for row in rows) for key in ("faults", "acknowledged", "transactions", "aborted", "commits")
    }
    counts["renumbered"] = sum(len(row.get("renumbered", ())) for row in rows)
    return {"brokers": brokers, **counts, "findings": sum(len(row["findings"]) for row in rows)}

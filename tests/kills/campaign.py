"""Kills one after the other: a storm, kill -9, a start, a check. Each one is recorded, and not repeated."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from kafkalite.wire.protocol import api
from tests.kills.look import disobeys, look
from tests.kills.storm import ASKER, VERSIONS, Promises, Storm, credentials, error_codes
from tests.kit.harness.typed import TypedConnection
from tests.kit.processes.broker import REPOSITORY, BrokerProcess, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES_MIN = 100
"""That are acknowledged between two kills."""
SERIES = 20
"""Kills of one data directory."""
START_KILLED = 0.25
"""How often the next start is killed, too."""


@dataclass
class Kill:
    """One kill, or two where the start after it was killed as well."""

    number: int
    kills: int = 1
    acknowledged: int = 0
    in_doubt: int = 0
    kept: int = 0  # of those in doubt
    findings: list[str] = field(default_factory=list)


class Series:
    """One data directory and what has been promised of it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.promises = Promises()
        self.sasl_port = free_port()
        port = free_port()
        self.broker = BrokerProcess(directory, settings_of(port, self.sasl_port), port=port)
        self.broker.start()
        self._seed = seed
        with TypedConnection(port) as connection:
            key = api.ALTER_USER_SCRAM_CREDENTIALS
            assert error_codes(connection.ask(key, VERSIONS[key], credentials(ASKER, 0))) == [0, 0]

    def close(self) -> None:
        self.broker.close()

    def kill(self, number: int) -> Kill:
        """A storm, its end, and what is found on the next start."""
        chance = random.Random(f"{self._seed} {number}")
        promises, row = self.promises, Kill(number)
        before = promises.acknowledged
        storm = Storm(self.broker.port, promises, number)
        storm.start()
        goal = before + CHANGES_MIN
        wait_until(lambda: promises.acknowledged >= goal or promises.problems, 120, "changes to be acknowledged")
        time.sleep(chance.uniform(0.0, 0.2))
        self.broker.kill()
        storm.join()
        row.acknowledged, row.in_doubt = promises.acknowledged - before, promises.in_doubt
        if chance.random() < START_KILLED:
            self.broker.launch()
            time.sleep(chance.uniform(0.0, 0.8))
            self.broker.kill()
            row.kills += 1
        self.broker.start()
        found, halves = look(self.broker.port)
        row.findings = [*promises.problems, *halves, *promises.judge(found)]
        row.findings += disobeys(self.sasl_port, found, sorted(promises.names), chance)
        if "Traceback" in self.broker.log():
            row.findings.append(f"a traceback in {self.broker.log_path}")
        row.kept = promises.settle(found)
        return row


def settings_of(port: int, sasl_port: int) -> dict[str, str]:
    """Of a broker that anonymous clients of the plain listener administer, and with users on another."""
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }


def commit() -> str:
    """Return the tested commit, marked if the tree has uncommitted changes."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout.strip()

    name = git("rev-parse", "--short=10", "HEAD")
    return name + ("+" if git("status", "--porcelain", "--", "kafkalite", "ext") else "")


def run(count: int, rows_file: Path, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Continue until `count` kills are recorded, and return all rows. After SERIES kills, or a stop, begin a data
    directory.
    """
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()] if rows_file.exists() else []
    series: Series | None = None
    folder = Path(tempfile.mkdtemp(prefix="kafkalite-kills-"))
    try:
        with rows_file.open("a") as written:
            while sum(row["kills"] for row in rows) < count:
                number = len(rows)
                if series is None or number % SERIES == 0:
                    if series is not None:
                        series.close()
                    series = Series(folder / str(number), number)
                row = asdict(series.kill(number))
                rows.append(row)
                written.write(json.dumps(row) + "\n")
                written.flush()
                say(f"{sum(row['kills'] for row in rows)} of {count}: {row}")
    finally:
        if series is not None:
            series.close()
        if any(row["findings"] for row in rows):
            say(f"the directories stay in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of all rows."""
    counts: dict[str, Any] = {
        key: sum(row[key] for row in rows) for key in ("kills", "acknowledged", "in_doubt", "kept")
    }
    counts["findings"] = sum(len(row["findings"]) for row in rows)
    return counts

"""List the commits of a load's directory, and the hours that each commit changed.

Tools such as dbt or Airflow use the list. Late records can change an hour that was loaded before. Then a job that
depends on the hour must run again.

Thread rule: functions; any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalite.load.manifest import DataFile, Target
from kafkalite.load.storage import LoadError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from kafkalite.load.storage import Storage


class ChangedHour(NamedTuple):
    """An hour of a topic that a commit wrote records to.

    `date` is YYYY-MM-DD. `date` and `hour` (UTC) are None for records with invalid timestamps. If the topic is laid out
    by day, `hour` is None. If it is laid out by a column, both are None and `folder` has the column's value.
    """

    topic: str
    date: str | None
    hour: int | None
    partitions: list[int]
    records: int
    folder: str
    """The folder of the files, below the directory."""


class Commit(NamedTuple):
    """A published change of the loaded files.

    `written_ms` is in milliseconds since 1970; `bytes` is the size of new files.
    """

    number: int
    written_ms: int
    kind: str
    """load or compaction: a compaction rewrites files and changes no records."""
    records: int
    bytes: int
    files: int
    hours: list[ChangedHour]

    def to_json(self) -> dict[str, Any]:
        """Return the commit as a JSON object."""
        return {**self._asdict(), "hours": [hour._asdict() for hour in self.hours]}


def commits(path: str | os.PathLike[str] | Storage, since: int | None = None) -> list[Commit]:
    """Return the commits of a directory, oldest first.

    At least the last 50 commits are kept. With `since`, only commits with a higher number are returned. LoadError if
    some of these are no longer kept.
    """
    target = Target(path)
    target.require()
    found = [commit_of(value) for value in target.changes(-1 if since is None else since)]
    last = found[-1].number if found else target.refresh().number
    if since is not None and last > since and (not found or found[0].number > since + 1):
        first = found[0].number if found else last + 1
        raise LoadError(
            f"the manifests of commits {since + 1} to {first - 1} are no longer in {target.location}: "
            "treat every hour as changed, and continue with the current commit"
        )
    return found


def commit_of(value: Mapping[str, Any]) -> Commit:
    """Convert the content of a manifest to a Commit."""
    added = [DataFile.from_json(row) for row in value["add"]]
    folders: dict[str, list[DataFile]] = {}
    for file in added:
        folders.setdefault(file.folder, []).append(file)
    changed = [
        ChangedHour(
            files[0].topic,
            files[0].date,
            files[0].hour,
            sorted({number for file in files for number in file.partitions}),
            sum(file.rows for file in files),
            folder,
        )
        for folder, files in sorted(folders.items())
    ]
    size = sum(file.size for file in added)
    rows = sum(file.rows for file in added)
    return Commit(value["number"], value["written_ms"], value["kind"], rows, size, len(added), changed)

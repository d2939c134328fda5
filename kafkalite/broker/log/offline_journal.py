"""Open the journal of a data directory whose broker is stopped, so that a command can read or change it.

If no broker has used the directory, a caller that adds something creates the journal. The first start of a broker
applies the change. A caller that only reads or removes gets a StartupError.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kafkalite.broker.log import directory, disk, files
from kafkalite.broker.log.journal import Journal
from kafkalite.errors import StartupError
from kafkalite.model import new_uuid, uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def open_journal(path: str, *, make: bool = False) -> Iterator[Journal]:
    """Lock the directory and yield its journal.

    StartupError if a broker has the lock, if this release cannot read the journal, or if no broker has used the
    directory and `make` is False.
    """
    if not make and not directory.is_used(path) and not disk.exists(f"{path}/{files.JOURNAL_NAME}"):
        raise StartupError(f"{path} is not a data directory: it has no {files.META_PROPERTIES_NAME}")
    directory.prepare(path)
    lock = directory.DirectoryLock(path)
    try:
        journal = Journal.open(path)
        if journal is None:
            if directory.is_used(path):
                raise StartupError(f"{path} has no {files.JOURNAL_NAME}; start a broker on it first")
            journal = Journal.create(path, uuid_text(new_uuid()))
            directory.leave_clean_marker(path)
        try:
            yield journal
        finally:
            journal.close()
    finally:
        lock.release()

"""Select the storage for the path of a load: a local directory or HDFS.

Thread rule: pure functions; any thread.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from kafkalite.load.local_disk import LocalDisk
from kafkalite.load.storage import LoadError
from kafkalite.load.webhdfs import WebHdfs, is_webhdfs, parsed

if TYPE_CHECKING:
    from kafkalite.load.storage import Storage

URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def refuse_url(path: str | os.PathLike[str]) -> None:
    """Raise LoadError for a URL other than WebHDFS, such as s3://bucket.

    Also finds URLs that `Path` has changed to s3:/bucket.
    """
    place = os.fspath(path)
    if is_webhdfs(place):
        parsed(place)
    elif URL.match(place):
        raise LoadError(
            f"{place} is a URL; use a directory on a file system with atomic rename, or HDFS as "
            "webhdfs://NAMENODE:9870/PATH"
        )


def storage_of(place: str | os.PathLike[str] | Storage) -> Storage:
    """Return the storage for a path. LoadError if the path is a URL that is not supported."""
    if not isinstance(place, str | os.PathLike):
        return place
    refuse_url(place)
    return WebHdfs(os.fspath(place)) if is_webhdfs(os.fspath(place)) else LocalDisk(place)

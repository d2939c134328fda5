"""Data directories as each release has left them, kept here: `python -m tests.directories.released VERSION COMMIT`.

    released/VERSION.tar.xz   what `tests.directories.content` has put into it, after a clean stop
    released/VERSION.json     what clients saw then: by name, the digest of it

Made once for a release, and never again: it has to be what that release's own code wrote.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.directories.__main__ import Directory, tree_of

RELEASED = Path(__file__).resolve().parent / "released"


def digests(seen: dict[str, object]) -> dict[str, str]:
    """What was seen, short enough to be kept."""
    return {name: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for name, value in seen.items()}


def unpack(version: str, target: Path) -> dict[str, str]:
    """Puts a release's directory into `target`/data; the digests of what clients saw of it."""
    with tarfile.open(RELEASED / f"{version}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    kept: dict[str, str] = json.loads((RELEASED / f"{version}.json").read_text())
    return kept


def main(version: str, commit: str) -> None:
    """Has a release write its directory."""
    tree = tree_of(commit)
    with tempfile.TemporaryDirectory(prefix="kafkalite-released-") as folder:
        directory = Directory(Path(folder))
        broker = directory.broker(tree)
        try:
            clients = directory.clients()
            clients.fill()
            seen = clients.look()
        finally:
            broker.stop()
        RELEASED.mkdir(exist_ok=True)
        with tarfile.open(RELEASED / f"{version}.tar.xz", "w:xz") as archive:
            archive.add(Path(folder) / "data", "data")
    (RELEASED / f"{version}.json").write_text(json.dumps(digests(seen), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Compare two directories of one release byte by byte: python -m tools.release.compare ONE OTHER

Signatures differ by design, and are left out with their key. Of archives, the members that differ are named. Ends with
status 1 if anything differs.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
import zipfile
from pathlib import Path

from tools.release.archives import sha256
from tools.release.build import KEY, SIGNATURE


def differences(one: Path, other: Path) -> list[str]:
    """Return a line for each file that exists in only one directory or has different bytes."""
    found: list[str] = []
    names = {path.name for folder in (one, other) for path in folder.iterdir()} - {KEY, SIGNATURE}
    for name in sorted(names):
        missing = [folder for folder in (one, other) if not (folder / name).is_file()]
        if missing:
            found.append(f"{name}: not in {missing[0]}")
        elif sha256(one / name) != sha256(other / name):
            inside = sorted(set(members(one / name).items()) ^ set(members(other / name).items()))
            which = ", ".join(dict.fromkeys(member for member, _ in inside)) or "the archive's frame"
            found.append(f"{name}: {which}" if members(one / name) else f"{name}: its bytes")
    return found


def members(path: Path) -> dict[str, str]:
    """Return the digests of an archive's members by name; empty for other files."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    if path.suffix in {".gz", ".tar"}:
        with tarfile.open(path) as archive_file:
            files = ((member.name, archive_file.extractfile(member)) for member in archive_file)
            return {name: hashlib.sha256(file.read()).hexdigest() for name, file in files if file is not None}
    return {}


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        sys.exit("usage: python -m tools.release.compare ONE OTHER")
    one, other = map(Path, arguments)
    for folder in (one, other):
        if not folder.is_dir():
            sys.exit(f"{folder} is not a directory of a release")
    found = differences(one, other)
    print(*found, f"{len(found)} of {len(list(one.iterdir()))} files differ", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

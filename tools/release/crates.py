"""Find the licence texts of the Rust crates in a dependency's wheel. They are stored in packaging/licences/crates.

`python -m tools.release.collect_crates` writes them. A text that several crates have is stored once. The table
crates.txt lists the texts of each crate, with the SHA-256 of its package on crates.io.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).resolve().parents[2] / "packaging" / "licences" / "crates"
TABLE: Final = "crates.txt"
HEAD: Final = """\
# The Rust crates in the wheels of kafkalite's dependencies, and the licence texts of each in this directory.
# NAME VERSION SHA-256 TEXT…
"""
COLLECT: Final = "python -m tools.release.collect_crates"
RUST: Final = frozenset({"cramjam"})
"""The dependencies whose wheels contain crates, and therefore must have an SBOM that lists them."""


class Crate(NamedTuple):
    """A crate in a wheel. `digest` is the SHA-256 of its package, or nothing."""

    name: str
    version: str
    digest: str


class MissingTextsError(ValueError):
    """A wheel contains a crate whose licence texts are not stored."""


def of(sbom: bytes) -> list[Crate]:
    """Return the crates that an SBOM (CycloneDX) lists."""
    found = []
    for part in json.loads(sbom).get("components", []):
        if part.get("purl", "").startswith("pkg:cargo/"):
            digests = [each["content"] for each in part.get("hashes", []) if each["alg"] == "SHA-256"]
            found.append(Crate(part["name"], part["version"], digests[0] if digests else ""))
    return sorted(set(found))


def table(folder: Path = FOLDER) -> dict[Crate, list[str]]:
    """Return the stored crates with the names of their texts."""
    lines = (folder / TABLE).read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {Crate(*row[:3]): row[3:] for row in rows}


def texts(wheel: str, crates: list[Crate], folder: Path = FOLDER) -> dict[str, bytes]:
    """Return the table and the texts of the crates in a wheel, by their file names.

    `wheel` is the wheel's name and version. Raises MissingTextsError if a crate is not stored.
    """
    if wheel.split(maxsplit=1)[0].lower() in RUST and not crates:
        raise MissingTextsError(
            f"the wheel of {wheel} has no SBOM that lists its Rust crates, so their licence texts are unknown; "
            f"use a version whose wheel has one"
        )
    if not crates:
        return {}
    stored = table(folder)
    if missing := [each for each in crates if each not in stored]:
        names = ", ".join(f"{each.name} {each.version}" for each in missing)
        raise MissingTextsError(
            f"{TABLE} lists no licence text for these crates in the wheel of {wheel}: {names}; "
            f"run `{COLLECT} WHEEL` and commit packaging/licences/crates"
        )
    needed = {TABLE, *(text for crate in crates for text in stored[crate])}
    return {name: (folder / name).read_bytes() for name in sorted(needed)}

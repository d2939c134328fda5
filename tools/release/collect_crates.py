"""Store the licence texts of the Rust crates in wheels: python -m tools.release.collect_crates WHEEL…

Run this when a new version of a dependency contains other crates, with its wheels for all processors: `python -m pip
download --no-deps cramjam`. Cargo downloads exactly the versions in the wheels' SBOMs, and their SHA-256 must match.
The texts replace those in packaging/licences/crates. Needs cargo and a network.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.release import crates
from tools.release.dependencies import LICENCE_FILE, SBOM_FILE, read

NOT_COMPILED: Final = re.compile(r"(^|/)(contrib|examples|programs|tests)/|(^|/)xz-[^/]+/COPYING\.|^zstd/COPYING$")
"""Licences of programs, scripts and tests that the crates do not compile in. zstd is used under its BSD licence."""
SAME_REPOSITORY: Final = {"alloc-stdlib": "alloc-no-stdlib"}
"""Crates whose package has no licence file → a crate of the same repository and authors that has it."""
MANIFEST: Final = '[package]\nname = "collected"\nversion = "0.0.0"\nedition = "2021"\n\n[dependencies]\n'


def download(wanted: list[crates.Crate], folder: Path) -> None:
    """Download crates with cargo and unpack each into NAME-VERSION."""
    lines = (
        # A version's part after + is no part of a requirement.
        f'c{i} = {{ package = "{each.name}", version = "={each.version.partition("+")[0]}", default-features = false }}'
        for i, each in enumerate(wanted)
    )
    (folder / "src").mkdir()
    (folder / "src" / "lib.rs").touch()
    (folder / "Cargo.toml").write_text(MANIFEST + "\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run(["cargo", "vendor", "--quiet", "--versioned-dirs", "."], cwd=folder, check=True, capture_output=True)


def licence_files(folder: Path) -> dict[str, bytes]:
    """Return the licence files of an unpacked crate, and of libraries in it, by their paths."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = (name for name in sorted(paths) if LICENCE_FILE.search(name) and not NOT_COMPILED.search(name))
    return {name: paths[name].read_bytes() for name in names}


def store(wanted: list[crates.Crate], source: Path, target: Path) -> None:
    """Write the texts and the table of crates that are unpacked in `source`."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    stored: dict[bytes, str] = {}
    found: dict[crates.Crate, list[str]] = {}
    for crate in wanted:
        unpacked = source / f"{crate.name}-{crate.version}"
        digest = json.loads((unpacked / ".cargo-checksum.json").read_text(encoding="utf-8"))["package"]
        if digest != crate.digest:
            sys.exit(f"{crate.name} {crate.version} has the SHA-256 {digest}, the wheel's SBOM says {crate.digest}")
        names = []
        for path, text in licence_files(unpacked).items():
            name = f"{crate.name}-{path.replace('/', '-')}.txt"
            known = stored.setdefault(b" ".join(text.split()), name)
            if known == name:
                (target / name).write_bytes(text)
            names.append(known)
        if not names:
            names = next((known for each, known in found.items() if each.name == SAME_REPOSITORY.get(crate.name)), [])
        found[crate] = list(dict.fromkeys(names))
        if not names:
            sys.exit(f"{crate.name} {crate.version} has no licence file; add it to SAME_REPOSITORY if it shares one")
    rows = (f"{' '.join((*crate, *names))}\n" for crate, names in found.items())
    (target / crates.TABLE).write_text(crates.HEAD + "".join(rows), encoding="utf-8")


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0].startswith("-"):
        sys.exit(__doc__)
    files = [read(Path(path)).files for path in arguments]
    boms = [content for each in files for name, content in each.items() if SBOM_FILE.search(name)]
    wanted = sorted({crate for bom in boms for crate in crates.of(bom)})
    if not wanted:
        sys.exit("these wheels have no SBOM that lists crates")
    with tempfile.TemporaryDirectory(prefix="kafkalite-crates-") as folder:
        download(wanted, Path(folder))
        store(wanted, Path(folder), crates.FOLDER)
    print(f"{len(wanted)} crates, {len(list(crates.FOLDER.iterdir())) - 1} texts in {crates.FOLDER}")


if __name__ == "__main__":
    main(sys.argv[1:])

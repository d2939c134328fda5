"""Collect the wheels that a release needs at run time: versions, licenses, and entries of an SBOM (CycloneDX 1.6)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import uuid
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.release import crates
from tools.release.archives import sha256

LICENCE_FILE: Final = re.compile(r"(^|/)(licen[cs]e|copying|notice|authors)[^/]*$", re.IGNORECASE)
SBOM_FILE: Final = re.compile(r"\.dist-info/sboms/[^/]+$")
PROJECT_LICENCE: Final = "Apache-2.0"
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json")


UNDECLARED: Final = {
    "cramjam": {"rust-std": "MIT OR Apache-2.0"},
    "google-re2": {"abseil-cpp": "Apache-2.0", "pybind11": "BSD-3-Clause"},
    "xxhash": {"xxHash": "BSD-2-Clause"},
    "zstandard": {"zstd": "BSD-3-Clause"},
}
"""Libraries that wheels contain but do not name. Their texts are in packaging/licences."""
TEXTS: Final = Path(__file__).resolve().parents[2] / "packaging" / "licences"
DECLARED: Final = re.compile(r"^Name: (?P<name>.+)\n(?:[A-Z]\w+: .+\n)*?License: (?P<licence>.+)$", re.MULTILINE)
"""A library that a licence file names, as numpy's does."""

LICENCES: Final = f"""# Licences

kafkalite is under {PROJECT_LICENCE}. Its wheels contain what is compiled in; pip installs the rest with them. The
Debian package and the image contain all of these, and the image contains packages of Debian. The licence texts are in
the licences archive: those of Debian's packages in `debian/`, those of Rust crates in `bundled/crates/`, where
`{crates.TABLE}` lists the texts of each crate.

| package | version | licence | use | licence files |
| --- | --- | --- | --- | --- |
"""


class Bundled(NamedTuple):
    """A library in a wheel of another name. `licence` is what the wheel says."""

    name: str
    version: str
    licence: str


class Dependency(NamedTuple):
    """One wheel: its metadata, its license files and SBOMs with their text, and its SHA-256."""

    name: str
    version: str
    licence: str
    is_expression: bool
    files: dict[str, bytes]
    digest: str

    @property
    def purl(self) -> str:
        """The package's URL, as in an SBOM."""
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"

    @property
    def bundled(self) -> list[Bundled]:
        """The libraries that the wheel contains, from its SBOMs, its licence files and `UNDECLARED`."""
        found = [Bundled(name, "", licence) for name, licence in UNDECLARED.get(self.name.lower(), {}).items()]
        for name, content in self.files.items():
            if SBOM_FILE.search(name):
                for part in json.loads(content).get("components", []):
                    said = [each.get("expression") or _name(each["license"]) for each in part.get("licenses", [])]
                    found.append(Bundled(part["name"], part.get("version", ""), " AND ".join(said) or "not named"))
            elif LICENCE_FILE.search(name):
                declared = DECLARED.finditer(content.decode(errors="replace"))
                found += [Bundled(each["name"], "", each["licence"]) for each in declared]
        return sorted(set(found))

    @property
    def crates(self) -> list[crates.Crate]:
        """The Rust crates in the wheel, from its SBOMs."""
        return [each for name, content in self.files.items() if SBOM_FILE.search(name) for each in crates.of(content)]

    @property
    def texts(self) -> dict[str, bytes]:
        """The licence files, and the texts of bundled libraries and crates that the wheel does not contain.

        Raises crates.MissingTextsError if those of a crate are not stored.
        """
        added = {f"{name}.txt": (TEXTS / f"{name}.txt").read_bytes() for name in UNDECLARED.get(self.name.lower(), {})}
        stored = crates.texts(f"{self.name} {self.version}", self.crates)
        added |= {f"crates/{name}": text for name, text in stored.items()}
        return {name: text for name, text in self.files.items() if LICENCE_FILE.search(name)} | {
            f"bundled/{name}": text for name, text in added.items()
        }


def _name(licence: dict[str, str]) -> str:
    return licence.get("id") or licence["name"]


def fetch(requirements: list[str], number: str, arch: str, folder: Path, constraints: Path | None) -> None:
    """Download the wheels of requirements and their dependencies, for CPython `number` ("311") and a processor."""
    platforms = [f"--platform=manylinux_2_{minor}_{arch}" for minor in range(17, 29)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={number}"]
    command += [*platforms, f"--platform=manylinux2014_{arch}", "--dest", str(folder)]
    command += ["--constraint", str(constraints)] if constraints is not None else []
    subprocess.run([*command, *requirements], check=True)


def read(wheel: Path) -> Dependency:
    """Read a wheel's metadata and license files."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        about = Parser().parsestr(archive.read(metadata).decode())
        wanted = filter(is_about_licences, archive.namelist())
        return described(about, {name: archive.read(name) for name in wanted}, sha256(wheel))


def is_about_licences(name: str) -> bool:
    """Return whether a file of a wheel is a licence or an SBOM."""
    return LICENCE_FILE.search(name) is not None or SBOM_FILE.search(name) is not None


def described(about: Message, files: dict[str, bytes], digest: str) -> Dependency:
    """Describe a wheel by its metadata and its licence files and SBOMs."""
    licence, is_expression = licence_of(about)
    return Dependency(about["Name"], about["Version"], licence, is_expression, files, digest)


def licence_of(about: Message) -> tuple[str, bool]:
    """Return a wheel's licence by its metadata, and whether that is an SPDX expression."""
    if about["License-Expression"]:
        return about["License-Expression"], True
    short = (about["License"] or "").strip()
    if short and len(short) <= 80 and "\n" not in short:
        return short, False
    classifiers = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License")]
    return ", ".join(classifiers) or "see the licence files", False


def sbom(
    version: str, wheel: str, compiled_in: dict[str, tuple[str, str]], needed: list[Dependency], epoch: int
) -> bytes:
    """Return the SBOM of one wheel.

    `compiled_in` is the foreign code in its native modules: name → (version, SPDX expression). `needed` is what pip
    installs with it, in the versions that the Debian package and the image contain.
    """
    root = f"pkg:pypi/kafkalite@{version}"
    components: list[dict[str, Any]] = []
    for name, (number, licence) in sorted(compiled_in.items()):
        purl = f"pkg:pypi/{name}@{number}"
        components.append(_component(name, number, purl, licence, is_expression=True, how="compiled in"))
    for each in sorted(needed, key=lambda each: each.purl):
        part = _component(
            each.name, each.version, each.purl, each.licence, is_expression=each.is_expression, how="installed with it"
        )
        components.append(part | {"hashes": [{"alg": "SHA-256", "content": each.digest}]})
    refs = [part["bom-ref"] for part in components]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, wheel + json.dumps(components))}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "kafkalite",
                "version": version,
                "purl": root,
                "licenses": [{"license": {"id": PROJECT_LICENCE}}],
            },
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": refs}],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _component(name: str, version: str, purl: str, licence: str, *, is_expression: bool, how: str) -> dict[str, Any]:
    licences = [{"expression": licence}] if is_expression else [{"license": {"name": licence}}]
    return {
        "type": "library",
        "bom-ref": f"{purl}#{how.replace(' ', '-')}",
        "name": name,
        "version": version,
        "purl": purl,
        "scope": "required",
        "licenses": licences,
        "properties": [{"name": "kafkalite:use", "value": how}],
    }


def licence_table(found: list[Dependency], compiled_in: list[Bundled], debian: list[Bundled]) -> str:
    """Return a Markdown page: each dependency, its licence, and the number of files with the text.

    `compiled_in` is what native modules contain, `debian` are the packages of the image.
    """
    rows = [f"| {part.name} | {part.version} | {part.licence} | compiled in | |" for part in sorted(compiled_in)]
    stored = {(each.name, each.version): len(names) for each, names in crates.table().items()}
    for each in sorted(found, key=lambda each: each.purl):
        use = "installed with it"
        rows.append(f"| {each.name} | {each.version} | {each.licence} | {use} | {len(each.texts)} |")
        use = f"in the wheel of {each.name}"
        for part in each.bundled:
            count = stored.get(part[:2], 1 if part.name in UNDECLARED.get(each.name.lower(), {}) else 0)
            rows.append(f"| {' | '.join(part)} | {use} |{f' {count}' if count else ''} |")
    rows += [f"| {part.name} | {part.version} | {part.licence} | Debian, in the image | 1 |" for part in sorted(debian)]
    return LICENCES + "\n".join(dict.fromkeys(rows)) + "\n"

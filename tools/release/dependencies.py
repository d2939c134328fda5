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

from tools.release.archives import sha256

LICENCE_FILE: Final = re.compile(r"(^|/)(licen[cs]e|copying|notice|authors)[^/]*$", re.IGNORECASE)
SBOM_FILE: Final = re.compile(r"\.dist-info/sboms/[^/]+$")
PROJECT_LICENCE: Final = "Apache-2.0"
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json")


LICENCES: Final = f"""# Licences

kafkalite is under {PROJECT_LICENCE}. Its wheels contain what is compiled in; pip installs the others with it. The
Debian package and the image contain all of them. Each package's licence texts are in the licences archive.

| package | version | licence | use | licence files |
| --- | --- | --- | --- | --- |
"""


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
        wanted = (name for name in archive.namelist() if LICENCE_FILE.search(name) or SBOM_FILE.search(name))
        files = {name: archive.read(name) for name in wanted}
    licence, is_expression = _licence(about)
    return Dependency(about["Name"], about["Version"], licence, is_expression, files, sha256(wheel))


def _licence(about: Message) -> tuple[str, bool]:
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


def licence_table(found: list[Dependency], compiled_in: list[tuple[str, str, str]]) -> str:
    """Return a Markdown page with each dependency, its license, and the number of license files.

    `compiled_in`: name, version and license of foreign code in native modules.
    """
    rows = [f"| {name} | {version} | {licence} | compiled in | |" for name, version, licence in sorted(compiled_in)]
    for each in sorted(found, key=lambda each: each.purl):
        files = sum(1 for name in each.files if LICENCE_FILE.search(name))
        rows.append(f"| {each.name} | {each.version} | {each.licence} | installed with it | {files} |")
    return LICENCES + "\n".join(dict.fromkeys(rows)) + "\n"

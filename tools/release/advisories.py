"""Look up the packages of a release in advisory databases: python -m tools.release.advisories DIRECTORY

It audits what the wheels need at run time (`needed …` in packages.txt) with pip-audit, which it installs into a scratch
environment. Exit status: 0 no known vulnerability, 1 at least one, 3 no database could be reached for every package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Final

FOUND: Final = 1
UNREACHABLE: Final = 3
SERVICES: Final = ("pypi", "osv")


def requirements(packages: str) -> dict[str, list[str]]:
    """Return the pinned run-time packages of a package list, by CPython version ("311")."""
    found: dict[str, list[str]] = {}
    for line in packages.splitlines():
        pin, _, use = line.partition("  # ")
        if use.startswith("needed "):
            found.setdefault(use.removeprefix("needed "), []).append(pin)
    return found


def verdict(reports: dict[str, list[dict[str, Any]] | None]) -> tuple[int, list[str]]:
    """Return the exit status and the text to print, from pip-audit's dependencies by service (None: it could not run).

    A package that a service skipped counts as not audited by it.
    """
    audited: set[str] = set()
    names: set[str] = set()
    found: dict[tuple[str, str, str], str] = {}
    for dependencies in reports.values():
        for each in dependencies or []:
            names.add(each["name"])
            if "skip_reason" in each:
                continue
            audited.add(each["name"])
            for flaw in each["vulns"]:
                fixed = ", ".join(flaw["fix_versions"]) or "no release yet"
                found[each["name"], each["version"], flaw["id"]] = fixed
    lines = [f"{name} {version}: {flaw}, fixed in {fixed}" for (name, version, flaw), fixed in sorted(found.items())]
    missed = sorted(names - audited)
    if missed or not audited:
        asked = " and ".join(reports)
        lines.append(f"no advisory source could be reached ({asked}) for {', '.join(missed) or 'any package'}")
    if not lines:
        lines.append(f"no known vulnerability in {len(audited)} packages")
        return 0, lines
    return (FOUND if found else UNREACHABLE), lines


def audit(python: Path, service: str, pins: Path) -> list[dict[str, Any]] | None:
    """Return pip-audit's report for one service, or None if it failed, as without a network."""
    command = [str(python), "-m", "pip_audit", "--vulnerability-service", service, "--format", "json", "--no-deps"]
    done = subprocess.run(
        [*command, "--disable-pip", "--requirement", str(pins)], capture_output=True, text=True, check=False
    )
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"{service}: {(done.stderr.strip().splitlines() or ['no report'])[-1][:200]}", file=sys.stderr)
        return None
    return found


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not (Path(arguments[0]) / "packages.txt").is_file():
        print("usage: python -m tools.release.advisories DIRECTORY (the directory of a release)", file=sys.stderr)
        return 2
    pins = requirements((Path(arguments[0]) / "packages.txt").read_text(encoding="utf-8"))
    statuses = []
    with tempfile.TemporaryDirectory(prefix="kafkalite-advisories-") as name:
        scratch = Path(name)
        venv.create(scratch / "venv", with_pip=True)
        python = scratch / "venv" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-audit"], check=True)
        for number, needed in sorted(pins.items()):  # pip-audit takes one version of a package
            listed = scratch / f"requirements-{number}.txt"
            listed.write_text("".join(f"{pin}\n" for pin in needed), encoding="utf-8")
            status, lines = verdict({service: audit(python, service, listed) for service in SERVICES})
            print(*(f"CPython {number[0]}.{number[1:]}: {line}" for line in lines), sep="\n", flush=True)
            statuses.append(status)
    return FOUND if FOUND in statuses else max(statuses)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Build the command that adds one of kafkalite's optional extras, such as spark, to this installation.

kafkalite has no release on a package index, so a package of that name there would be someone else's. While
`RELEASE_INDEX` is None, no message, document or file installs kafkalite from an index; a test checks all tracked files.
The command therefore uses the clone, wheel or repository that this installation came from, or names the extra's
packages one by one.
"""

from __future__ import annotations

import json
import re
import shlex
import site
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import Distribution

RELEASE_INDEX: Final[str | None] = None
"""URL of the package index with the releases; None while there is none."""

DISTRIBUTION: Final = "kafkalite"
CONDITION: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")
OWN_EXTRA: Final = re.compile(rf"{DISTRIBUTION}\[([\w,-]+)\]")


def needs_extra(what: str, extra: str) -> str:
    """Return a message for a user who lacks an extra: what is missing, and the command that installs it."""
    return f"{what}: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return a shell command that adds the extra's packages to this installation."""
    place = Path(__file__).resolve().parent.parent.parent
    words = pip_arguments(extra, place, _distribution(), (*site.getsitepackages(), site.getusersitepackages()))
    return shlex.join([sys.executable or "python", "-m", "pip", "install", *words])


def _distribution() -> Distribution | None:
    from importlib import metadata

    try:
        return metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def pip_arguments(extra: str, place: Path, distribution: Distribution | None, sites: Iterable[str]) -> list[str]:
    """Return the arguments of `pip install` for an extra.

    `place` is the directory of the package, `sites` are the interpreter's own package directories. A clone is installed
    in place. An installed copy gets the extra from the wheel, directory or repository that it came from (PEP 610). If
    that is not recorded or no longer exists, the arguments name the extra's packages one by one. A copy outside the
    interpreter's directories, such as that of the Debian package, gets them installed next to it.
    """
    if (place / "pyproject.toml").is_file() and (place / "setup.py").is_file():
        return ["-e", f"{place}[{extra}]"]
    packages = packages_of(extra, (distribution.requires if distribution is not None else None) or [])
    if str(place) not in sites:
        return ["--target", str(place), *packages]
    origin = _origin(distribution, extra) if distribution is not None else None
    if origin is not None:
        return [origin]
    if RELEASE_INDEX is not None:
        return ["--index-url", RELEASE_INDEX, f"{DISTRIBUTION}[{extra}]"]
    return packages


def _origin(distribution: Distribution, extra: str) -> str | None:
    """Return the extra at the place that the distribution came from (PEP 610), or None if that is unknown or gone."""
    try:
        recorded = json.loads(distribution.read_text("direct_url.json") or "null")
        url = urlsplit(str(recorded["url"]))
        if url.scheme == "file":
            path = unquote(url.path)
            return f"{path}[{extra}]" if Path(path).exists() else None
        if "vcs_info" in recorded:
            vcs = recorded["vcs_info"]
            return f"{DISTRIBUTION}[{extra}] @ {vcs['vcs']}+{recorded['url']}@{vcs['commit_id']}"
    except (ValueError, KeyError, TypeError):
        return None
    return f"{DISTRIBUTION}[{extra}] @ {recorded['url']}"


def packages_of(extra: str, requirements: list[str]) -> list[str]:
    """Return an extra's requirements from a distribution's metadata, including those of extras that it refers to."""
    found: dict[str, None] = {}
    for line in requirements:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        condition = CONDITION.search(marker)
        if condition is None or condition[1] != extra:
            continue
        own = OWN_EXTRA.fullmatch(requirement)
        if own is None:
            found[requirement] = None
        for name in own[1].split(",") if own else ():
            found |= dict.fromkeys(packages_of(name, requirements))
    return list(found)

"""Build the pip command that installs one of kafkalite's optional extras, such as spark, into this installation.

While `RELEASE_INDEX` is None, kafkalite has no releases on a package index. A package named kafkalite on an index would
then belong to someone else. So the command does not install it from there.
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
    """Return an error message: the given text, followed by the command that installs the extra."""
    return f"{what}: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return a shell command that installs the packages of an extra into this installation."""
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

    `place` is the directory that contains the package kafkalite. `sites` are the interpreter's own package directories.

        this installation is                      the arguments install
        a clone                                   the clone, with the extra
        outside `sites`, such as Debian's         the packages of the extra, next to it
        from a known wheel or repository          that origin, with the extra (PEP 610)
        otherwise                                 the packages of the extra, or kafkalite with the extra from
                                                  RELEASE_INDEX if that is set
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
    """Return a requirement for pip that installs the extra from the distribution's origin (PEP 610).

    None if the origin is unknown or no longer exists.
    """
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
    """Return the packages of an extra, from a distribution's metadata. An extra may include other extras."""
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

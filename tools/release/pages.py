"""Write the pages of a release: notes from CHANGELOG.md, and evidence from the results in the repository."""

from __future__ import annotations

import posixpath
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

UNRELEASED: Final = "Unreleased"
INSTALLATION: Final = "docs/operations.md"
PAGE_LINK: Final = re.compile(r"\]\((?P<path>[^)#:\s]+)\.md(?P<anchor>#[^)\s]*)?\)")
"""A link of the repository to one of its pages."""
ANY_LINK: Final = re.compile(r"\]\((?P<path>[^)#:\s]+)(?:#(?P<anchor>[^)\s]*))?\)")
"""A link to a file."""
RUNS: Final = """\
| campaign | commit | seeds | date | machine | commits since | changes since |
| --- | --- | --- | --- | --- | --- | --- |
"""


def sections(text: str) -> dict[str, str]:
    """Return the sections of a Markdown page with a heading of level 2: heading → text below it."""
    parts = re.split(r"(?m)^## (.+)$", text)
    return {heading.strip(): body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def notes(version: str, changelog: str) -> str:
    """Return the release notes: the changelog's section for this version, or its unreleased section."""
    found = sections(changelog)
    for heading in (version, UNRELEASED):
        for name, body in found.items():
            if name.split()[0].strip("[]") == heading and body:
                text = to_site(body.replace("### ", "## "), version)
                return f"# kafkalite {version}\n\n{unpack_site(version)} {how_to_install(version)}\n\n{text}\n"
    raise ValueError(f"CHANGELOG.md has no section {version!r} or {UNRELEASED!r} with text")


def site(version: str) -> str:
    """Return the name of the site's archive without its ending, which is also the folder in it."""
    return f"kafkalite-{version}-site"


def unpack_site(version: str) -> str:
    """Return the sentence for the top of a page about its links."""
    return f"The links work after `tar -xzf {site(version)}.tar.gz` in this directory."


def how_to_install(version: str) -> str:
    """Return the sentence that links to the installation of each file."""
    return to_site(f"[Installation]({INSTALLATION}) describes how to install each file.", version)


def to_site(text: str, version: str, folder: str = "") -> str:
    """Point links to pages of the repository at the release's unpacked site. `folder`: where the text is from."""

    def link(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["path"]))
        return f"]({site(version)}/{version}/{path}.html{found['anchor'] or ''})"

    return PAGE_LINK.sub(link, text)


def dead_links(folder: Path) -> list[str]:
    """Return a line for each link of a release's pages that leads neither to a file nor into the site's archive."""
    there = {path.name: b"" for path in folder.iterdir()}
    for archive in folder.glob("*-site.tar.gz"):
        with tarfile.open(archive) as opened:
            there |= {member.name: file.read() for member in opened if (file := opened.extractfile(member)) is not None}
    found = []
    for page in sorted(folder.glob("*.md")):
        for link in ANY_LINK.finditer(page.read_text(encoding="utf-8")):
            path, anchor = link["path"], link["anchor"]
            if path not in there or (anchor and f'id="{anchor}"'.encode() not in there[path]):
                found.append(f"{page.name} links to {link[0][2:-1]}, which is not in the release")
    return found


class Campaign(NamedTuple):
    """A fault-injection campaign, or one variant of it. `rows` are its recorded runs, each with its commit."""

    title: str
    rows: list[dict[str, Any]]


class Distance(NamedTuple):
    """The distance from a run to a release: commits, and how many of them changed released code."""

    commits: int
    changes: int


Measure = Callable[[str], Distance | None]
"""From a run's commit to the release."""
MEASURED: Final = ("findings", "broken", "early")
"""The keys of a row that count what a run found."""


def evidence(
    version: str, commit: str, campaigns: list[Campaign], proof: str, changelog: str, distance: Measure
) -> str:
    """Return the evidence page: campaigns and their age, what was not run, findings, fixes, and all counts.

    `distance` returns None for a run whose commit is not in the release's history.
    """
    runs: list[str] = []
    not_run: list[str] = []
    found: list[str] = []
    for campaign in campaigns:
        known = [(far, row) for row in campaign.rows if (far := distance(row["commit"])) is not None]
        if not known:
            not_run.append(f"- {campaign.title}: no run is recorded in the history of this commit.")
            continue
        far, row = min(known, key=lambda each: each[0])
        newest = "the newest run found nothing" if not _count(row) else f"the newest run found {_count(row)}"
        found += [
            f"- {campaign.title}, `{each['commit']}`: {_count(each)}; {newest}" for _, each in known if _count(each)
        ]
        about = row.get("run", {})
        cells = [about.get(key, "not recorded") for key in ("seeds", "date", "machine")]
        runs.append(f"| {campaign.title} | `{row['commit']}` | {' | '.join(cells)} | {far.commits} | {far.changes} |")
        if far.changes:
            later = "1 later commit" if far.changes == 1 else f"{far.changes} later commits"
            not_run.append(f"- {campaign.title}: not since `{row['commit']}`; {later} changed it.")
    fixed = fixes(version, changelog)
    parts = [
        f"# Evidence for kafkalite {version}",
        f"Commit `{commit}`. `python -m tools.release.build` writes this page from results in the repository.",
        unpack_site(version),
        "## Newest run of each campaign",
        "Changes are commits after the run that changed `kafkalite/` or `ext/`.\n\n" + RUNS + "\n".join(runs),
        "## Not run on this code",
        "\n".join(not_run) or "Every campaign ran on this code.",
        "## Findings of campaigns",
        "\n".join(found) or "None.",
        "## Fixed since the last release",
        "\n".join(fixed) or "The changelog lists no fix.",
        "## " + to_site(proof.partition("\n## ")[2].strip(), version, "docs"),
    ]
    return "\n\n".join(parts) + "\n"


def fixes(version: str, changelog: str) -> list[str]:
    """Return the changelog's entries under "Fixed" for this version, or the unreleased ones."""
    fixed = re.search(r"(?ms)^## Fixed\n(.*?)(?=^## |\Z)", notes(version, changelog))
    return fixed[1].strip().splitlines() if fixed is not None else []


def _count(row: dict[str, Any]) -> int:
    return sum(row.get(key, 0) for key in MEASURED)

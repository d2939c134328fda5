"""Write the pages of a release: notes from CHANGELOG.md, and evidence from the results in the repository."""

from __future__ import annotations

import posixpath
import re
import tarfile
from collections import Counter
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


THIS_CODE: Final = "On this code"
EARLIER: Final = "On an earlier commit only"
NOT_RUN: Final = "Not run"
ABOUT_EVIDENCE: Final = """\
Commit `{commit}`. `python -m tools.release.build` writes this page from results in the repository. A run counts as one
on the code of this commit if no later commit changed that code, `kafkalite/` and `ext/`."""
NOT_REPEATED: Final = """\
A campaign of an earlier commit is no evidence for the changes after it. `make prove FAMILY=…` repeats a campaign, and
the next build counts its committed result."""


class Campaign(NamedTuple):
    """A fault-injection campaign, or one variant of it. `rows` are its recorded runs, each with its commit.

    `family` is its name for `make prove`.
    """

    family: str
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
    """Return the evidence page: a verdict, campaigns and their age, what was not run, findings, fixes, and all counts.

    `distance` returns None for a run whose commit is not in the release's history.
    """
    runs: list[str] = []
    groups: dict[str, list[Campaign]] = {THIS_CODE: [], EARLIER: [], NOT_RUN: []}
    explained: dict[str, list[str]] = {EARLIER: [], NOT_RUN: []}
    found: list[str] = []
    failed: list[Campaign] = []
    for campaign in campaigns:
        known = [(far, row) for row in campaign.rows if (far := distance(row["commit"])) is not None]
        if not known:
            groups[NOT_RUN].append(campaign)
            reason = "all runs are of commits that are not in this history" if campaign.rows else "no run is recorded"
            explained[NOT_RUN].append(f"- {campaign.title}: {reason}.")
            continue
        far, row = min(known, key=lambda each: each[0])
        if _count(row):
            failed.append(campaign)
        newest = "the newest run found nothing" if not _count(row) else f"the newest run found {_count(row)}"
        found += [
            f"- {campaign.title}, `{each['commit']}`: {_count(each)}; {newest}" for _, each in known if _count(each)
        ]
        about = row.get("run", {})
        cells = [about.get(key, "not recorded") for key in ("seeds", "date", "machine")]
        runs.append(f"| {campaign.title} | `{row['commit']}` | {' | '.join(cells)} | {far.commits} | {far.changes} |")
        groups[EARLIER if far.changes else THIS_CODE].append(campaign)
        if far.changes:
            later = "1 later commit" if far.changes == 1 else f"{far.changes} later commits"
            explained[EARLIER].append(f"- {campaign.title}: newest run on `{row['commit']}`; {later} changed the code.")
    fixed = fixes(version, changelog)
    parts = [
        f"# Evidence for kafkalite {version}",
        f"**Verdict:** {verdict(groups, failed)}",
        ABOUT_EVIDENCE.format(commit=commit),
        unpack_site(version),
        "## Newest run of each campaign",
        "Changes are commits after the run that changed `kafkalite/` or `ext/`.\n\n" + RUNS + "\n".join(runs),
        "## Not run on this code",
        NOT_REPEATED if any(explained.values()) else "Every campaign ran on this code.",
        *(f"### {heading}\n\n" + "\n".join(lines) for heading, lines in explained.items() if lines),
        "## Findings of campaigns",
        "\n".join(found) or "None.",
        "## Fixed since the last release",
        "\n".join(fixed) or "The changelog lists no fix.",
        "## " + to_site(proof.partition("\n## ")[2].strip(), version, "docs"),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(groups: dict[str, list[Campaign]], failed: list[Campaign]) -> str:
    """Return the sentence on what was run on this code, on an earlier commit and not at all.

    `failed` are the campaigns whose newest run has findings.
    """
    every = [campaign for group in groups.values() for campaign in group]
    total = Counter(campaign.family for campaign in every)

    def some(group: list[Campaign]) -> str:
        counts = Counter(campaign.family for campaign in group)
        names = (f"{name}, {n} of {total[name]}" if n < total[name] else name for name, n in counts.items())
        return f" ({'; '.join(names)})" if group else ""

    ran, earlier, never = ((len(group), some(group)) for group in groups.values())
    findings = (
        f"the newest runs of {len(failed)}{some(failed)} have findings" if failed else "no newest run has findings"
    )
    return (
        f"Of {len(every)} fault-injection campaigns, "
        f"{ran[0] or 'none'}{ran[1]} ran on exactly the code of this commit, "
        f"{earlier[0] or 'none'}{earlier[1]} ran on an earlier commit only, and {never[0] or 'none'}{never[1]} "
        f"did not run; {findings}."
    )


def fixes(version: str, changelog: str) -> list[str]:
    """Return the changelog's entries under "Fixed" for this version, or the unreleased ones."""
    fixed = re.search(r"(?ms)^## Fixed\n(.*?)(?=^## |\Z)", notes(version, changelog))
    return fixed[1].strip().splitlines() if fixed is not None else []


def _count(row: dict[str, Any]) -> int:
    return sum(row.get(key, 0) for key in MEASURED)

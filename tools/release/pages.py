"""The pages of a release: notes from CHANGELOG.md, and evidence from docs/proof.md with the distance to each run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

UNRELEASED: Final = "Unreleased"
RUN: Final = re.compile(r"\| `([0-9a-f]{7,40})` \|")


def sections(text: str) -> dict[str, str]:
    """Return the parts of a Markdown page that begin with a heading of level 2: heading → text below it."""
    parts = re.split(r"(?m)^## (.+)$", text)
    return {heading.strip(): body.strip() for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def notes(version: str, changelog: str) -> str:
    """Return the release notes: the changelog's section of this version, or of what is unreleased."""
    found = sections(changelog)
    for heading in (version, UNRELEASED):
        for name, body in found.items():
            if name.split()[0].strip("[]") == heading and body:
                return f"# kafkalite {version}\n\n{body.replace('### ', '## ')}\n"
    raise ValueError(f"CHANGELOG.md has no section {version!r} or {UNRELEASED!r} with text")


def evidence(version: str, commit: str, proof: str, distance: Callable[[str], int | None]) -> str:
    """Return the evidence page.

    `distance` counts the commits from a run's commit to the release; None where the run's commit is no ancestor.
    """
    lines = [f"# Evidence for kafkalite {version}", "", f"Commit `{commit}`. No run below is of a later commit.", ""]
    lines += ["| campaign | newest run | commits between it and the release |", "| --- | --- | --- |"]
    for heading, body in sections(proof).items():
        known = {run: found for run in RUN.findall(body) if (found := distance(run)) is not None}
        if known:
            newest = min(known, key=lambda run: known[run])
            lines.append(f"| {heading} | `{newest}` | {known[newest]} |")
        elif RUN.search(body):
            lines.append(f"| {heading} | none in the history of this commit | |")
    tables = proof.partition("\n## ")[2]
    return "\n".join(lines) + f"\n\n## {tables.strip()}\n"

"""Build the site's sidebar from the tables of docs/README.md: one table is one group of pages."""

from __future__ import annotations

import posixpath
import re

LINK = re.compile(r"\]\(([^)#:]+\.md)\)")


def groups(index: str, folder: str, leave_out: str = "") -> dict[str, list[str]]:
    """Return headings of level 2, each with the Markdown files to which its section links.

    `index` is the text of a page in `folder`. Paths are relative to the root, without `.md`, and only in their first
    group. `leave_out` is a path that no group gets.
    """
    found: dict[str, list[str]] = {}
    seen = {leave_out}
    heading = ""
    for line in index.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip()
        for target in LINK.findall(line):
            page = posixpath.normpath(posixpath.join(folder, target)).removesuffix(".md")
            if page not in seen:
                seen.add(page)
                found.setdefault(heading, []).append(page)
    return found


def toctrees(found: dict[str, list[str]]) -> str:
    """Return the groups as MyST directives for the end of the start page."""
    blocks = []
    for heading, pages in found.items():
        listed = "\n".join(f"/{page}" for page in pages)
        blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{listed}\n```\n")
    return "\n".join(blocks)

"""Build the website of this release: python -m tools.site.build [--out DIRECTORY] [--used FILE]

OUT/VERSION/ is the site, which works without server and network. OUT/index.html leads to the newest release and lists
the others. A broken link fails the build. FILE gets the Python packages that were used: NAME==VERSION.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx

from kafkalite.version import VERSION
from tools.site import navigation, reference

ROOT: Final = Path(__file__).resolve().parents[2]
START: Final = "README"
INDEX: Final = "docs/README.md"
LINK: Final = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")
RELEASE: Final = re.compile(r"\d+(\.\d+)*")

SETTINGS: Final[dict[str, Any]] = {
    "project": "kafkalite",
    "copyright": "the kafkalite authors, Apache License 2.0",
    "version": VERSION,
    "release": VERSION,
    "root_doc": START,
    "extensions": ["myst_parser"],
    "source_suffix": {".md": "markdown"},
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_title": f"kafkalite {VERSION}",
    "html_copy_source": False,
    "html_show_sphinx": False,
    "pygments_style": "default",
    "highlight_language": "text",
    "suppress_warnings": ["misc.highlighting_failure"],
}


def stage(root: Path, into: Path) -> None:
    """Copy the site's sources to the paths that they have in the tree, and write the generated pages."""
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    pages = [name for name in dict.fromkeys(tracked) if "/" not in name or name.startswith("docs/")]
    for name in pages:  # grows by what they link to
        text = (root / name).read_text(encoding="utf-8")
        for target, _ in LINK.findall(text):
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if linked in tracked:
                pages += [linked] if linked not in pages else []
            elif (root / linked).is_file():
                (into / linked).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / linked, into / linked)
        _write(into / name, _without_folders(root, name, text))
    _write(into / "reference" / "commands.md", reference.commands())
    for package in reference.PACKAGES:
        _write(into / "reference" / f"{package}.md", reference.api(package))
    groups = navigation.groups((root / INDEX).read_text(encoding="utf-8"), posixpath.dirname(INDEX), leave_out=START)
    groups.setdefault("Reference", []).append("reference/commands")
    groups["Python API"] = [f"reference/{package}" for package in reference.PACKAGES]
    seen = {START}.union(*groups.values())
    groups["Project"] = [page for page in (name.removesuffix(".md") for name in pages) if page not in seen]
    start = into / f"{START}.md"
    _write(start, start.read_text(encoding="utf-8") + "\n" + navigation.toctrees(groups))


def _without_folders(root: Path, page: str, text: str) -> str:
    """Replace links to folders of the tree by their names, because a site has no folders to show."""

    def name_alone(found: re.Match[str]) -> str:
        target = posixpath.join(posixpath.dirname(page), found[2])
        return found[1] if (root / target).is_dir() else found[0]

    return re.sub(r"\[([^\]]+)\]\(([^)#:\s]+)\)", name_alone, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def render(source: Path, out: Path, work: Path) -> int:
    """Run Sphinx; return 0, or 1 if it gave warnings."""
    app = Sphinx(
        srcdir=source,
        confdir=None,
        outdir=out,
        doctreedir=work / "doctrees",
        buildername="html",
        confoverrides=SETTINGS,
        status=None,
        warning=sys.stderr,
        freshenv=True,
        warningiserror=True,
        parallel=os.cpu_count() or 1,
    )
    app.build()
    for page in out.rglob("*.html"):
        page.write_text(accessible(page.read_text(encoding="utf-8")), encoding="utf-8")
    shutil.copyfile(out / f"{START}.html", out / "index.html")
    return app.statuscode


def accessible(page: str) -> str:
    """Fix what axe reports in a page of the theme: heading levels, names of regions, and code that the keyboard
    scrolls."""
    for there, wanted in (
        ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
        ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="Pages">'),
        ('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer'),
        ('<div id="search-results"></div>', '<h1>Search</h1>\n<div id="search-results"></div>'),
        ("<pre>", '<pre tabindex="0">'),
        ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ):
        page = page.replace(there, wanted)
    return re.sub(r'<th class="head[^"]*">(<p></p>)?</th>', "<td></td>", page)


def write_index(out: Path) -> None:
    """Write the page above the releases. It leads to the newest at once, and lists all."""
    releases = [each.name for each in out.iterdir() if each.is_dir() and RELEASE.fullmatch(each.name)]
    releases.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    rows = "\n".join(f'<li><a href="{name}/index.html">kafkalite {name}</a></li>' for name in releases)
    newest = releases[0]
    _write(
        out / "index.html",
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="0; url={newest}/index.html">
<title>kafkalite: documentation by release</title>
<h1>kafkalite: documentation by release</h1>
<ul>
{rows}
</ul>
</html>
""",
    )


def used_packages(modules: Iterable[str]) -> list[str]:
    """Return the installed packages, other than kafkalite, that contain these modules: NAME==VERSION."""
    owners = metadata.packages_distributions()
    tops = {name.partition(".")[0] for name in modules} - {"_distutils_hack"}  # which setuptools has each Python load
    names = {owner for top in tops for owner in owners.get(top, ())} - {"kafkalite"}
    return sorted(f"{name}=={metadata.version(name)}" for name in names)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--used", type=Path, help="file to write: the packages that were used, one per line")
    parsed = parser.parse_args(arguments)
    out: Path = parsed.out
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(out / VERSION, ignore_errors=True)
    stage(ROOT, work / "source")
    status = render(work / "source", out / VERSION, work)
    shutil.rmtree(work)
    write_index(out)
    if parsed.used is not None:
        parsed.used.write_text("".join(f"{line}\n" for line in used_packages(sys.modules)), encoding="utf-8")
    if not status:
        print(out / VERSION / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The site: its sidebar and generated pages, and a build of the whole, every link of which leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kafkalite.version import VERSION
from tools.site import build, navigation, reference

ROOT = Path(__file__).resolve().parents[3]


class Page(HTMLParser):
    """The links of a page, and the names within it that links may end with."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.names.update(name for name in (given.get("id"), given.get("name")) if name)
        self.links += [link for link in (given.get("href"), given.get("src")) if link]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    (out / "0.0.9").mkdir()
    command = [sys.executable, "-m", "tools.site.build", "--out", str(out), "--used", str(out / "used.txt")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_every_link_leads_to_something_of_the_site(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in (site / VERSION).rglob("*.html")}
    assert len(pages) > 50
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            exists = target.is_file() and (target not in pages or unquote(parts.fragment) in pages[target].names)
            if not exists:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in (site / VERSION).rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert 'src="http' not in text, path
        assert 'rel="stylesheet" type="text/css" href="http' not in text, path


@pytest.mark.slow
def test_the_index_leads_to_the_newest_release(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert f"url={VERSION}/index.html" in text
    assert text.index(f"kafkalite {VERSION}") < text.index("kafkalite 0.0.9")


@pytest.mark.slow
def test_the_packages_of_the_site_are_not_those_of_development(site: Path) -> None:
    used = {line.partition("==")[0].lower() for line in (site / "used.txt").read_text().splitlines()}
    assert {"sphinx", "furo", "myst-parser"} <= used
    assert not {"ruff", "mypy", "hypothesis", "confluent-kafka", "pyspark", "kafkalite"} & used


def test_used_packages_are_those_of_the_modules() -> None:
    modules = ("sphinx.application", "sphinx", "sys", "kafkalite.cli", "_distutils_hack", "no_such_module")
    assert build.used_packages(modules) == [f"{metadata.metadata('sphinx')['Name']}=={metadata.version('sphinx')}"]


@pytest.mark.slow
def test_every_page_is_in_the_sidebar(site: Path) -> None:
    start = (site / VERSION / "index.html").read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").glob("*.md")):
        assert f'href="{path.parent.name}/{path.stem}.html"' in start, path
    assert 'href="reference/commands.html"' in start
    assert 'href="reference/kafkalite.failures.html"' in start


@pytest.mark.filterwarnings("ignore:.*for Sphinx API modifications")
def test_a_warning_fails_the_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "README.md").write_text("# Start\n\n[gone](gone.md)\n", encoding="utf-8")
    assert build.render(source, tmp_path / "out", tmp_path) == 1
    assert "gone.md" in capfd.readouterr().err


def test_a_page_belongs_to_the_first_group_that_links_to_it() -> None:
    lines = ("# All", "## First", "[a]({}) [b]({})", "[b]({})", "## Second", "[a]({}) [c]({})")
    index = "\n".join(lines).format("a.md", "../b.md#there", "../b.md", "a.md", "x/c.md")
    found = navigation.groups(index, "pages")
    assert found == {"First": ["pages/a", "b"], "Second": ["pages/x/c"]}
    assert navigation.toctrees({"First": ["pages/a", "b"]}) == (
        "```{toctree}\n:hidden:\n:caption: First\n\n/pages/a\n/b\n```\n"
    )


def test_commands_have_their_actions() -> None:
    page = reference.commands()
    assert "\n## kafkalite topics\n" in page
    assert "\n### kafkalite topics create\n" in page
    assert "usage: kafkalite topics create" in page


def test_what_a_docstring_lays_out_stays_laid_out() -> None:
    def example() -> None:
        """One line.

        `name`    what it is
        `other`   another

        Text goes on
        here:
            code(1)
        """

    assert reference.markdown(example) == (
        "One line.\n\n"
        "\n\n````text\n`name`    what it is\n`other`   another\n````\n\n\n\n"
        "Text goes on\nhere:\n\n````text\ncode(1)\n````\n\n"
    )


class Example:
    """A class whose methods have objects as defaults."""

    def method(self, test: object = lambda: True, *, other: object = object(), number: int = 3) -> None:
        """Do nothing."""


def test_a_signature_has_no_addresses() -> None:
    text = reference._signature("method", Example.method)
    assert "(self, test: 'object' = ..., *, other: 'object' = ..., number: 'int' = 3) -> 'None'" in text

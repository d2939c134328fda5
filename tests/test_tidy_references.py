"""What comments, docstrings and documents refer to is in the repository: paths, modules, sections of documents."""

import re
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.kit.sources import name_of, text_files, tracked

PATH = re.compile(r"(?<![\w./-])((?:kafkalite|ext|tests|tools|benchmarks|docs|examples|\.ci|\.github)/[\w./-]*\w)")
MODULE = re.compile(r"(?<![\w./-])((?:tests|tools|benchmarks)(?:\.\w+)+)|-m (kafkalite(?:\.\w+)+)")
SECTION_LINK = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
NUMBERED_SECTION = re.compile(r"([\w.-]+\.md),? sections? (\d+(?:\.\d+)*)")
PLACEHOLDER = re.compile(r"\b[A-Z][A-Z_]+\b|\*")
"""NAME, ROOM, FOLDER: placeholders for the reader's values."""

HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
EXAMPLES = ("tests/test_", "tests/unit/test_tools.py", "tests/unit/kit/")
"""Tests of such references: theirs are made up."""

NOT_MODULES = {"tests.lock", "tests.load", "tests.apache_kafka", "benchmarks.md", "tools.md"}
"""A file's name and loggers' names that look like modules."""


def anchor_of(heading: str) -> str:
    """Return a heading's anchor."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def missing_paths(line: str, names: set[str]) -> Iterator[str]:
    """Paths in a line that are neither a file's nor a folder's; `names` has both."""
    for match in PATH.finditer(line):
        path = match[1].split("::")[0]
        pattern = line[match.end() :].startswith("*")
        if path in names or PLACEHOLDER.search(path) or (pattern and any(name.startswith(path) for name in names)):
            continue
        yield path


def missing_modules(line: str, names: set[str]) -> Iterator[str]:
    """Dotted names in a line whose module is not there; what follows the module's name is not looked at."""
    for match in MODULE.finditer(line):
        dotted = match[1] or match[2]
        parts = dotted.split(".")
        path = parts[0]
        for part in parts[1:]:
            if f"{path}.py" in names:
                break
            path += f"/{part}"
        if dotted not in NOT_MODULES and not PLACEHOLDER.search(dotted) and not {path, f"{path}.py"} & names:
            yield dotted


def missing_sections(line: str, document: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Sections of documents that a line names, by link or by number, and that the document does not have."""
    for match in SECTION_LINK.finditer(line):
        folder = document.rpartition("/")[0]
        target = re.sub(r"(?:^|[^/]+/)\.\./", "", f"{folder}/{match[1]}".lstrip("/")) if match[1] else document
        headings = {anchor_of(heading) for heading in HEADING.findall(texts.get(target, ""))}
        if match[2] not in headings:
            yield f"{target}#{match[2]}"
    for match in NUMBERED_SECTION.finditer(line):
        headings = [line for name, text in texts.items() if name.endswith(match[1]) for line in HEADING.findall(text)]
        if not any(re.match(rf"{re.escape(match[2])}\b", heading) for heading in headings):
            yield f"{match[1]} section {match[2]}"


def found(check: Callable[[str, str], Iterator[str]]) -> list[str]:
    """`path:line: what` of every line that the check finds something in."""
    return [
        f"{name_of(path)}:{number}: {what}"
        for path, text in text_files()
        if not name_of(path).startswith(("benchmarks/results/", *EXAMPLES))
        for number, line in enumerate(text.split("\n"), start=1)
        for what in check(line, name_of(path))
    ]


def everything() -> set[str]:
    """Files and folders."""
    names = {name_of(path) for path in tracked()}
    return names | {name.rsplit("/", depth)[0] for name in names for depth in range(1, name.count("/") + 1)}


def test_paths_that_are_named_exist() -> None:
    names = everything()
    assert found(lambda line, _: missing_paths(line, names)) == []


def test_modules_that_are_named_exist() -> None:
    names = everything()
    assert found(lambda line, _: missing_modules(line, names)) == []


def test_sections_that_are_named_exist() -> None:
    texts = {name_of(path): text for path, text in text_files() if path.suffix == ".md"}
    assert found(lambda line, document: missing_sections(line, document, texts)) == []


def test_facts_about_kafka_07_that_are_named_exist() -> None:
    texts = {name_of(path): re.sub(r"\s+", " ", text) for path, text in text_files() if path.suffix == ".py"}
    facts = {*re.findall(r" (\d)\. [A-Z]", texts["kafkalite/classic/__init__.py"])}
    named = {
        number
        for name, text in texts.items()
        if not name.startswith(EXAMPLES)
        for cited in re.findall(r"`kafkalite\.classic`, facts? (\d(?: and \d)?)", text)
        for number in cited.split(" and ")
    }
    assert named
    assert named <= facts


class TestTheChecksThemselves:
    NAMES = frozenset(
        {"tests", "tests/unit", "tests/unit/test_a.py", "kafkalite/broker/log/swap.py", "tests/kit/wire.py"}
    )

    @pytest.mark.parametrize(
        "line", ["# see tests/unit/test_gone.py", "`kafkalite/broker/log/gone`", "docs/gone.md::test_x"]
    )
    def test_a_path_that_is_not_there_is_found(self, line: str) -> None:
        assert len(list(missing_paths(line, {*self.NAMES}))) == 1

    @pytest.mark.parametrize(
        "line", ["tests/unit/test_a.py::test_x", "tests/unit/test_*.py", "tests/unit/NAME.py", "a/tests/gone.py"]
    )
    def test_a_path_that_is_there_is_not(self, line: str) -> None:
        assert list(missing_paths(line, {*self.NAMES})) == []

    def test_a_module_that_is_not_there_is_found(self) -> None:
        assert list(missing_modules("`python -m tests.gone ARGUMENT`", {*self.NAMES})) == ["tests.gone"]
        assert list(missing_modules("as `tests.kit.wire.Connection` does", {*self.NAMES})) == []

    def test_a_section_that_is_not_there_is_found(self) -> None:
        texts = {"docs/a.md": "# Title\n## What is there\n## 3 Numbered", "docs/b.md": ""}
        assert list(missing_sections("[x](a.md#no) [y](a.md#what-is-there)", "docs/b.md", texts)) == ["docs/a.md#no"]
        assert list(missing_sections("[x](../docs/a.md#title)", "tests/README.md", texts)) == []
        assert list(missing_sections("Source: a.md section 6.", "x.py", texts)) == ["a.md section 6"]
        assert list(missing_sections("Source: a.md section 3.", "x.py", texts)) == []


def test_attacks_name_tests_that_there_are() -> None:
    texts = dict(text_files())
    written = next(text for path, text in texts.items() if name_of(path) == "tests/reliability/ATTACKS.md")
    tests = {name for path, text in texts.items() for name in re.findall(r"^def (test_\w+)\(", text, re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", written))
    assert len(named) > 70
    assert not named - tests

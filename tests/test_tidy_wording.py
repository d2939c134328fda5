"""Odd wording in pages and in strings that users see is counted, and may only become rarer.

A count is a symptom: rewrite the sentence, not the word.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.sources import is_generated, name_of, nodes_of, python_files, text_files

ODD = re.compile(
    r"\b(?:whoever|whomever|whatever|anew|elder|nobody|for ever|stands?|stood)\b"
    r"|\b(?:is|are|was|were|be|been) told\b"
    r"|\bis asked for\b|\bwhere (?:that|it) is asked\b"
    r"|\bso (?:many|much|long|often)\b(?! (?:that|as)\b)"
    r"|\b(?:goes|go|went|going) on\b"
    r"|\b(?:tells|says) (?:of|what|which|whether|how|who|where)\b"
    r"|\bof (?:its|their) own\b",
    re.IGNORECASE,
)
NOUN_CLAUSE = re.compile(
    r"(?:^|[.:] )(?:Who|What|Whom|Which) (?:may|is|are|has|a|the)\b[^.?\n|]*(?![^.?\n|]*\?)", re.MULTILINE
)
"""A sentence that begins with a clause as its subject and is no question."""

SOURCES = {".py", ".pyx", ".pxd", ".pxi", ".h", ".c"}
FOUND = {"prose": 0, "strings": 0, "code": 45, "suite": 418}
"""How many there are at most. A number that a change has lowered is lowered here too; none is raised."""


def odd_wording(text: str) -> Iterator[str]:
    """Each odd word and each beginning of such a sentence."""
    for pattern in (ODD, NOUN_CLAUSE):
        yield from (match[0] for match in pattern.finditer(text))


def prose() -> Iterator[tuple[str, str]]:
    """Pages at the top and in docs/, by name."""
    for path, text in text_files():
        if path.suffix == ".md" and name_of(path.parent) in {".", "docs"}:
            yield name_of(path), text


def strings_of(tree: ast.Module) -> Iterator[str]:
    """Strings that are no docstrings."""
    docstrings = {id(node.value) for node in nodes_of(tree) if isinstance(node, ast.Expr)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def strings() -> Iterator[tuple[str, str]]:
    """Strings of the product, and the console's templates without their comments and code."""
    for path, tree in python_files("kafkalite/"):
        yield name_of(path), "\n".join(strings_of(tree))
    for path, text in text_files():
        if path.suffix == ".html" and name_of(path).startswith("kafkalite/"):
            yield name_of(path), re.sub(r"\{#.*?#\}|\{%.*?%\}|<!--.*?-->", "", text, flags=re.DOTALL)


def code() -> Iterator[tuple[str, str]]:
    """Comments, docstrings and names of the product, native code included."""
    for path, text in text_files():
        if path.suffix in SOURCES and name_of(path).startswith(("kafkalite/", "ext/")) and not is_generated(path):
            yield name_of(path), text


def suite() -> Iterator[tuple[str, str]]:
    """Comments, docstrings and names of the tests, but for this file."""
    for path, text in text_files():
        if path.suffix == ".py" and name_of(path).startswith("tests/") and path.name != Path(__file__).name:
            yield name_of(path), text


@pytest.mark.parametrize("read", [prose, strings, code, suite])
def test_odd_wording_becomes_rarer(read: Callable[[], Iterator[tuple[str, str]]]) -> None:
    found = [f"{name}: {odd}" for name, text in read() for odd in odd_wording(text)]
    assert len(found) <= FOUND[read.__name__], "\n".join(found)


@pytest.mark.parametrize(
    ("sentence", "count"),
    [
        ("Whoever asks goes on for ever.", 3),
        ("A client that is told so much.", 2),
        ("Who may read is set here.", 1),
        ("What is a topic?", 0),
        ("It is so long that it wraps.", 0),
        ("Clients continue without a limit.", 0),
    ],
)
def test_odd_wording_is_found(sentence: str, count: int) -> None:
    assert len([*odd_wording(sentence)]) == count


def test_docstrings_are_no_strings_that_users_see() -> None:
    tree = ast.parse('"""A module."""\nsaid = "anew"\ndef f():\n    """A function."""\n    return f"of {said} elder"\n')
    assert [*strings_of(tree)] == ["anew", "of ", " elder"]

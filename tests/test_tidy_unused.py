"""Nothing lies about: every name of the product, the tests and the tools is used somewhere, and so is every file."""

import ast
import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

import pytest

from tests.kit.sources import ROOT, name_of, nodes_of, text_files, tracked, tree_of

WORD = re.compile(r"[A-Za-z_]\w*")
READ_BY_PEOPLE = (".md", ".json", ".csv", ".txt", ".sum")
"""Prose and records: a name that only they know is not used."""

CALLED_BY_NAME = re.compile(r"test_|Test[A-Z]|pytest_|pytestmark$|__|visit_[A-Z]|.*_(?:action|arguments)$")
"""What pytest, ast and the table of commands find by its name."""

ROWS = "kafkalite/settings/"
"""Attributes there are settings, read by the names that operators give."""

DECORATED = ("rule(", "invariant(", "initialize(", "autouse=True", "hookimpl", ".subscriber(")
"""What Hypothesis, pytest and FastStream call because of a decorator."""

KEPT: dict[str, str] = {}
"""`path:name` → the reason to keep a name without a use here."""

STANDALONE = {
    ".editorconfig": "editors read it",
    ".git-blame-ignore-revs": "git blame reads it",
    ".gitattributes": "git reads it",
    ".gitignore": "git reads it",
    ".pre-commit-config.yaml": "pre-commit reads it",
    "setup.py": "setuptools reads it",
    "MANIFEST.in": "setuptools reads it",
    "LICENSE": "for lawyers",
    "Makefile": "make reads it",
    "README.md": "where everybody begins",
}
"""Files that programs and people know without being told."""

RUN_BY_NAME = ("test_", "bench_", "conftest.", "__init__.", "__main__.")
FOUND_BY_PATTERN = re.compile(
    r"\.github/|benchmarks/results/|tests/directories/released/|tests/compat/programs/\w+_app\.py"
)
"""Files that are found by their folder, or whose names are put together."""


class Definition(NamedTuple):
    """A name that a file gives to something."""

    path: str
    line: int
    name: str
    node: ast.AST
    owner: ast.ClassDef | None


def used_words(module: ast.Module) -> Counter[str]:
    """Count each word in Python code: names, and words of strings that are not docstrings."""
    found: Counter[str] = Counter()
    docstrings: set[ast.AST] = set()
    for node in nodes_of(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstrings.add(node.value)
        elif node not in docstrings:
            for field in node._fields:
                match getattr(node, field, None):
                    case str(words):
                        found.update(WORD.findall(words))
                    case [str(), *_] as names:  # of `global` and of patterns
                        found.update(names)
    return found


def definitions(path: str, module: ast.Module) -> Iterator[Definition]:
    """Functions, classes and assigned names of a module and of its classes."""

    def visit(body: list[ast.stmt], owner: ast.ClassDef | None) -> Iterator[Definition]:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield Definition(path, node.lineno, name, node, owner)
                case ast.ClassDef(name=name, body=inner):
                    yield Definition(path, node.lineno, name, node, owner)
                    yield from visit(inner, node)
                case ast.Assign(targets=targets):
                    for target in targets:
                        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                            if isinstance(part, ast.Name):
                                yield Definition(path, node.lineno, part.id, node, owner)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    yield Definition(path, node.lineno, name, node, owner)
                case ast.If(body=inner) | ast.Try(body=inner):
                    yield from visit(inner, owner)

    yield from visit(module.body, None)


def foreign_classes(classes: Mapping[str, list[ast.ClassDef]]) -> set[str]:
    """Return classes derived from a third-party one, which calls their methods and uses their fields."""
    foreign: set[str] = set()
    while True:
        more = {
            name
            for name, nodes in classes.items()
            for base in (base for node in nodes for base in node.bases)
            if (last := ast.unparse(base).split("[")[0].split(".")[-1]) not in classes or last in foreign
            if last not in {"Generic", "Protocol", "object"}
        } - foreign
        if not more:
            return foreign
        foreign |= more


def unused_names(
    files: Mapping[str, str], parse: Callable[[str, str], ast.Module] = lambda _, text: ast.parse(text)
) -> Iterator[Definition]:
    """Yield names that are used nowhere but in their definition. A definition in several places counts as often.

    `parse` gives a file's tree by its name and text.
    """
    uses: Counter[str] = Counter()
    found: dict[str, list[Definition]] = defaultdict(list)
    for path, text in files.items():
        if path.endswith(".py"):
            module = parse(path, text)
            uses.update(used_words(module))
            for one in definitions(path, module):
                found[one.name].append(one)
        elif path.endswith((".pyx", ".pxd")):
            uses.update(WORD.findall(re.sub(r'"""(?:.|\n)*?"""|#.*', "", text)))
        elif not path.endswith((".pyi", *READ_BY_PEOPLE)):
            uses.update(WORD.findall(text))
    classes = {name: [one.node for one in ones if isinstance(one.node, ast.ClassDef)] for name, ones in found.items()}
    foreign = foreign_classes({name: nodes for name, nodes in classes.items() if nodes})
    commands = {name.removesuffix("_arguments") for name in found if name.endswith("_arguments")}
    for name, ones in found.items():
        if uses[name] > len(ones) or CALLED_BY_NAME.match(name) or name in commands:
            continue
        for one in ones:
            decorators = " ".join(map(ast.unparse, getattr(one.node, "decorator_list", [])))
            called = any(word in decorators for word in DECORATED) or (one.owner and one.owner.name in foreign)
            if not called and not (one.owner and one.path.startswith(ROWS)):
                yield one


def dead_files(names: list[str], words: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield files that no other file names, by stem or whole: `words` are each file's words. Tests, packages and
    standalone programs are found by their runners.
    """
    for name in names:
        path = PurePosixPath(name)
        if path.name.startswith(RUN_BY_NAME) or name in STANDALONE or FOUND_BY_PATTERN.match(name):
            continue
        told = {path.stem, path.name}
        if not any(told & said for other, said in words.items() if other != name):
            yield name


@functools.cache
def own_files() -> dict[str, str]:
    """Everything but what is generated."""
    return {name_of(path): text for path, text in text_files() if "/protocol/messages/" not in name_of(path)}


def test_every_name_is_used() -> None:
    generated = {name_of(path): text for path, text in text_files() if "/protocol/messages/" in name_of(path)}
    words = Counter(word for text in generated.values() for word in WORD.findall(text))
    found = {
        f"{one.path}:{one.name}": f"{one.path}:{one.line}: {one.name}"
        for one in unused_names(own_files(), lambda name, _: tree_of(ROOT / name))
        if not words[one.name]
    }
    assert [line for name, line in found.items() if name not in KEPT] == []
    assert set(KEPT) <= set(found), "an exception that is needed no more"


def test_every_file_is_used() -> None:
    words = {
        name: {*re.findall(r"[\w-]+", text), *re.findall(r"[\w.@-]+\.\w+", text)} for name, text in own_files().items()
    }
    names = [name_of(path) for path in tracked() if "/protocol/messages/" not in name_of(path)]
    assert list(dead_files(names, words)) == []


class TestTheChecksThemselves:
    @pytest.mark.parametrize(
        "text",
        [
            "LIMIT = 3",
            "def forgotten():\n    '''forgotten is told here'''",
            "class A:\n    def forgotten(self): pass\nA()",
            "class Forgotten: pass",
            "if True:\n    forgotten: int = 3",
        ],
    )
    def test_an_unused_name_is_found(self, text: str) -> None:
        assert [one.line for one in unused_names({"a.py": text, "b.md": "forgotten, Forgotten, LIMIT"})] != []

    @pytest.mark.parametrize(
        "text",
        [
            "LIMIT = 3\nprint(LIMIT)",
            "def told(): pass\nNAMES = ['told']\nfor name in NAMES: pass",
            "class Own(Theirs):\n    def they_call_it(self): pass\nOwn()",
            "class Own(Theirs): pass\nclass More(Own):\n    def they_call_it(self): pass\nMore()",
            "def list_action(): pass",
            "class S:\n    @rule()\n    def step(self): pass\nS()",
        ],
    )
    def test_a_used_name_is_not_found(self, text: str) -> None:
        assert list(unused_names({"a.py": text})) == []

    def test_a_name_that_two_files_define_and_none_uses_is_found(self) -> None:
        assert len(list(unused_names({"a.py": "LIMIT = 3", "b.py": "LIMIT = 4"}))) == 2

    def test_a_name_that_native_code_uses_is_not_found(self) -> None:
        assert list(unused_names({"a.py": "LIMIT = 3", "b.pyx": "from a import LIMIT"})) == []
        assert len(list(unused_names({"a.py": "LIMIT = 3", "b.pyx": "# LIMIT", "b.pyi": "LIMIT: int"}))) == 1

    def test_an_unreferenced_file_is_found(self) -> None:
        words = {"a/used.py": {"os"}, "a/dead.py": {"used", "dead"}, "a/test_x.py": set()}
        assert list(dead_files([*words], words)) == ["a/dead.py"]

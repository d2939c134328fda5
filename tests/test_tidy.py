"""The repository checks itself: size, leftovers, machine traces, stubs. Each check is a function over text, trees or
files, and is itself tested on an example that must fail. What ruff checks (wildcards, prints, leftovers in Python) is
left to it.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kafkalite._native.wire import batch
from kafkalite.errors import ErrorCode
from tests.kit.sources import ROOT, name_of, nodes_of, python_files, text_files, text_of, tracked

NATIVE_SOURCES = ROOT / "ext" / "kafkalite" / "_native"
STUBS = ROOT / "kafkalite" / "_native"

FUNCTION_LINES_MAX = 70
CLASS_METHODS_MAX = 50
CLASS_LINES_MAX = 900
BLOB_SIZE_MAX = 100 * 1024

LARGE_CLASSES: dict[str, int] = {}
"""`path:class methods` or `path:class lines` → how many, of classes over a limit. The list may only shrink: a number
that a change has lowered is lowered here too, and no class is added.
"""

LONG_FUNCTIONS = {
    "ext/kafkalite/_native/serve/fetch.pyx:examine": "its steps return early, in the order in which Kafka checks",
}
"""`path:function` → why it is better whole."""

LEFTOVERS = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b")
STUBBED = re.compile(r"Not[I]mplementedError")
TRACES = re.compile(
    # Directories of the machine this was written on, and hosts of package registries: neither belongs in a repository.
    # (A bracket in each word keeps this file from finding itself.)
    r"(?<![\w./-])/(?:w[o]rk|f[a]rm)/|/root/[.]|/h[o]me/\w+/"
    r"|py[p]i\.org|python[h]osted|registry\.npm[j]s|repo1?\.m[a]ven|deb\.d[e]bian\.org|proxy\.g[o]lang|crates[.]io/api"
)


def found_lines(pattern: re.Pattern[str], files: Iterable[tuple[str, str]]) -> list[str]:
    """`path:line: text` of every line that the pattern hits."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in files
        for number, line in enumerate(text.split("\n"), start=1)
        if pattern.search(line)
    ]


def long_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and lines of each Python function over the limit, decorators and docstring included."""
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                yield node.name, size


CYTHON_FUNCTION = re.compile(r"^(?P<indent> *)(?:def|cpdef|cdef)\b(?P<head>[^=]*?)(?P<name>\w+)\(.*$")


def long_cython_functions(text: str) -> Iterator[tuple[str, int]]:
    """The same for Cython, by indentation: a function ends before the next line that is not further in."""
    lines = text.split("\n")
    for start, line in enumerate(lines):
        match = CYTHON_FUNCTION.match(line)
        if match is None or match["head"].lstrip().startswith(("class", "enum", "struct", "extern", "packed")):
            continue
        end = start
        for number in range(start + 1, len(lines)):
            if lines[number].strip() and not lines[number].strip().startswith(")"):
                if len(lines[number]) - len(lines[number].lstrip()) <= len(match["indent"]):
                    break
                end = number
        if end - start + 1 > FUNCTION_LINES_MAX:
            yield match["name"], end - start + 1


def class_sizes(tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Name, methods and lines of each Python class; what it inherits counts for its parent."""
    for node in nodes_of(tree):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
            yield node.name, methods, (node.end_lineno or node.lineno) - node.lineno + 1


CYTHON_CLASS = re.compile(r"^(?:cdef )?class (\w+)[^\n]*:\n((?:(?: .*)?\n)*)", re.MULTILINE)
CYTHON_METHOD = re.compile(r"^    (?:def|cdef|cpdef)\b[^=\n]*?\w\(", re.MULTILINE)


def cython_class_sizes(text: str) -> Iterator[tuple[str, int, int]]:
    """The same for Cython, by indentation."""
    for match in CYTHON_CLASS.finditer(text):
        yield match[1], len(CYTHON_METHOD.findall(match[2])), 1 + match[2].rstrip().count("\n") + 1


def over_the_limits(name: str, methods: int, lines: int) -> Iterator[tuple[str, int]]:
    """What of a class is over a limit, and its number."""
    if methods > CLASS_METHODS_MAX:
        yield f"{name} methods", methods
    if lines > CLASS_LINES_MAX:
        yield f"{name} lines", lines


TYPING_ONLY = frozenset({"Protocol", "TypedDict"})
"""Bases of classes that only a type checker sees."""


def stub_names(text: str) -> set[str]:
    """Public names that a stub says the module has."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        match node:
            case ast.ClassDef(bases=bases) if {ast.unparse(base) for base in bases} & TYPING_ONLY:
                pass
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                if ast.unparse(annotation) != "TypeAlias":
                    names.add(name)
    return {name for name in names if not name.startswith("_")}


def module_names(module: object) -> set[str]:
    """Public names that a built module defines itself: what it imported does not count."""
    own = set()
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value):
            continue
        home = getattr(value, "__module__", None)
        if home is None or home == getattr(module, "__name__", None) or not callable(value):
            own.add(name)
    return own


def class_members(text: str) -> dict[str, set[str]]:
    """Class → public members, of each class a stub declares."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and not {ast.unparse(base) for base in node.bases} & TYPING_ONLY:
            names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            names |= {
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
            found[node.name] = {name for name in names if not name.startswith("_")}
    return found


def numbered(names: Iterable[str]) -> re.Pattern[str]:
    """A line that gives one of these names, or an older spelling of it, a number."""
    return re.compile(rf"^\s*(?:ERROR_|CODE_)?(?:{'|'.join(names)})\s*(?::[^=]*)?=\s*-?\d")


def product_files() -> Iterator[tuple[str, str]]:
    """Python, Cython and C of the product."""
    for path, text in text_files():
        if name_of(path).startswith(("kafkalite/", "ext/")):
            yield name_of(path), text


def test_nothing_is_left_unfinished() -> None:
    files = {name_of(path): text for path, text in text_files() if path.name != "LICENSE"}
    assert found_lines(LEFTOVERS, ((name, text) for name, text in files.items() if not name.endswith(".py"))) == []
    assert found_lines(STUBBED, files.items()) == []


def test_no_traces_of_a_machine_or_registry() -> None:
    assert found_lines(TRACES, ((name_of(path), text) for path, text in text_files())) == []


def test_functions_fit_a_screen() -> None:
    found = {f"{name_of(path)}:{name}": size for path, tree in python_files() for name, size in long_functions(tree)}
    found |= {
        f"{name_of(path)}:{name}": size for path, text in cython_files() for name, size in long_cython_functions(text)
    }
    assert {name: size for name, size in found.items() if name not in LONG_FUNCTIONS} == {}
    assert set(LONG_FUNCTIONS) <= {*found}, "an exception that is needed no more"


def cython_files() -> list[tuple[Path, str]]:
    found = [(path, text_of(path)) for path in sorted(NATIVE_SOURCES.rglob("*.p[yx][xd]"))]
    assert len(found) > 50
    return found


def test_classes_are_small_or_listed_with_their_size() -> None:
    sizes = [(f"{name_of(path)}:{name}", *size) for path, tree in python_files() for name, *size in class_sizes(tree)]
    sizes += [
        (f"{name_of(path)}:{name}", *size)
        for path, text in cython_files()
        if path.suffix == ".pyx"  # a declaration says the same again
        for name, *size in cython_class_sizes(text)
    ]
    assert dict(each for size in sizes for each in over_the_limits(*size)) == LARGE_CLASSES


def test_no_large_file_is_tracked() -> None:
    large = {name_of(path): path.stat().st_size for path in tracked() if path.stat().st_size > BLOB_SIZE_MAX}
    assert large == {}


def test_no_generated_c_is_tracked() -> None:
    generated = [name_of(path) for path, text in text_files() if path.suffix == ".c" and "Generated by Cython" in text]
    assert generated == []


def test_every_directory_of_python_has_one_way_in() -> None:
    """A package without __init__.py is left out of the wheel by setuptools, silently."""
    folders = {path.parent for path in tracked() if path.suffix == ".py" and name_of(path).startswith("kafkalite/")}
    assert [name_of(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


NATIVE_MODULES = sorted(
    path.relative_to(NATIVE_SOURCES).with_suffix("").as_posix() for path in NATIVE_SOURCES.rglob("*.pyx")
)


@pytest.mark.parametrize("name", NATIVE_MODULES)
def test_the_stub_matches_the_built_module(name: str) -> None:
    stub = STUBS / f"{name}.pyi"
    assert stub.exists(), f"kafkalite/_native/{name}.pyi is missing"
    text = stub.read_text(encoding="utf-8")
    module = importlib.import_module(f"kafkalite._native.{name.replace('/', '.')}")
    assert stub_names(text) == module_names(module)
    for class_name, members in class_members(text).items():
        built = {member for member in dir(getattr(module, class_name)) if not member.startswith("_")}
        if issubclass(getattr(module, class_name), BaseException):
            members &= built  # attributes set in __init__ are not on the class
        assert members - built == set(), f"the stub's {class_name} promises members that the build lacks"
        inherited = {member for base in getattr(module, class_name).__mro__[1:] for member in vars(base)}
        assert built - members - inherited == set(), f"the stub's {class_name} is silent about members"


ERROR_CODES = numbered(code.name for code in ErrorCode if code != ErrorCode.NONE)


def test_error_codes_have_their_numbers_in_one_table() -> None:
    """In kafkalite/errors.py, and in what is generated from it for native code."""
    own = {"kafkalite/errors.py", "ext/kafkalite/_native/wire/error_codes.pxd"}
    assert found_lines(ERROR_CODES, ((name, text) for name, text in product_files() if name not in own)) == []


BATCH_LAYOUT = "ext/kafkalite/_native/wire/batch.pxd"
LAYOUT_NAME = re.compile(r"^    ([A-Z0-9_]+) = .*$", re.MULTILINE)
NUMBERED_POSITION = re.compile(
    # A field of the header loaded or stored at a number, records cut off behind 61 bytes, the header as one struct, or
    # an earlier name of one of its facts.
    r"\b(?:load|store)_[iu]\d+\((?:data|batch|start|frame_start|p) \+ (?:8|12|16|17|21|23|27|35|43|51|53|57)\b"
    r"|\b(?:data|batch|start)\)?\[(?:16|17|21|22|23|57|61:|:61)\]"
    r"|>qiibIh"
    r"|\b(?:BATCH_HEADER_SIZE|BATCH_SIZE_MIN|BATCH_OVERHEAD|CRC_START|ATTRIBUTE_[A-Z_]+) *= *\w"
)


def layout_names() -> list[str]:
    """What batch.pxd exports: positions, sizes, attribute bits, codecs, types of markers."""
    text = (ROOT / BATCH_LAYOUT).read_text(encoding="utf-8")
    return LAYOUT_NAME.findall(text[text.index("cpdef enum") : text.index("cdef struct BatchHeader")])


def test_the_record_batch_has_one_layout() -> None:
    """Python has the very names that C has: the stub's test holds the two together."""
    names = layout_names()
    assert {"BASE_OFFSET_AT", "RECORD_COUNT_AT", "HEADER_SIZE", "CODEC_MASK", "CODEC_ZSTD", "MARKER_ABORT"} <= {*names}
    for name in names:
        assert type(getattr(batch, name)) is int
    # Other formats have separate headers and codec bits: 0.7's message sets, indexes, Avro's frame.
    others = {"ext/kafkalite/_native/classic/message_set.pxd": "CODEC_MASK", "kafkalite/avro/decoder.py": "HEADER_SIZE"}
    again = numbered(names)
    files = [(name, text) for name, text in product_files() if name != BATCH_LAYOUT]
    found = [line for line in found_lines(again, files) if others.get(line.split(":")[0], "?") not in line]
    assert found == []
    assert found_lines(NUMBERED_POSITION, files) == []


NATIVE_VERSIONS = re.compile(
    r"^\s*(?:API_)?(?:PRODUCE|FETCH)(?:_(?:MIN|MAX|OLDEST|NEWEST))?\s*(?::[^=]*)?=\s*\d"
    r"|\b(?i:produce|fetch|versions?):? \d+ ?[-–] ?\d"
)


def test_versions_of_produce_and_fetch_are_said_by_the_handler_table_alone() -> None:
    """The connection is given them; docs/protocol.md is held to the table, and the table to the messages."""
    own = ("kafkalite/broker/handlers/table.py", "kafkalite/wire/protocol/api.py", "kafkalite/wire/protocol/messages/")
    serving = (
        "ext/",
        "kafkalite/broker/composition.py",
        "kafkalite/broker/worker_factory.py",
        "kafkalite/broker/dispatch.py",
        "kafkalite/broker/handlers/",
        "kafkalite/wire/protocol/",
    )
    files = ((name, text) for name, text in product_files() if name.startswith(serving) and not name.startswith(own))
    assert found_lines(NATIVE_VERSIONS, files) == []


class TestTheChecksThemselves:
    @pytest.mark.parametrize(
        "line",
        [
            "        out.crc = load_u32(data + 17)",
            "    store_i32(start + 57, count)",
            "    records = memoryview(batch)[61:]",
            'BATCH = struct.Struct(">qiibIhiqqqhii")',
            "    ATTRIBUTE_CODEC = 0x07",
        ],
    )
    def test_a_second_layout_of_the_batch_is_found(self, line: str) -> None:
        assert NUMBERED_POSITION.search(line)

    def test_a_second_number_of_a_field_is_found(self) -> None:
        assert numbered(layout_names()).search("HEADER_SIZE = 61")
        assert numbered(layout_names()).search("    CRC_AT: Final = 17")

    @pytest.mark.parametrize(
        "line",
        ["    PRODUCE_MIN = 3", "    API_FETCH = 1", "Versions: 3-13 (v9+ flexible)", '"""Serving Fetch 4-17."""'],
    )
    def test_a_second_word_on_versions_is_found(self, line: str) -> None:
        assert NATIVE_VERSIONS.search(line)

    @pytest.mark.parametrize(
        "line",
        ["    ERROR_CORRUPT_MESSAGE = 2", "    INVALID_RECORD = 87  # a batch", "UNKNOWN_TOPIC_ID: Final = 100"],
    )
    def test_a_second_number_of_an_error_is_found(self, line: str) -> None:
        assert ERROR_CODES.search(line)
        assert not ERROR_CODES.search(line.replace("=", "=="))

    def test_leftovers_are_found(self) -> None:
        text = "x = 1\n# TO~DO later\nraise Not~ImplementedError\n".replace("~", "")
        assert found_lines(LEFTOVERS, [("a.pyx", text)]) == ["a.pyx:2: # TO~DO later".replace("~", "")]
        assert found_lines(STUBBED, [("a.py", text)]) == ["a.py:3: raise Not~ImplementedError".replace("~", "")]

    # A tilde splits the words, so that this file passes its own check.
    @pytest.mark.parametrize("line", ["cd /wo~rk/main", "https://py~pi.org/x", "/ro~ot/.cache", "open('/ho~me/me/x')"])
    def test_traces_are_found(self, line: str) -> None:
        assert TRACES.search(line.replace("~", ""))

    @pytest.mark.parametrize("line", ["net/wo~rk/thread", "host/root", "a.workspace/x", "the pool does the wo~rk/s"])
    def test_innocent_lines_are_not_traces(self, line: str) -> None:
        assert not TRACES.search(line.replace("~", ""))

    def test_a_long_function_is_found_and_one_at_the_limit_is_not(self) -> None:
        body = "    pass\n"
        text = f"def good():\n{body * 69}def bad():\n{body * 70}"
        assert list(long_functions(ast.parse(text))) == [("bad", 71)]

    def test_a_long_cython_function_is_found(self) -> None:
        body = "        x = 1\n"
        text = (
            f"cdef class A:\n    cdef int f(self,\n          int b) except -1:\n{body * 69}\n    def g(self):\n{body}"
        )
        assert list(long_cython_functions(text)) == [("f", 71)]

    def test_a_class_is_measured(self) -> None:
        text = (
            "class A:\n    x = 1\n    @property\n    def f(self): pass\n    async def g(self):\n        def h(): pass\n"
        )
        assert list(class_sizes(ast.parse(text))) == [("A", 2, 6)]

    def test_a_cython_class_is_measured(self) -> None:
        text = "cdef class A(B):\n    cdef int x\n    cdef int f(self):\n        g(1)\n\n    def g(self): pass\n\nx = 1"
        assert list(cython_class_sizes(text)) == [("A", 2, 6)]

    def test_what_is_over_a_limit_is_reported(self) -> None:
        assert list(over_the_limits("A", 50, 900)) == []
        assert list(over_the_limits("A", 51, 901)) == [("A methods", 51), ("A lines", 901)]

    def test_stub_names_are_the_public_top_level(self) -> None:
        text = (
            "import os\nX: int\ndef f() -> None: ...\nclass C:\n    y: int\n    def _z(self) -> None: ...\n_h: int\n"
            "Alias: TypeAlias = int\nclass Row(TypedDict):\n    a: int\n"
        )
        assert stub_names(text) == {"X", "f", "C"}
        assert class_members(text)["C"] == {"y"}


# --- one dialect over the product -------------------------------------------------------------------------------------

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
TYPE_FACTORIES = frozenset({"TypeVar", "ParamSpec", "NewType"})
SECTION_RULE = re.compile(r"^ *# -{2,} ?[^\s-]")
SECTION_RULE_FORM = re.compile(r"^ *# --- [^\s-].* -+$")
RULE_WIDTH = 120


def is_code(node: ast.stmt) -> bool:
    """Whether it is more than a docstring, or a text under a name."""
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def dialect(text: str, tree: ast.Module) -> Iterator[str]:
    """Yield a product module's deviations from the common spelling."""
    body = [node for node in tree.body if is_code(node)]
    if body and not (isinstance(body[0], ast.ImportFrom) and body[0].module == "__future__"):
        yield "no `from __future__ import annotations`"
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, ast.unparse(node.value)
            if value.startswith("logging.getLogger(__name__") and name != "logger":
                yield f"{name} is a logger, and loggers are called logger"
            changing = re.search(rf"^ +global .*\b{name}\b", text, re.MULTILINE)
            if CONSTANT.fullmatch(name) and not changing and value.partition("(")[0] not in TYPE_FACTORIES:
                yield f"{name} is not Final"
    for line in text.split("\n"):
        if SECTION_RULE.match(line) and not (SECTION_RULE_FORM.match(line) and len(line) == RULE_WIDTH):
            yield f"a section rule: {line.strip()[:40]}"


def test_modules_of_the_product_speak_one_dialect() -> None:
    files = python_files("kafkalite/")
    assert [f"{name_of(path)}: {what}" for path, tree in files for what in dialect(text_of(path), tree)] == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os\n", ["no `from __future__ import annotations`"]),
        ("from __future__ import annotations\n\nSIZE = 1\n", ["SIZE is not Final"]),
        ("from __future__ import annotations\n\nSIZE: Final = 1\nT = TypeVar('T')\n", []),
        ("from __future__ import annotations\n\nSIZE = 1\ndef f():\n    global SIZE\n", []),
        (
            "from __future__ import annotations\n\nlog = logging.getLogger(__name__)\n",
            ["log is a logger, and loggers are called logger"],
        ),
        ("# ---- inside ----\n", ["a section rule: # ---- inside ----"]),
        ('"""Only words."""\n', []),
    ],
)
def test_another_dialect_is_found(text: str, what: list[str]) -> None:
    assert list(dialect(text, ast.parse(text))) == what

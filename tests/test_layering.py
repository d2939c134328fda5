"""Allowed imports where import-linter cannot look: native modules, cycles, the cost and the requirements of an import.

The rules of the Python packages are in pyproject.toml: the allowed imports, checked here, and import-linter's
contracts, run by `make lint` and by a test here too.
"""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.sources import ROOT, nodes_of, text_of, tree_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NATIVE = ROOT / "ext" / "kafkalite" / "_native"

ROOMS: dict[str, set[str]] = {
    "base": set(),
    "tls": {"base"},
    "wire": {"base"},
    "avro": {"wire"},
    "log": {"base", "wire"},
    "serve": {"base", "tls", "wire", "log"},
    "classic": {"base", "wire", "log", "serve"},
}
"""Native rooms from the bottom up, and the rooms that each may use."""

NATIVE_USE = re.compile(r"^\s*(?:from|cimport|import) kafkalite\._native\.(\w+)(?:\.(\w+))?", re.MULTILINE)

PRIVATE_ATTRIBUTE = re.compile(r"\.(_(?!native\b)[a-z]\w*)")


def native_sources() -> dict[str, str]:
    """room.module → the text of what declares and what defines it."""
    texts: dict[str, str] = {}
    for path in sorted(NATIVE.rglob("*.p[yx][xd]")):
        if path.stem != "__init__":
            name = ".".join(path.relative_to(NATIVE).with_suffix("").parts)
            texts[name] = texts.get(name, "") + text_of(path)
    return texts


def strange_uses(texts: dict[str, str], rooms: dict[str, set[str]]) -> list[str]:
    """Uses of a room that the module's own may not use; a module of no room uses all wrongly."""
    return [
        f"{name} uses {room}.{module}"
        for name, text in texts.items()
        for here in [name.partition(".")[0]]
        for room, module in NATIVE_USE.findall(text)
        if room not in rooms.get(here, set()) | ({here} & rooms.keys())
    ]


def reachable(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return all modules that each one needs, directly or not; itself, where it is in a cycle."""
    reached = {}
    for name in needs:
        seen: set[str] = set()
        todo = [name]
        while todo:
            fresh = needs.get(todo.pop(), set()) - seen
            seen |= fresh
            todo += fresh
        reached[name] = seen
    return reached


def native_circles(texts: dict[str, str]) -> list[str]:
    """Modules that need themselves by way of others. One that cimports its own declarations does not count."""
    needs = {
        name: {f"{room}.{module}" for room, module in NATIVE_USE.findall(text)} - {name} for name, text in texts.items()
    }
    return sorted(name for name, seen in reachable(needs).items() if name in seen)


def test_native_rooms_use_what_stands_below() -> None:
    texts = native_sources()
    assert {name.partition(".")[0] for name in texts} == ROOMS.keys()
    assert strange_uses(texts, ROOMS) == []
    order = [*ROOMS]
    assert [room for place, room in enumerate(order) if not ROOMS[room] <= {*order[:place]}] == []


def private_names_of_others(texts: dict[str, str]) -> list[str]:
    """Uses of a private name, as an attribute, in a module that does not define it."""
    return [
        f"{name} uses {private}"
        for name, text in texts.items()
        for private in sorted(set(PRIVATE_ATTRIBUTE.findall(text)))
        if re.search(rf"(?<![\w.]){private}\b", text) is None
    ]


def test_native_modules_use_no_private_name_of_another() -> None:
    assert private_names_of_others(native_sources()) == []


def test_a_private_name_of_another_module_is_found() -> None:
    texts = {
        "room.a": "from kafkalite._native.room.b cimport B\ncdef class A:\n    cdef int _own(self)\n    self._own()",
        "room.b": "cdef int f(A a):\n    return a._own() + a.shared()",
    }
    assert private_names_of_others(texts) == ["room.b uses _own"]


def test_native_modules_need_each_other_in_no_circle() -> None:
    assert native_circles(native_sources()) == []


def test_a_use_across_native_rooms_and_a_circle_are_found() -> None:
    texts = {
        "low.a": "from kafkalite._native.low.b cimport x\nfrom kafkalite._native.low.a cimport own",
        "low.b": "from kafkalite._native.low.c cimport y",
        "low.c": "    from kafkalite._native.low.a import z",
        "low.d": "from kafkalite._native.high.e cimport (\n    E,\n)",
        "high.e": "from kafkalite._native.low.a cimport x",
        "nowhere": "from kafkalite._native.low cimport a",
    }
    assert strange_uses(texts, {"low": set(), "high": {"low"}}) == ["low.d uses high.e", "nowhere uses low."]
    assert native_circles(texts) == ["low.a", "low.b", "low.c"]


def test_rooms_keep_their_contracts() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def name_of(path: Path) -> str:
    """The module that a file is."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def names_imported(tree: ast.AST) -> frozenset[str]:
    """Every name of ours that is imported, by full name, wherever: in functions and for type checkers alone too."""
    found = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in found if name.partition(".")[0] == "kafkalite")


@functools.cache
def handed_on(tree: ast.Module) -> dict[str, str]:
    """Names that a door hands on (`from x import y as y`) → where they come from."""
    return {
        alias.name: f"{node.module}.{alias.name}"
        for node in nodes_of(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def module_behind(name: str, trees: dict[str, ast.Module]) -> str:
    """Return the module that defines a name: the one it is re-exported from, not the exporting package."""
    if name in trees:
        return name
    module, _, last = name.rpartition(".")
    handed = handed_on(trees[module]).get(last) if module in trees else None
    return module if handed is None else module_behind(handed, trees)


def circles(trees: dict[str, ast.Module]) -> list[set[str]]:
    """Parts of one package that reach each other by imports: its modules, and its packages taken as wholes."""
    needs: dict[str, set[str]] = {}
    for name, tree in trees.items():
        here = name.split(".")
        if here[-1] == "__main__":  # a program, which no module imports
            continue
        for target in (module_behind(imported, trees).split(".") for imported in names_imported(tree)):
            apart = next((i for i, (a, b) in enumerate(zip(here, target, strict=False)) if a != b), None)
            if apart is not None:
                needs.setdefault(".".join(here[: apart + 1]), set()).add(".".join(target[: apart + 1]))
    reached = reachable(needs)
    mutual = {frozenset(other for other in seen if name in reached.get(other, ())) for name, seen in reached.items()}
    return sorted((set(one) for one in mutual if one), key=sorted)


@functools.cache
def sources() -> dict[str, ast.Module]:
    return {name_of(path): tree_of(path) for path in (ROOT / "kafkalite").rglob("*.py")}


def room_of(module: str, package: str = "kafkalite") -> str:
    """`log` of kafkalite.broker.log.manager in kafkalite.broker; the package itself goes by its name."""
    return package.rpartition(".")[2] if module == package else module.removeprefix(f"{package}.").partition(".")[0]


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def strange_imports(trees: dict[str, ast.Module], rooms: dict[str, list[str]], package: str = "kafkalite") -> list[str]:
    """Imports from rooms of the package that the importer's line does not name, and rooms without a line.

    Programs have none, and the package itself may hand on from all.
    """
    inside = {name: tree for name, tree in trees.items() if within(name, package)}
    there = {room_of(name, package) for name in inside}
    found = [f"{room} has no line" for room in sorted(there - rooms.keys() - {"__main__"})]
    for name, tree in inside.items():
        if name == package or name.endswith(".__main__"):
            continue
        room = room_of(name, package)
        allowed = {room, *rooms.get(room, ())}
        targets = sorted({module_behind(imported, trees) for imported in names_imported(tree)})
        found += [
            f"{name} imports {target}"
            for target in targets
            if within(target, package) and room_of(target, package) not in allowed
        ]
    return found


def importers_of(package: str, trees: dict[str, ast.Module]) -> set[str]:
    """Rooms outside of a package that import from it."""
    return {
        room_of(name)
        for name, tree in trees.items()
        if not within(name, package)
        if any(within(module_behind(imported, trees), package) for imported in names_imported(tree))
    }


RULES = pytest.mark.parametrize(
    ("package", "table"),
    [
        pytest.param("kafkalite", "rooms", id="at the top"),
        pytest.param("kafkalite.broker", "broker-rooms", id="in the broker"),
    ],
)
"""A package, and which table of pyproject.toml has its rooms."""


@RULES
def test_rooms_import_from_those_their_line_names(package: str, table: str) -> None:
    rooms = PROJECT["tool"]["kafkalite"][table]
    assert strange_imports(sources(), rooms, package) == []
    order = [*rooms]
    assert [room for place, room in enumerate(order) if not set(rooms[room]) <= {*order[:place]}] == []


@RULES
def test_lines_name_no_room_that_is_not_used(package: str, table: str) -> None:
    """An unused permission would let a new dependency in unseen."""
    used: dict[str, set[str]] = {}
    for name, tree in sources().items():
        if within(name, package) and not name.endswith("__main__"):
            behind = {module_behind(imported, sources()) for imported in names_imported(tree)}
            rooms_used = {room_of(target, package) for target in behind if within(target, package)}
            used.setdefault(room_of(name, package), set()).update(rooms_used)
    rooms = PROJECT["tool"]["kafkalite"][table]
    assert {room: sorted(set(names) - used[room]) for room, names in rooms.items() if set(names) - used[room]} == {}


def test_only_doors_import_the_broker() -> None:
    """So that the client and the tools are of use where no broker is."""
    assert importers_of("kafkalite.broker", sources()) == {"cli", "kafkalite", "testing"}


def test_a_strange_import_is_found() -> None:
    texts = {
        "kafkalite.a": "import kafkalite.b.deep",
        "kafkalite.b.deep": "if TYPE_CHECKING:\n    from kafkalite.a import x\ndef run():\n    import kafkalite.c",
        "kafkalite.c": "",
        "kafkalite.__main__": "import kafkalite.a",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert strange_imports(trees, {"c": [], "b": ["c"]}) == [
        "a has no line",
        "kafkalite.a imports kafkalite.b.deep",
        "kafkalite.b.deep imports kafkalite.a",
    ]


def test_an_import_of_the_broker_is_found() -> None:
    texts = {
        "kafkalite": "if TYPE_CHECKING:\n    from kafkalite.broker.one import A as A",
        "kafkalite.broker": "if TYPE_CHECKING:\n    from kafkalite.broker.one import A as A",
        "kafkalite.broker.one": "from kafkalite.broker.two import B\nfrom kafkalite.base import c",
        "kafkalite.broker.two": "from kafkalite.broker import A",
        "kafkalite.base": "",
        "kafkalite.tool.deep": "def run():\n    from kafkalite.broker import A",
        "kafkalite.brokers": "import kafkalite.base",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert importers_of("kafkalite.broker", trees) == {"kafkalite", "tool"}
    rooms = {"broker": [], "two": [], "one": ["two"]}
    assert strange_imports(trees, rooms, "kafkalite.broker") == ["kafkalite.broker.two imports kafkalite.broker.one"]


def test_the_product_knows_no_benchmarks_and_no_tests() -> None:
    outside = {"benchmarks", "tests", "tools"}
    assert [
        f"{name} imports {package}"
        for name, tree in sources().items()
        for package, _ in imports(tree)
        if package in outside
    ] == []


def test_no_room_has_a_circle_in_it() -> None:
    assert circles(sources()) == []


def test_a_circle_is_found() -> None:
    texts = {
        "kafkalite.a": "from kafkalite.room import One\nimport kafkalite",
        "kafkalite.b": "def run():\n    from kafkalite.a import x",
        "kafkalite.room": "if TYPE_CHECKING:\n    from kafkalite.room.one import One as One",
        "kafkalite.room.one": "if TYPE_CHECKING:\n    import kafkalite.room.two\nimport kafkalite.room.deep.four",
        "kafkalite.room.two": "import kafkalite.room.one",
        "kafkalite.room.deep.three": "from kafkalite.room.one import z",
        "kafkalite.room.deep.four": "",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert circles(trees) == [{"kafkalite.room.deep", "kafkalite.room.one", "kafkalite.room.two"}]
    trees["kafkalite.room.two"] = ast.parse("from kafkalite.b import w")
    assert {"kafkalite.a", "kafkalite.b", "kafkalite.room"} in circles(trees)


def ranks_of(contract: str) -> dict[str, int]:
    """Module or room → its layer, from the bottom up, as a contract in pyproject.toml has it."""
    (found,) = (one for one in PROJECT["tool"]["importlinter"]["contracts"] if one["id"] == contract)
    (container,) = found.get("containers", [""])
    layers = [layer.split(" | ") for layer in reversed(found["layers"])]
    return {f"{container}.{name}".strip("."): rank for rank, names in enumerate(layers) for name in names}


def upward_imports(trees: dict[str, ast.Module], ranks: dict[str, int]) -> list[str]:
    """Return the imports of a module of the same or a higher rank, among modules and packages with a rank."""

    def part_of(name: str) -> str:
        return next((part for part in ranks if f"{name}.".startswith(f"{part}.")), "")

    return [
        f"{name} imports {target}"
        for name, tree in trees.items()
        for target in sorted(module_behind(imported, trees) for imported in names_imported(tree))
        if part_of(name) != part_of(target) and ranks.get(part_of(target), -1) >= ranks.get(part_of(name), len(ranks))
    ]


def test_the_clients_rooms_look_down_for_their_types_too() -> None:
    """import-linter's contract leaves out what only a type checker follows."""
    assert upward_imports(sources(), ranks_of("client-rooms")) == []


def test_an_upward_import_is_found() -> None:
    texts = {
        "kafkalite.a": "if TYPE_CHECKING:\n    from kafkalite.b.deep import x",
        "kafkalite.b.deep": "import kafkalite.c, kafkalite.a, kafkalite.elsewhere",
        "kafkalite.c": "",
        "kafkalite.elsewhere": "import kafkalite.c",
    }
    trees = {name: ast.parse(text) for name, text in texts.items()}
    assert upward_imports(trees, {"kafkalite.a": 2, "kafkalite.b": 1, "kafkalite.c": 1}) == [
        "kafkalite.b.deep imports kafkalite.a",
        "kafkalite.b.deep imports kafkalite.c",
    ]


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        pytest.param("import kafkalite", ["numpy", "kafkalite.broker", "kafkalite.settings"], id="the package alone"),
        pytest.param("import kafkalite.testing", ["numpy", "kafkalite.broker"], id="the pytest plugin, in every run"),
        pytest.param("import kafkalite.broker", ["numpy", "kafkalite.broker.server"], id="the broker's package"),
        pytest.param("import kafkalite.settings.broker", ["numpy", "kafkalite._native"], id="settings"),
        pytest.param(
            "import kafkalite.broker.server",
            ["numpy", "ssl", "jwt", "hashlib", "difflib", "tempfile", "kafkalite.client", "kafkalite.web"],
            id="the broker",
        ),
    ],
)
def test_importing_costs_no_more_than_it_must(statement: str, absent: list[str]) -> None:
    script = f"{statement}\nimport sys\nprint(','.join(name for name in {absent!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


IMPORTED_AS = {"google-re2": "re2", "pyjwt": "jwt"}
"""Distributions whose package has another name."""
AT_IMPORT = {
    "audit/foreign_consumers.py": {"kafka"},
    "failures/adapters/aio.py": {"aiokafka"},
    "failures/adapters/confluent.py": {"confluent_kafka"},
    "failures/adapters/kafka_python.py": {"kafka"},
    "load/arrow_files.py": {"pyarrow"},
    "spark/": {"pyspark"},
    "testing/": {"pytest"},
    "web/channels.py": {"waitress"},
}
"""Module or package → its imports outside the core install and extras, without which it would be useless."""


def packages_of(requirements: list[str]) -> set[str]:
    names = {re.split(r"[<>=\[]", text)[0] for text in requirements}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def imports(tree: ast.AST, *, in_function: bool = False) -> Iterator[tuple[str, bool]]:
    """(package, whether a function imports it), without those that only a type checker follows."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            continue  # an expression imports nothing
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0], in_function
        yield from imports(node, in_function=in_function or isinstance(node, ast.FunctionDef))


def test_modules_import_only_what_an_install_brings() -> None:
    """A developer's tools bring packages that a user does not have, so a stray import would fail at the user's only."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    core = packages_of(project["dependencies"]) | sys.stdlib_module_names | {"kafkalite"}
    optional = set().union(*(packages_of(extras[name]) for name in extras.keys() - {"dev", "test", "test_tools"}))
    strays = []
    for path in (ROOT / "kafkalite").rglob("*.py"):
        place = path.relative_to(ROOT / "kafkalite").as_posix()
        here = core.union(*(names for start, names in AT_IMPORT.items() if place.startswith(start)))
        found = set(imports(tree_of(path)))
        strays += [f"{place} imports {name}" for name, late in found if name not in (here | optional if late else here)]
    assert strays == []


def test_a_stray_import_is_found() -> None:
    text = "import os\nif TYPE_CHECKING:\n    import a\ndef run():\n    from b.c import d\nif os:\n    import e"
    found = list(imports(ast.parse(text)))
    assert found == [("os", False), ("b", True), ("e", False)]

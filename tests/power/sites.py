"""Every call in the broker by which something is made durable, by name, and how to do without one of them.

A site is `module:function#n`: the n-th (from 0) such call in a function, in the order of the text. Sites are found
in the source, not listed by hand: a new sync is a new site, and `KNOWN` in test_sites.py must say what becomes of a
broker without it.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from tests.kit.processes.broker import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

SYNCS = frozenset(
    {"fsync", "fdatasync", "sync_file", "sync_directory", "sync_file_system", "sync_path", "sync_root", "sync"}
)
"""Names of functions and methods that sync."""
ROOMS = ("broker/log", "broker/coordinator")
NOT_SYNCS = frozenset(
    {
        "kafkalite.broker.coordinator.consumer_group:ConsumerGroup.sync#0",
        "kafkalite.broker.coordinator.groups:GroupCoordinator.sync#0",
        "kafkalite.broker.coordinator.groups:GroupCoordinator.sync#1",
    }
)
"""The same word for something else: SyncGroup."""


def sites() -> list[str]:
    """Every site of the broker, in order."""
    found: list[str] = []
    for room in ROOMS:
        for path in sorted((REPOSITORY / "kafkalite" / room).rglob("*.py")):
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            found += [site for site, _ in find(ast.parse(path.read_text()), module)]
    return [site for site in found if site not in NOT_SYNCS]


def find(tree: ast.AST, module: str) -> Iterator[tuple[str, ast.Call]]:
    """(site, call) of each call in a module that syncs, or asks for it by `durable=True`."""
    yield from _find(tree, module, "", {})


def _find(node: ast.AST, module: str, scope: str, counts: dict[str, int]) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{scope}.{child.name}" if scope else child.name
        elif isinstance(child, ast.Call) and is_sync(child):
            number = counts.setdefault(scope, 0)
            counts[scope] += 1
            yield f"{module}:{scope}#{number}", child
        yield from _find(child, module, inner, counts)


def is_sync(call: ast.Call) -> bool:
    """Whether a call makes something durable."""
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    return name in SYNCS or any(
        word.arg == "durable" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )


class _LeaveOut(ast.NodeTransformer):
    def __init__(self, call: ast.Call) -> None:
        self.call = call

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if node is not self.call:
            return self.generic_visit(node)
        durable = [word for word in node.keywords if word.arg == "durable"]
        if durable:
            durable[0].value = ast.copy_location(ast.Constant(value=False), durable[0].value)
            return node
        return ast.copy_location(ast.Constant(value=None), node)


def without(source: str, module: str, site: str) -> ast.Module:
    """The tree of a module without one of its sites."""
    tree = ast.parse(source)
    calls = dict(find(tree, module))
    assert site in calls, f"{site} is not in {module}: {sorted(calls)}"
    changed = _LeaveOut(calls[site]).visit(tree)
    return ast.fix_missing_locations(changed)


def main() -> None:
    for site in sites():
        print(site)


if __name__ == "__main__":
    main()

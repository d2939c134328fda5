"""Generate the site's reference pages: the commands' help, and the docstrings of public names."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

from kafkalite.cli import COMMANDS, command_of
from kafkalite.cli.completion import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES: Final = (
    "kafkalite.broker",
    "kafkalite.client",
    "kafkalite.failures",
    "kafkalite.testing",
    "kafkalite.avro",
    "kafkalite.audit",
    "kafkalite.track",
    "kafkalite.query",
    "kafkalite.mirror",
    "kafkalite.classic",
    "kafkalite.spark.avro",
    "kafkalite.spark.json_values",
    "kafkalite.spark.streams",
)
ADDRESSED: Final = re.compile(r"<(?:<\w+>|[^<>])* at 0x[0-9a-f]+>")
"""An object as a default value: its address is another one in each build."""
TABLE_ROW: Final = re.compile(r"`?[\w.()*, ]+`? {2,}\S")


def commands() -> str:
    """Return a page with each command and each of its actions, as `--help` prints them."""
    parts = ["# Commands\n\nWhat `kafkalite COMMAND --help` prints.\n"]
    for name in COMMANDS:
        _, parser = command_of(name)
        for each in dict.fromkeys(each for _, each in walk(name, parser)):  # an alias leads to the same one
            level = "##" if each is parser else "###"
            parts.append(f"\n{level} {each.prog}\n\n{_fenced(each.format_help())}")
    return "".join(parts)


def api(package: str) -> str:
    """Return a page with the package's docstring, and its public names with signature and docstring."""
    module = importlib.import_module(package)
    parts = [f"# {package}\n\n{markdown(module)}\n"]
    for name in sorted(getattr(module, "__all__", None) or _own_names(module)):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            parts.append(f"\n## {name}\n\n{_signature(name, value)}{markdown(value)}\n")
            if inspect.isclass(value):
                parts += [_member(name, each, member) for each, member in _members(value)]
    return "".join(parts)


def _own_names(module: Any) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def _members(owner: type) -> Iterator[tuple[str, Any]]:
    """Return a class's public methods and properties with a docstring, in their order."""
    for name, value in vars(owner).items():
        target = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and inspect.getdoc(target) and (callable(target) or isinstance(target, property)):
            yield name, target


def _member(owner: str, name: str, value: Any) -> str:
    return f"\n### {owner}.{name}\n\n{_signature(name, value)}{markdown(value)}\n"


def _signature(name: str, value: Any) -> str:
    if isinstance(value, property) or not callable(value):
        return ""
    try:
        signature = ADDRESSED.sub("...", str(inspect.signature(value)))
        return _fenced(f"{name}{signature}", "python")
    except (ValueError, TypeError):  # one of C that tells no signature
        return ""


def markdown(value: Any) -> str:
    """Convert a docstring to Markdown: paragraphs as text, and preformatted blocks as code.

    Preformatted blocks are indented, or have rows such as "`name`    what it is".
    """
    text = inspect.getdoc(value) or ""
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", text))


def _block(block: str) -> str:
    lines = block.splitlines()
    rows = sum(bool(TABLE_ROW.match(line)) for line in lines)
    if any(line.startswith("  ") for line in lines) or (len(lines) > 1 and rows * 2 >= len(lines)):
        head = list(lines)
        laid_out: list[str] = []
        while head and not (head[0].startswith("  ") or TABLE_ROW.match(head[0])):
            laid_out.append(head.pop(0))
        return "\n".join(laid_out) + "\n\n" + _fenced(textwrap.dedent("\n".join(head)))
    return block


def _fenced(text: str, language: str = "text") -> str:
    return f"````{language}\n{text.rstrip()}\n````\n\n"

"""List the settings of brokers and topics: name, type, default, meaning.

kafkalite settings
kafkalite settings retention
kafkalite settings --topic --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalite.cli import UsageError
from kafkalite.cli.output import print_json, say

if TYPE_CHECKING:
    import argparse

    from kafkalite.settings.rows import Setting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="*", help="only settings whose name contains one of these words")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument("--broker", action="store_true", help="only broker settings")
    scope.add_argument("--topic", action="store_true", help="only topic settings")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from kafkalite.settings.broker import BROKER_SETTINGS
    from kafkalite.settings.topic_settings_table import TOPIC_SETTINGS

    tables = []
    if not arguments.topic:
        tables.append(("broker", BROKER_SETTINGS))
    if not arguments.broker:
        tables.append(("topic", TOPIC_SETTINGS))
    found = [(scope, row) for scope, table in tables for key, row in table.items() if matches(key, arguments.words)]
    if not found:
        raise UsageError(
            f"no setting name contains {' or '.join(arguments.words)}; run `kafkalite settings` for all names"
        )
    if arguments.json:
        print_json([as_json(scope, row) for scope, row in found])
        return 0
    for scope, row in found:
        unit = f", {row.unit}" if row.unit else ""
        changeable = ", can be changed while running" if row.dynamic and scope == "broker" else ""
        say(f"{row.key}  ({scope}; {row.type.name.lower()}{unit}; default {default_text(row)}{changeable})")
        say(f"    {row.doc}")
    return 0


def matches(key: str, words: list[str]) -> bool:
    return not words or any(word.lower() in key for word in words)


def default_text(row: Setting) -> str:
    if row.default_text:
        return row.default_text
    text = row.render(row.default)
    return "none" if text is None else text or "empty"


def as_json(scope: str, row: Setting) -> dict[str, object]:
    return {
        "scope": scope,
        "name": row.key,
        "type": row.type.name.lower(),
        "unit": row.unit,
        "default": row.render(row.default),
        "effect": row.effect.name.lower(),
        "dynamic": row.dynamic,
        "choices": list(row.choices),
        "doc": row.doc,
    }

"""Parse paths such as `$.order.id`, and select the values at a path in a JSON or Avro document.

    $.order.id     nested names                   $['odd name'].id     a name of any characters
    $.items[0]     an item, from 0                $.items[*].id        every item of a list, every value of an object

The `$` and the dot after it are optional.

Thread rule: functions are pure.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

EVERY: Final = None
"""The step `[*]`."""
Step: TypeAlias = "str | int | None"
Path: TypeAlias = tuple[Step, ...]

STEPS_MAX: Final = 64
_STEP: Final = re.compile(
    r"""\.?\[(?:(?P<index>\d{1,9})|(?P<every>\*)|'(?P<quoted>[^']*)')\]"""
    r"""|\.(?P<name>\*|[^.\[\]']+)"""
)


def parse_path(text: str) -> Path:
    """Parse a path into its steps. Raises ValueError with the reason in one sentence."""
    rest = text.removeprefix("$")
    if rest and rest[0] not in ".[":
        rest = f".{rest}"
    steps: list[Step] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            raise ValueError(f"{text!r} is not a path; expected one such as $.order.id, $.items[0] or $.items[*].id")
        position = match.end()
        if match["index"] is not None:
            steps.append(int(match["index"]))
        elif match["every"] is not None or match["name"] == "*":
            steps.append(EVERY)
        else:
            steps.append(match["quoted"] if match["quoted"] is not None else match["name"])
    if len(steps) > STEPS_MAX:
        raise ValueError(f"the path has {len(steps)} steps; at most {STEPS_MAX} are allowed")
    return tuple(steps)


def values_at(document: object, path: Path) -> list[object]:
    """Return the values at a path; empty if a step does not exist."""
    found = [document]
    for step in path:
        found = [inner for value in found for inner in _below(value, step)]
    return found


def _below(value: object, step: Step) -> list[object]:
    if isinstance(value, dict):
        if step is EVERY:
            return list(value.values())
        return [value[step]] if step in value else []
    if isinstance(value, list):
        if step is EVERY:
            return value
        return [value[step]] if isinstance(step, int) and step < len(value) else []
    return []

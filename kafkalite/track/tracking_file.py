r"""Load the file tracking.toml, which lists for each topic the places in a record where ids are.

    places = "header:correlation-id,key"        # for all other topics (default: any header, the key, the value)

    [topics]                                    # topic names or regular expressions; the first that matches is used
    orders = "json:$.order.id"
    "events\..*" = "avro:order.id,key"

Thread rule: functions are pure.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, NamedTuple

from kafkalite.base.regex import compiled
from kafkalite.errors import StartupError, reason_of
from kafkalite.track.questions import EVERYWHERE, Place, parse_places

if TYPE_CHECKING:
    from pathlib import Path


class TrackingFile(NamedTuple):
    """The contents of the file; see the module."""

    places: tuple[Place, ...] = EVERYWHERE
    rules: tuple[tuple[str, tuple[Place, ...]], ...] = ()


def load_tracking(path: Path) -> TrackingFile:
    """Load a file. Raises StartupError with the reason in one sentence."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read {path}: {reason_of(error)}") from error
    unknown = document.keys() - {"places", "topics"}
    if unknown:
        raise StartupError(f"{path}: unknown key {min(unknown)!r}; expected 'places' or '[topics]'")
    topics = document.get("topics", {})
    if not isinstance(topics, dict):
        raise StartupError(f"{path}: topics must be a table of topic names and places")
    try:
        places = parse_places(text_of(document.get("places"))) if "places" in document else EVERYWHERE
        rules = tuple((name, parse_places(text_of(text))) for name, text in topics.items())
        for name, _ in rules:
            compiled(name)
    except ValueError as error:
        raise StartupError(f"{path}: {error}") from error
    return TrackingFile(places, rules)


def text_of(value: object) -> str:
    """Return a string; raise ValueError for anything else."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string of places")  # noqa: TRY004  # as for any other that is none
    return value

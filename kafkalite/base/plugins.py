"""Objects that a setting names: `module:Class`, or a name by which Kafka's documents know a class that is built in.

They are made when the setting is read, so that a name that leads nowhere is an error at once and not at first use.
Whoever asks turns the ValueError into an error of its own kind. Any thread.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def make(text: str, *, known: Mapping[str, Any] | None = None, methods: Iterable[str] = ()) -> Any:
    """An object of the class that `text` names, made without arguments; ValueError says in words why there is none.

    `known` maps built-in names to classes; `methods` are those that the object must have.
    """
    kind = (known or {}).get(text) or _imported(text, known or {})
    try:
        made = kind()
    except Exception as error:
        raise ValueError(f"{text} could not be created without arguments: {error}") from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ValueError(f"{text} lacks {', '.join(missing)}")
    return made


def _imported(text: str, known: Mapping[str, Any]) -> Any:
    module, separator, name = text.partition(":")
    if not separator or not module or not name:
        others = f" and not one of {', '.join(sorted(known))}" if known else ""
        raise ValueError(f"{text!r} is not of the form module:Class{others}")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the module does when it is imported
        raise ValueError(f"{text} could not be imported: {error}") from error

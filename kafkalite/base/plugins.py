"""Create objects of classes that settings name: a class `module:Class`, or a built-in class with its name in Kafka.

Objects are created when the setting is read, so that a wrong name is an error at start. The caller converts the
ValueError to its own error.

Thread rule: any thread.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def make(text: str, *, known: Mapping[str, Any] | None = None, methods: Iterable[str] = ()) -> Any:
    """Create an object of the class that `text` names, without arguments.

    `known` maps the names of built-in classes to the classes. ValueError if the class cannot be imported or created, or
    lacks one of `methods`.
    """
    kind = (known or {}).get(text) or _imported(text, known or {})
    try:
        made = kind()
    except Exception as error:
        raise ValueError(f"{text} could not be created without arguments: {error}") from error
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ValueError(f"{text} has no method {', '.join(missing)}")
    return made


def _imported(text: str, known: Mapping[str, Any]) -> Any:
    module, separator, name = text.partition(":")
    if not separator or not module or not name:
        others = f", and not one of {', '.join(sorted(known))}" if known else ""
        raise ValueError(f"{text!r} is not of the form module:Class{others}")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:  # an import can raise anything
        raise ValueError(f"{text} could not be imported: {error}") from error

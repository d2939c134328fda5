"""Compile regular expressions from clients and settings with RE2, whose matching time is bounded.

RE2 compiles to automata, matches in time linear in the text's length, and refuses expressions that would become too
large. RE2 lacks the backreferences and lookaround of Java's syntax. It is loaded when the first expression is compiled.
"""

from __future__ import annotations

from typing import Any


def compiled(expression: str, bytes_max: int | None = None) -> Any:
    """Compile an expression, using at most `bytes_max` bytes (None: RE2's default). ValueError has the reason."""
    import re2

    options = re2.Options()
    options.log_errors = False
    if bytes_max is not None:
        options.max_mem = bytes_max
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None

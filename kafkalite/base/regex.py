"""Regular expressions that clients and settings bring: RE2's, which cannot hang whoever tries them.

RE2 compiles to automata, takes time in proportion to the text's length, and refuses what would become too large. What
it does not know of Java's syntax are backreferences and looking around. The engine is loaded with the first expression.
"""

from __future__ import annotations

from typing import Any


def compiled(expression: str, bytes_max: int | None = None) -> Any:
    """The expression, in at most so many bytes (None: RE2's own limit); ValueError says why it is none."""
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

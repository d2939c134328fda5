"""Compile regular expressions from clients and settings with RE2, which limits the time of a match.

RE2 matches in time that is linear in the length of the text, and rejects expressions that would need too much memory.
Unlike Java's regular expressions, it has no backreferences and no lookaround. RE2 is imported on first use.
"""

from __future__ import annotations

from typing import Any


def compiled(expression: str, bytes_max: int | None = None) -> Any:
    """Compile a regular expression. ValueError if it is invalid or needs too much memory.

    `bytes_max` is the memory limit in bytes; None means RE2's default.
    """
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

"""A command's output, captured by file descriptor."""

from __future__ import annotations

import re
from typing import Final

_LIBRDKAFKA: Final = re.compile(r"%\d\|")
"""How lines of librdkafka begin, whose threads tell of a broker that is gone when the test they belong to is over."""


def own_lines(text: str) -> str:
    """The text without the lines of clients of other tests in this process."""
    return "".join(line for line in text.splitlines(keepends=True) if not _LIBRDKAFKA.match(line))

"""Parse Java's .properties syntax, from a text or a file.

Thread rule: any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kafkalite.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def read_properties(path: Path) -> dict[str, str]:
    """Read a .properties file in UTF-8. Return its keys and values. StartupError if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StartupError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StartupError(f"the configuration file {path} is not UTF-8 (byte {error.start})") from error
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str = "configuration") -> dict[str, str]:
    r"""Parse a text in Java's .properties syntax. StartupError if it is invalid; `source` names it in the message.

    Comments begin with `#` or `!`. Key and value are separated by `=`, `:` or spaces. A line that ends with `\`
    continues on the next line. Escapes are `\t \n \r \f \uXXXX`. As in Java, the last of several values for a key is
    used.
    """
    values: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        assert match is not None, f"every line matches, but {line!r} did not"
        values[_unescape(match["key"], source, number)] = _unescape(match["value"], source, number)
    return values


_PROPERTY: Final = re.compile(r"(?P<key>(?:[^\s=:\\]|\\.)*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u(?P<hex>.{0,4})|(?P<character>.)|$)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Join lines that end with a backslash to the next one, and skip comments and blank lines.

    Yield each logical line with the number of its first line, from 1.
    """
    pending = ""
    first = 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r").lstrip(" \t\f")
        if not pending:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2 == 1:
            pending += line[:-1]
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def _unescape(text: str, source: str, number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        digits = match["hex"]
        if digits is not None:
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise StartupError(f"{source} line {number}: \\u needs four hexadecimal digits")
            return chr(int(digits, 16))
        character = match["character"] or ""
        return _ESCAPED.get(character, character)

    return _ESCAPE.sub(replace, text) if "\\" in text else text

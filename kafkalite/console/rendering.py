"""Render the bytes of records as harmless text.

Invisible and direction-changing characters are made visible (Unicode Standard Annex 9; Trojan Source). HTML is not
escaped here, since the templates do that.

Thread rule: functions are pure.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

SIZE_MAX: Final = 64 * 1024
"""Maximum bytes of a value that are shown."""
CELL_MAX: Final = 200
HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
"""Control characters except tab and line end, zero-width formats, direction marks, half surrogates."""
HEX_WIDTH: Final = 16


class Shown(NamedTuple):
    """A rendered key or value. `kind` is null, empty, text, json, avro, hex or masked.

    `size` is the size of the whole value in bytes. `cut` says that the text is truncated.
    """

    kind: str
    text: str
    size: int
    cut: bool = False


def visible(text: str) -> str:
    """Replace invisible characters by their code points."""
    return HIDDEN.sub(lambda match: f"⟦U+{ord(match[0]):04X}⟧", text)


def shown(raw: bytes | None, kind: str = "auto", size_max: int = SIZE_MAX) -> Shown:
    """Render a key or value. `kind` is auto, text, json or hex."""
    if raw is None:
        return Shown("null", "", 0)
    if not raw:
        return Shown("empty", "", 0)
    part = raw[:size_max]
    cut = len(part) < len(raw)
    if kind == "hex":
        return Shown("hex", hex_dump(part), len(raw), cut)
    if kind in {"auto", "json"} and not cut:
        pretty = pretty_json(raw)
        if pretty is not None:
            return Shown("json", visible(pretty), len(raw))
    try:
        text = decoded(part, cut=cut)
    except UnicodeDecodeError:
        if kind == "text":
            return Shown("text", visible(part.decode(errors="replace")), len(raw), cut)
        return Shown("hex", hex_dump(part), len(raw), cut)
    return Shown("text", visible(text), len(raw), cut)


def decoded(part: bytes, *, cut: bool) -> str:
    """Decode UTF-8. With `cut`, drop an incomplete character at the end. UnicodeDecodeError if the bytes are not
    UTF-8."""
    try:
        return part.decode()
    except UnicodeDecodeError as error:
        if cut and error.start >= len(part) - 3:
            return part[: error.start].decode()
        raise


def cell(raw: bytes | None) -> Shown:
    """Render a value for a table row."""
    if raw is None or not raw:
        return shown(raw)
    part = raw[: 4 * CELL_MAX]
    try:
        text = visible(" ".join(decoded(part, cut=len(part) < len(raw)).split()))
    except UnicodeDecodeError:
        text = raw[: CELL_MAX // 4].hex(" ")
        return Shown("hex", text, len(raw), len(raw) > CELL_MAX // 4)
    return Shown("text", text[:CELL_MAX], len(raw), len(text) > CELL_MAX or len(part) < len(raw))


def pretty_json(raw: bytes) -> str | None:
    """Return an object or array as indented JSON. None for other values, or if a number would change."""
    if raw.lstrip()[:1] not in {b"{", b"["}:
        return None

    def exact(text: str) -> float:
        number = float(text)
        if repr(number) != text:
            raise ValueError(text)
        return number

    try:
        document: Any = json.loads(raw.decode(), parse_float=exact, parse_constant=exact)
        return json.dumps(document, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return None


def hex_dump(raw: bytes) -> str:
    """Format bytes as offset, hexadecimal and ASCII, like hexdump -C."""
    lines = []
    for start in range(0, len(raw), HEX_WIDTH):
        row = raw[start : start + HEX_WIDTH]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<{3 * HEX_WIDTH - 1}}  {ascii_text}")
    return "\n".join(lines)

"""Render metric families as text, in Prometheus's format 0.0.4 or OpenMetrics 1.0.

The text is yielded in pieces of at most 1000 samples of one family. The thread releases the GIL after each family that
it collects and each piece that it renders, so that network workers do not wait long.

Thread rule: any thread.
"""

from __future__ import annotations

import math
import zlib
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from kafkalite._native.base import native_time as time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkalite.base.metric_families import Family

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PIECE_LINES: Final = 1000
BREATH_S: Final = 0.00005
"""Long enough for a waiting thread to wake up: after a sleep of 0, this thread would get the GIL back first."""
GZIP_LEVEL: Final = 1
_GZIP_BITS: Final = 31
"""zlib's wbits for deflate in the gzip format."""


def breathe() -> None:
    """Release the GIL briefly, so that waiting threads can run."""
    time.sleep(BREATH_S)


def wants_openmetrics(accept: str) -> bool:
    """Return whether to respond with OpenMetrics 1.0: an Accept header prefers it, or accepts both formats equally."""
    best: dict[bool, float] = {}
    for part in accept.split(","):
        kind, *parameters = [text.strip() for text in part.split(";")]
        given = dict(text.split("=", 1) for text in parameters if "=" in text)
        try:
            quality = float(given.get("q", "1"))
        except ValueError:
            quality = 0.0
        if kind == "application/openmetrics-text" and given.get("version", "1.0.0") == "1.0.0":
            best[True] = max(best.get(True, 0.0), quality)
        elif kind in {"text/plain", "text/*", "*/*"}:
            best[False] = max(best.get(False, 0.0), quality)
    return best.get(True, 0.0) > 0 and best.get(True, 0.0) >= best.get(False, 0.0)


def render(families: Iterable[Family], *, openmetrics: bool) -> Iterator[bytes]:
    """Yield the text in pieces. Families with the same name are merged, with the help text of the first."""
    for family in _joined(families).values():
        yield from _lines(family, openmetrics=openmetrics)
    if openmetrics:
        yield b"# EOF\n"


def compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Compress the pieces of a text with gzip."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_BITS)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def number(value: float) -> str:
    """Format a number for both formats."""
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _joined(families: Iterable[Family]) -> Mapping[str, Family]:
    found: dict[str, Family] = {}
    for family in families:
        breathe()
        there = found.get(family.name)
        found[family.name] = family if there is None else there._replace(rows=chain(there.rows, family.rows))
    return found


def _lines(family: Family, *, openmetrics: bool) -> Iterator[bytes]:
    sample = f"{family.name}_total" if family.kind == "counter" else family.name
    told = family.name if openmetrics else sample
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    if openmetrics:
        text = text.replace('"', '\\"')
    head = f"# HELP {told} {text}\n# TYPE {told} {family.kind}\n"
    rows = iter(family.rows)
    while some := list(islice(rows, PIECE_LINES)):
        piece = "".join([f"{sample}{rest} {value if type(value) is int else number(value)}\n" for rest, value in some])
        yield (head + piece).encode()
        head = ""
        breathe()

"""Compare the units and scales of a writer's and a reader's logical types, which Avro's schema resolution ignores.

The specification resolves schemas by their underlying types. A writer's timestamp-millis would then be read as
timestamp-micros, and decimal(5,2) as decimal(5,4), with values that are wrong by a factor.

    finer unit of the same kind     converted (`factor`): time-millis to time-micros, timestamp-millis to -nanos
    anything else that differs      refused: a coarser unit, another scale, a date read as a timestamp
    one side has no logical type    not converted, because nothing shows that the meanings differ

timestamp-* and local-timestamp-* with the same unit can be read as each other, because the number is the same. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.avro.schema import Type

NANOSECONDS: Final = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
TIME_KINDS: Final = {
    "time-millis": "int",
    "time-micros": "long",
    **{f"{zone}timestamp-{unit}": "long" for zone in ("", "local-") for unit in NANOSECONDS},
}
"""Logical types with a unit of time → the Avro type that they annotate."""


class Meaning(NamedTuple):
    """What a number means: `kind` is date, time, timestamp, decimal or duration; `unit` is ns, or digits of scale."""

    kind: str
    unit: int = 0


def meaning_of(made: Type) -> Meaning | None:
    """Return the meaning of a type; None if it has no logical type with a meaning, or an invalid one."""
    name = made.logical or ""
    if TIME_KINDS.get(name) == made.kind:
        kind, _, unit = name.removeprefix("local-").partition("-")
        return Meaning(kind, NANOSECONDS[unit])
    if name == "date" and made.kind == "int":
        return Meaning("date")
    if name == "duration" and made.kind == "fixed" and made.size == 12:
        return Meaning("duration")
    scale = made.props.get("scale", 0)
    if name == "decimal" and made.kind in {"bytes", "fixed"} and isinstance(scale, int):
        return Meaning("decimal", scale)
    return None


def factor(reader: Type, writer: Type) -> int | None:
    """Return the factor from a stored number to the reader's: 1 to keep it, None if it cannot be converted."""
    wanted, written = meaning_of(reader), meaning_of(writer)
    if wanted is None or written is None or wanted == written:
        return 1
    if wanted.kind != written.kind or wanted.kind == "decimal" or written.unit % wanted.unit:
        return None
    return written.unit // wanted.unit


def differences(new: Type, old: Type, place: str = "") -> Iterator[str]:
    """Yield a sentence for each place where a number has different meanings in two versions of a schema."""
    yield from _differences(new, old, place, set())


def _differences(new: Type, old: Type, place: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    if (id(new), id(old)) in seen:
        return
    seen.add((id(new), id(old)))
    if new.kind == "union" or old.kind == "union":
        for branch in new.branches or (new,):
            for other in old.branches or (old,):
                if branch.kind == other.kind and branch.short_name == other.short_name:
                    yield from _differences(branch, other, place, seen)
        return
    if factor(new, old) != 1:
        yield f"{place or 'the value'} is {described(new)}, but was {described(old)}"
    if new.items is not None and old.items is not None:
        yield from _differences(new.items, old.items, f"{place}[]", seen)
    before = {row.name: row for row in old.fields}
    for row in new.fields:
        partner = next((before[name] for name in (row.name, *row.aliases) if name in before), None)
        if partner is not None:
            yield from _differences(row.type, partner.type, f"{place}.{row.name}".removeprefix("."), seen)


def described(made: Type) -> str:
    """Return a logical type as text, such as decimal(5,2)."""
    if made.logical != "decimal":
        return made.logical or made.kind
    return f"decimal({made.props.get('precision')}, {made.props.get('scale', 0)})"

"""Compare the logical types of a writer's and a reader's Avro schema.

Avro's schema resolution ignores logical types. It would read a writer's timestamp-millis as timestamp-micros, or
decimal(5,2) as decimal(5,4). The values would be wrong by a constant factor.

    the reader has a finer unit     converted: time-millis to time-micros, timestamp-millis to timestamp-nanos
    other differences               refused: a coarser unit, another scale, a date read as a timestamp
    one side has no logical type    not converted, because no difference is known
    timestamp, local-timestamp      treated as the same type, because their numbers are equal

Pure: no I/O, no state.
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
    """The meaning of a stored number.

    `kind` is date, time, timestamp, decimal or duration. `unit` is in nanoseconds for a time or timestamp; it is the
    scale of a decimal.
    """

    kind: str
    unit: int = 0


def meaning_of(made: Type) -> Meaning | None:
    """Return the meaning of a type's numbers; None without a valid logical type."""
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
    """Return the factor that converts the writer's stored numbers to the reader's.

    1 means no conversion. None means that the types cannot be converted.
    """
    wanted, written = meaning_of(reader), meaning_of(writer)
    if wanted is None or written is None or wanted == written:
        return 1
    if wanted.kind != written.kind or wanted.kind == "decimal" or written.unit % wanted.unit:
        return None
    return written.unit // wanted.unit


def differences(new: Type, old: Type, place: str = "") -> Iterator[str]:
    """Yield a sentence for each field whose numbers have a different meaning in schemas `new` and `old`."""
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
    """Return the name of a type's logical type, such as "timestamp-millis" or "decimal(5, 2)"."""
    if made.logical != "decimal":
        return made.logical or made.kind
    return f"decimal({made.props.get('precision')}, {made.props.get('scale', 0)})"

"""kafkalite.base.dataclass beside the standard library's: the same classes, made by both, say and compare alike."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from kafkalite.base import dataclass as ours


def made(decorate: Any, **how: Any) -> Any:
    @decorate(**how)
    class Point:
        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        seen: list[int] = dataclasses.field(default_factory=list, compare=False)
        hidden: str = dataclasses.field(default="no", repr=False, hash=False)

    return Point


HOW = [
    {},
    {"slots": True},
    {"slots": True, "kw_only": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "eq": False},
    {"eq": False},
    {"repr": False},
    {"init": False},
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_objects_say_and_compare_what_the_standard_librarys_do(how: dict[str, Any]) -> None:
    answers = []
    for decorate in (dataclasses.dataclass, ours.dataclass):
        cls = made(decorate, **how)

        def point(x: int, y: int = 2, *, hidden: str = "no", cls: Any = cls) -> Any:
            if how.get("init", True):
                return cls(x=x, y=y, hidden=hidden)
            one = cls()
            one.x, one.y, one.seen, one.hidden = x, y, [], hidden
            return one

        one, same, other, apart = point(1), point(1), point(2), point(1, hidden="yes")
        one.seen.append(3)
        says = repr(one) if how.get("repr", True) else ""
        hashes = hash(one) == hash(apart) if cls.__hash__ is not None else None
        in_set = len({one, same, other}) if cls.__hash__ is not None else None
        answers.append((says, one == one, one == same, one == other, one == apart, one == (1, 2), hashes, in_set))
    assert answers[0] == answers[1]


def test_what_a_class_defines_itself_stays() -> None:
    @ours.dataclass
    class Named:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and other.name.lower() == self.name.lower()

        def __hash__(self) -> int:
            return hash(self.name.lower())

    assert repr(Named("a")) == "<a>"
    assert len({Named("a"), Named("A")}) == 1


def test_an_equality_of_its_own_takes_the_hash_away() -> None:
    @ours.dataclass
    class Loose:  # noqa: PLW1641  # that is the point
        name: str

        def __eq__(self, other: object) -> bool:
            return True

    with pytest.raises(TypeError, match="unhashable"):
        hash(Loose("a"))


def test_a_subclass_has_its_own_fields() -> None:
    @ours.dataclass(frozen=True)
    class Base:
        a: int

    @ours.dataclass(frozen=True)
    class Derived(Base):
        b: int

    assert Derived(1, 2) != Derived(1, 3)
    assert Base(1) != Derived(1, 2)
    assert repr(Derived(1, 2)).endswith("Derived(a=1, b=2)")


def test_no_fields() -> None:
    @ours.dataclass(frozen=True)
    class Nothing:
        pass

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert repr(Nothing()).endswith("Nothing()")


def test_an_object_within_itself_is_shown_once() -> None:
    @ours.dataclass
    class Knot:
        tied: list[Any]

    knot = Knot([])
    knot.tied.append(knot)
    assert repr(knot).endswith("Knot(tied=[...])")


@ours.dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickle finds it."""

    a: int
    b: tuple[int, ...] = ()


def test_the_librarys_functions_take_it() -> None:
    kept = Kept(1, (2,))
    assert [field.name for field in dataclasses.fields(kept)] == ["a", "b"]
    assert dataclasses.asdict(kept) == {"a": 1, "b": (2,)}
    assert dataclasses.replace(kept, a=3) == Kept(3, (2,))
    assert pickle.loads(pickle.dumps(kept)) == copy.deepcopy(kept) == kept  # noqa: S301  # what was just made
    with pytest.raises(dataclasses.FrozenInstanceError):
        kept.a = 2  # type: ignore[misc]


@pytest.mark.parametrize("what", ["order", "unsafe_hash"])
def test_what_it_does_not_make_is_refused(what: str) -> None:
    with pytest.raises(TypeError, match="does not support order"):
        made(ours.dataclass, **{what: True})

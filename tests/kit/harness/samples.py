"""Which of a test's cases `make test` runs: a sample of each family; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def sample(cases: Iterable[Any], count: int) -> list[Any]:
    """The cases of a `parametrize`, those after the first `count` marked slow. A tuple has values of several names."""
    return [case if number < count else _slow(case) for number, case in enumerate(cases)]


def _slow(case: Any) -> ParameterSet:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.slow)

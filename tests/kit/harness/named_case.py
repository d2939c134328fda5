"""Many cases in a loop of one test, whose failure names its case: each worker of xdist collects each parameter set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def named_case(name: object) -> Iterator[None]:
    """Add the name to what one round of the loop raises, where pytest shows it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {name}")
        raise

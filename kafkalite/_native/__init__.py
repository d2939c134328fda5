"""Compiled modules, built from ext/kafkalite/_native. Each has a .pyi file next to its shared object.

The environment variable KAFKALITE_NATIVE_PATH can name a directory with another build, such as the debug build. Its
modules then replace those of this tree.

Native code has three layers. A `def` function checks arguments and raises exceptions. Below it, `cdef` functions use
pointers and status codes. The innermost loops are `noexcept nogil`. A `.pxd` declares a class for other native modules,
a `.pyi` for Python; a test compares the two.

`kl_assert` (ext/c/kl_assert.h) guards changes of offsets, segments, indexes, pins, queues and producer state. In the
debug build a failure prints file, line and condition and aborts; the release build omits the check. `assert` is in both
builds. `kafkalite._native.base.debug.ENABLED` is true in the debug build.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence


def with_other_build(path: MutableSequence[str], room: str) -> None:
    """Put the subpackage `room` of the build in KAFKALITE_NATIVE_PATH, if set, at the front of a subpackage's path.

    Each subpackage calls this with its own `__path__`, because Python does not search its parent's.
    """
    if elsewhere := os.environ.get("KAFKALITE_NATIVE_PATH"):
        path.insert(0, os.path.join(os.path.abspath(elsewhere), room))

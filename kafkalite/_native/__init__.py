"""The compiled modules of kafkalite, built from ext/kafkalite/_native. Each has a .pyi stub next to its shared object.

The environment variable KAFKALITE_NATIVE_PATH may name a directory with another build, such as the debug build. Its
modules then replace those of this tree.

Native code has three layers. `def` functions check arguments and raise exceptions. They call `cdef` functions, which
use pointers and status codes. The innermost loops are `noexcept nogil`. A `.pxd` file declares a class for other native
modules, and a `.pyi` file for Python; a test compares the two.

`kl_assert` (ext/c/kl_assert.h) checks invariants: changes of offsets, segments, indexes, pins, queues and producer
state. In the debug build, a failure prints file, line and condition, and aborts. The release build omits these checks,
but keeps `assert`. `kafkalite._native.base.debug.ENABLED` is true in the debug build.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence


def with_other_build(path: MutableSequence[str], room: str) -> None:
    """Put the subpackage `room` of the build in KAFKALITE_NATIVE_PATH, if set, at the front of a subpackage's path.

    Each subpackage passes its own `__path__`, because Python does not search its parent's path.
    """
    if elsewhere := os.environ.get("KAFKALITE_NATIVE_PATH"):
        path.insert(0, os.path.join(os.path.abspath(elsewhere), room))

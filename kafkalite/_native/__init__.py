"""The compiled modules of kafkalite, built from ext/kafkalite/_native. Each has a .pyi stub next to its shared object.

Native code has three layers. `def` functions check arguments and raise exceptions. They call `cdef` functions, which
use pointers and status codes. The innermost loops are `noexcept nogil`.

A `.pxd` file declares a class for other native modules, and a `.pyi` file for Python; a test compares the two.

`kl_assert` (ext/c/kl_assert.h) checks invariants in the debug build. A failure prints file, line and condition, and
aborts. In the release build `kl_assert` does nothing, but Python's `assert` is still checked.
`kafkalite._native.base.debug.ENABLED` is true in the debug build.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence


def with_other_build(path: MutableSequence[str], room: str) -> None:
    """Put the subpackage `room` of the build in KAFKALITE_NATIVE_PATH, if set, at the front of a subpackage's path.

    Another build, such as the debug build, then replaces the modules of this tree. Each subpackage passes its own
    `__path__`, because Python does not search its parent's path.
    """
    if elsewhere := os.environ.get("KAFKALITE_NATIVE_PATH"):
        path.insert(0, os.path.join(os.path.abspath(elsewhere), room))

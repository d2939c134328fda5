"""Compiled modules built from ext/kafkalite/_native, by room; each has a .pyi beside its shared object.

KAFKALITE_NATIVE_PATH names a directory whose modules are taken instead: a debug build beside the release build.

Native code has three rings: a `def` shell that checks arguments and raises, a `cdef` core with pointers and status
codes, and `noexcept nogil` loops. The `.pxd` declares the class, the `.pyi` what Python sees; a test compares them.
`kl_assert` (ext/c/kl_assert.h) guards changes of offsets, segments, indexes, pins, queues and producer state: the
debug build prints file, line and condition and aborts, the release build omits it. `assert` is in both builds.
`kafkalite._native.base.debug.ENABLED` says which build is loaded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableSequence


def with_other_build(path: MutableSequence[str], room: str) -> None:
    """Puts the room of the build that KAFKALITE_NATIVE_PATH names, if it names one, before the room of this tree.

    Each room calls it: a package is searched by its own path, and not by that of the package around it.
    """
    if elsewhere := os.environ.get("KAFKALITE_NATIVE_PATH"):
        path.insert(0, os.path.join(os.path.abspath(elsewhere), room))

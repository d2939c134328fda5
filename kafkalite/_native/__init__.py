"""Compiled modules built from ext/kafkalite/_native, by room; each has a .pyi beside its shared object.

KAFKALITE_NATIVE_PATH names a directory whose modules are taken instead: a debug build beside the release build.
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

"""Compiled modules built from ext/kafkalite/_native; each has a .pyi beside its shared object.

KAFKALITE_NATIVE_PATH names a directory whose modules are taken instead: a debug build beside the release build.
"""

import os

if _elsewhere := os.environ.get("KAFKALITE_NATIVE_PATH"):
    __path__.insert(0, os.path.abspath(_elsewhere))

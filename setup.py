"""Builds ext/kafkalite/_native/ROOM/*.pyx into kafkalite._native.ROOM; all else of the package is in pyproject.toml.

KAFKALITE_DEBUG=1 gives the debug build: invariants (`kl_assert`, ext/c/kl_assert.h) and the bounds and initialisation
of memoryviews are checked; kafkalite._native.base.debug.ENABLED tells which build is loaded. With `--build-lib
build/debug` it stands beside the release build, and KAFKALITE_NATIVE_PATH=build/debug/kafkalite/_native has it loaded.
KAFKALITE_SANITIZE=address adds the address sanitiser to it.
KAFKALITE_NATIVE=0 leaves the modules out: the Makefile installs the tree in place so, and builds them beside it once.
KAFKALITE_CYTHONIZED=1 takes the C that an earlier build of this tree has made: for wheels, one after the other.
KAFKALITE_WARNINGS=1 turns on the strict warnings that `make warnings` sifts (Cython's own output cannot pass them).
"""

import os
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup

NATIVE = Path("ext/kafkalite/_native")
C_SOURCES = Path("ext/c")

debug = os.environ.get("KAFKALITE_DEBUG", "0") == "1"
sanitize = os.environ.get("KAFKALITE_SANITIZE", "")
warnings = os.environ.get("KAFKALITE_WARNINGS", "0") == "1"

compile_args = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wno-unreachable-code-fallthrough", "-fno-strict-aliasing"]
link_args: list[str] = []
macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
if debug:
    compile_args += ["-O1", "-g", "-UNDEBUG", "-DKL_DEBUG=1"]
else:
    # What is `cdef inline` becomes part of the loops that call it, however many there are: reading a record does not
    # fit the compiler's own limit, which costs each record of a produce request 30 instructions.
    compile_args += ["-O3", "--param=max-inline-insns-single=500"]
if warnings:
    compile_args += ["-Wsign-compare", "-Wconversion", "-O1"]
if sanitize:
    compile_args += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"]
    link_args += [f"-fsanitize={sanitize}"]

directives = {
    "language_level": 3,
    "boundscheck": debug,
    "wraparound": False,
    "initializedcheck": debug,
    "cdivision": True,
    "embedsignature": True,
    "embedsignature.format": "python",
    "freethreading_compatible": False,
}


def extension(source: Path) -> Extension:
    """One module per .pyx; a C file of the same name in ext/c is compiled into it."""
    sources = [str(source)]
    companion = C_SOURCES / f"{source.stem}.c"
    if companion.exists():
        sources.append(str(companion))
    headers = [str(path) for path in sorted(C_SOURCES.glob("*.h"))]
    return Extension(
        ".".join(source.relative_to(NATIVE.parents[1]).with_suffix("").parts),
        sources,
        include_dirs=[str(C_SOURCES), np.get_include()],
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        libraries=["dl"] if source.parent.name == "tls" else [],  # where dlopen is until glibc 2.34
        depends=headers,
    )


def extensions() -> list[Extension]:
    """Every native module, translated to C where its source changed."""
    if os.environ.get("KAFKALITE_NATIVE", "1") == "0":
        return []
    found = [extension(path) for path in sorted(NATIVE.rglob("*.pyx"))]
    if os.environ.get("KAFKALITE_CYTHONIZED", "0") == "1":
        for each in found:
            each.sources[0] = f"build/cython/{Path(each.sources[0]).with_suffix('.c')}"
        return found
    return cythonize(
        found,
        include_path=["ext"],
        build_dir=f"build/cython{'-debug' if debug else ''}{'-warnings' if warnings else ''}",
        emit_linenums=warnings or debug,
        compiler_directives=directives,
        annotate=os.environ.get("KAFKALITE_ANNOTATE", "0") == "1",
    )


setup(
    ext_modules=extensions(),
    options={"build_ext": {"parallel": min(4, os.cpu_count() or 1)}},
)

"""Builds ext/kafkalite/_native/ROOM/*.pyx into kafkalite._native.ROOM; all else of the package is in pyproject.toml.

KAFKALITE_DEBUG=1 gives the debug build: invariants (`kl_assert`, ext/c/kl_assert.h) and the bounds and initialisation
of memoryviews are checked; kafkalite._native.base.debug.ENABLED tells which build is loaded. With `--build-lib
build/debug` it stands beside the release build, and KAFKALITE_NATIVE_PATH=build/debug/kafkalite/_native has it loaded.
KAFKALITE_SANITIZE=address adds the address sanitiser to it.
KAFKALITE_NATIVE=0 leaves the modules out: the Makefile installs the tree in place so, and builds them beside it once.
KAFKALITE_CYTHONIZED=1 takes the C that an earlier build of this tree has made: for wheels, one after the other.
KAFKALITE_WARNINGS=1 turns on the strict warnings that `make warnings` sifts (Cython's own output cannot pass them).

Cython's support code for memoryviews is one module, SHARED, that the others import: a copy in each of them took a third
of the compilers' time.
"""

import os
from itertools import count
from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("ext/kafkalite/_native")
C_SOURCES = Path("ext/c")
SHARED = "kafkalite._native.base.cython_shared"
JOBS = min(4, len(os.sched_getaffinity(0)))

debug = os.environ.get("KAFKALITE_DEBUG", "0") == "1"
sanitize = os.environ.get("KAFKALITE_SANITIZE", "")
warnings = os.environ.get("KAFKALITE_WARNINGS", "0") == "1"

compile_args = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wno-unreachable-code-fallthrough", "-fno-strict-aliasing"]
link_args: list[str] = []
macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
if debug:
    compile_args += ["-O1", "-g", "-UNDEBUG", "-DKL_DEBUG=1"]
else:
    # Python's own flags ask for debug symbols, which are four fifths of a module and a third of its compilation.
    # What is `cdef inline` becomes part of the loops that call it, however many there are: reading a record does not
    # fit the compiler's own limit, which costs each record of a produce request 30 instructions.
    compile_args += ["-O3", "-g0", "--param=max-inline-insns-single=500"]
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


class CountedBuild(build_ext):
    """Prints a line for each module that it compiles, with `-q` too: a first build takes a minute."""

    def build_extensions(self) -> None:
        self._handled = count(1)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        built = Path(self.get_ext_fullpath(ext.name))
        before = built.stat().st_mtime_ns if built.exists() else None
        super().build_extension(ext)
        handled = next(self._handled)
        if built.stat().st_mtime_ns != before:
            print(f"[{handled:2}/{len(self.extensions)}] compiled {ext.name}", flush=True)


def native(name: str, *sources: str, libraries: tuple[str, ...] = ()) -> Extension:
    """An extension with the flags that all of ours share."""
    return Extension(
        name,
        list(sources),
        include_dirs=[str(C_SOURCES), np.get_include()],
        define_macros=macros,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        libraries=list(libraries),
        depends=[str(path) for path in sorted(C_SOURCES.glob("*.h"))],
    )


def extension(source: Path) -> Extension:
    """One module per .pyx; a C file of the same name in ext/c is compiled into it."""
    name = ".".join(source.relative_to(NATIVE.parents[1]).with_suffix("").parts)
    companion = C_SOURCES / f"{source.stem}.c"
    libraries = ("dl",) if source.parent.name == "tls" else ()  # where dlopen is until glibc 2.34
    return native(name, str(source), *([str(companion)] if companion.exists() else []), libraries=libraries)


def translated(module: Extension, build_dir: Path) -> Path:
    """The C that Cython makes for a module."""
    return build_dir / Path(module.sources[0]).with_suffix(".c")


def is_older(path: Path) -> bool:
    """Whether a file was made by an older version of this one, with other options perhaps."""
    return path.exists() and path.stat().st_mtime < Path(__file__).stat().st_mtime


def extensions() -> list[Extension]:
    """Every native module, the largest first, translated to C where its source changed."""
    if os.environ.get("KAFKALITE_NATIVE", "1") == "0":
        return []
    sources = sorted(NATIVE.rglob("*.pyx"), key=lambda path: (-path.stat().st_size, path))
    found = [*map(extension, sources), native(SHARED, f"ext/{SHARED.replace('.', '/')}.c")]
    build_dir = Path(f"build/cython{'-debug' if debug else ''}{'-warnings' if warnings else ''}")
    if os.environ.get("KAFKALITE_CYTHONIZED", "0") == "1":
        for each in found:
            each.sources[0] = str(translated(each, build_dir))
        return found
    return cythonize(
        found,
        include_path=["ext"],
        build_dir=str(build_dir),
        force=any(is_older(translated(each, build_dir)) for each in found),
        nthreads=JOBS,
        shared_utility_qualified_name=SHARED,
        emit_linenums=warnings or debug,
        compiler_directives=directives,
        annotate=os.environ.get("KAFKALITE_ANNOTATE", "0") == "1",
    )


if __name__ == "__main__":  # Cython's processes import this file, where Python does not fork them
    setup(
        ext_modules=extensions(),
        cmdclass={"build_ext": CountedBuild},
        options={"build_ext": {"parallel": JOBS}},
    )

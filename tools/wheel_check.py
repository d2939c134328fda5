"""Install a wheel in an empty Debian without a compiler, send a first message there, and run the quick tests.

    python -m tools.wheel_check dist/kafkalite-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl
    python -m tools.wheel_check dist/kafkalite-0.1.0-cp313-….whl --python python3.13     in an environment, as any user

Dependencies are downloaded before, only as wheels, and installed without the network. A wheel for another processor
runs under qemu (Debian: qemu-user-static). There the Python must be able to start itself without binfmt_misc, so a
small program of this machine takes its place. Needs root, for debootstrap and chroot. The systems are kept in
build/wheels/.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = ROOT / "build" / "wheels"
SUITES: Final = {"311": "bookworm", "313": "trixie"}
"""The Debian that has a Python."""
DEBIAN_ARCHS: Final = {"x86_64": "amd64", "aarch64": "arm64"}
TESTS: Final = ("tests/unit/native", "tests/parity")
TEST_PACKAGES: Final = (
    *("confluent-kafka", "cryptography", "hypothesis", "kafka-python", "kio", "lz4", "pyarrow", "pytest"),
    *("psutil", "pytest-benchmark", "pytest-timeout", "python-snappy", "xxhash"),
)
NAME: Final = re.compile(r"kafkalite-.+-cp(?P<python>\d+)-cp\d+-.*(?P<arch>x86_64|aarch64)\.whl")
MESSAGE: Final = """
import time
began = time.monotonic()
from kafkalite import Broker
from kafkalite.client import Client
with Broker(log_dirs="/tmp/first") as broker, Client(broker.bootstrap_servers) as client:
    client.admin.create_topic("first", 1)
    client.produce("first", 0, [b"hello"])
    assert sum(len(chunk.columns) for chunk in client.read("first", 0)) == 1
print(f"a first message {time.monotonic() - began:.2f} s after the start of Python", flush=True)
"""
AGAIN: Final = """
#include <unistd.h>
int main(int argc, char **argv) {
    char *words[argc + 4];
    words[0] = EMULATOR, words[1] = "-0", words[2] = PYTHON, words[3] = REAL;
    for (int i = 1; i <= argc; i++)
        words[3 + i] = argv[i];
    execv(EMULATOR, words);
    return 126;
}
"""
"""What stands where the emulated Python is looked for, by whoever starts it once more."""
FIRST: Final = """set -e
began=$(date +%s%N)
python3 -m venv /venv
/venv/bin/pip install --quiet --no-index --find-links /house /house/kafkalite-*.whl
installed=$(date +%s%N)
/venv/bin/kafkalite start --data-dir /first --listeners kafka://127.0.0.1:9092 --ready-file /ready >/start.log 2>&1 &
until [ -e /ready ]; do kill -0 $! || { cat /start.log; exit 1; }; sleep 0.02; done
echo hello | /venv/bin/kafkalite produce -t greetings
[ "$(/venv/bin/kafkalite consume -t greetings -o beginning -e)" = hello ]
ended=$(date +%s%N)
kill $!
wait $!
echo "from nothing to the first message: $(( (ended - began) / 1000000 )) ms"
echo "of it for installing: $(( (installed - began) / 1000000 )) ms"
if command -v gcc cc clang tcc; then echo "there is a compiler" >&2; exit 1; fi
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Print and run one program, which must succeed."""
    print("+", *(str(part)[:120] for part in command), flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def empty_system(suite: str, arch: str) -> Path:
    """Return a Debian with nothing but Python. For another processor it is unpacked, but not configured."""
    root = WORK / f"{suite}-{arch}"
    if (root / ".ready").exists():
        return root
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        sys.exit("an empty system is made by root, with debootstrap (Debian: apt install debootstrap)")
    shutil.rmtree(root, ignore_errors=True)
    foreign = [] if arch == platform.machine() else ["--foreign"]
    run(
        *("debootstrap", *foreign, f"--arch={DEBIAN_ARCHS[arch]}", "--variant=minbase"),
        *("--include=python3,python3-venv", suite, root),
    )
    if foreign:
        for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
            run("dpkg-deb", "-x", package, root)
        emulator = shutil.which(f"qemu-{arch}-static")
        if emulator is None:
            sys.exit(f"a wheel for {arch} runs under qemu (Debian: apt install qemu-user-static)")
        shutil.copy(emulator, root / "usr/bin")
    (root / ".ready").touch()
    return root


def fetch(wheel: Path, number: str, arch: str, house: Path) -> None:
    """Download the wheels that this wheel and the tests need."""
    shutil.rmtree(house, ignore_errors=True)
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(17, 29)] + [f"manylinux2014_{arch}"]
    flags = [f"--platform={name}" for name in platforms]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--implementation=cp"]
    run(*command, f"--python-version={number}", *flags, "--dest", house, wheel, *TEST_PACKAGES)


def check_here(root: Path, wheel: Path, house: Path) -> None:
    """Check the wheel in the empty system, as its user would."""
    for name in ("house", "venv", "first", "ready"):
        shutil.rmtree(root / name, ignore_errors=True)
    (root / "ready").unlink(missing_ok=True)
    shutil.copytree(house, root / "house")
    inside: tuple[str | Path, ...] = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", f"--root={root}")
    run(*inside, "/bin/sh", "-c", FIRST)
    copy_tests(root)
    install = "/venv/bin/pip install --quiet --no-index --find-links /house"
    tests = f"cd /tests-of && /venv/bin/python -m pytest -q -p no:cacheprovider {' '.join(TESTS)}"
    run(*inside, "/bin/sh", "-c", f"{install} {' '.join(TEST_PACKAGES)} && {tests}")
    print(f"{wheel.name}: installed and tested without a compiler")


def emulated_python(root: Path, number: str, arch: str) -> tuple[str, ...]:
    """Return the command that runs the system's Python, through a program of this machine, so that it can restart
    itself."""
    python = f"/usr/bin/python{number[0]}.{number[1:]}"
    real = f"{python}.{arch}"
    if not (root / real.lstrip("/")).exists():
        (root / python.lstrip("/")).rename(root / real.lstrip("/"))
    source = root / "again.c"
    source.write_text(AGAIN, encoding="utf-8")
    names = {"EMULATOR": f"/usr/bin/qemu-{arch}-static", "PYTHON": python, "REAL": real}
    defined = [f'-D{name}="{value}"' for name, value in names.items()]
    run("gcc", "-static", *defined, "-o", root / python.lstrip("/"), source)
    return ("env", "PYTHONPATH=/site", "chroot", str(root), python)


def unpack(house: Path, target: Path) -> None:
    """Unpack all wheels of a directory. pip refuses to install some of them, because it runs with another Python."""
    for wheel in sorted(house.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)


def check_emulated(root: Path, wheel: Path, house: Path, number: str, arch: str) -> None:
    """Unpack the wheel here, and check it under qemu."""
    shutil.rmtree(root / "site", ignore_errors=True)
    unpack(house, root / "site")
    copy_tests(root)
    inside = emulated_python(root, number, arch)
    run(*inside, "-c", MESSAGE)
    script = f"import os, sys, pytest; os.chdir('/tests-of'); sys.exit(pytest.main(['-q', *{TESTS!r}]))"
    run(*inside, "-c", script)
    print(f"{wheel.name}: tested under qemu")


def check_environment(wheel: Path, python: str, number: str) -> None:
    """Check the wheel in an environment of this machine's interpreter, which also shows what a Python version
    changes."""
    folder = WORK / f"tested-{number}"
    run(python, "-m", "venv", "--clear", folder)
    inside = folder / "bin" / "python"
    run(inside, "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel, *TEST_PACKAGES)
    copy_tests(folder)
    run(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, cwd=folder / "tests-of")


def copy_tests(root: Path) -> None:
    """Copy only the tests, so that they import the wheel, and the C headers that one of them compares."""
    shutil.rmtree(root / "tests-of", ignore_errors=True)
    shutil.copytree(ROOT / "ext" / "c", root / "tests-of" / "ext" / "c")
    shutil.copytree(ROOT / "tests", root / "tests-of" / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root / "tests-of")


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.wheel_check", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", help="interpreter of this machine, used instead of an empty system")
    arguments = parser.parse_args()
    wheel: Path = arguments.wheel.resolve()
    match = NAME.fullmatch(wheel.name)
    if match is not None and arguments.python is not None:
        check_environment(wheel, arguments.python, match["python"])
        return
    if match is None or match["python"] not in SUITES:
        sys.exit(f"{wheel.name}: wheels are checked for Python {', '.join(SUITES)} (those that a Debian has)")
    number, arch = match["python"], match["arch"]
    root = empty_system(SUITES[number], arch)
    house = WORK / f"house-{number}-{arch}"
    fetch(wheel, number, arch, house)
    if arch == platform.machine():
        check_here(root, wheel, house)
    else:
        check_emulated(root, wheel, house, number, arch)


if __name__ == "__main__":
    main()

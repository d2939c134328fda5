"""Make a Debian package of a wheel: everything under /opt/kafkalite, with systemd units, a user and a configuration.

    python -m tools.deb dist/kafkalite-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl      (Debian 12: Python 3.11)

The wheel's dependencies are downloaded as wheels and included, so the package depends only on Debian's Python. Needs
dpkg-deb. If this machine has that Python, the package contains bytecode, which the service's user could not write. With
SOURCE_DATE_EPOCH, the same wheels give the same package.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from tools.debian_copyright import copyright_file, parts
from tools.man_page import man_page
from tools.wheel_check import DEBIAN_ARCHS, NAME

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGING: Final = ROOT / "packaging"
UNITS: Final = (
    "kafkalite.service",
    "kafkalite-audit.service",
    "kafkalite-mirror@.service",
    "kafkalite-registry.service",
    "kafkalite-load@.service",
    "kafka-controller.service",
)
COMMAND: Final = """#!/bin/sh
PYTHONPATH=/opt/kafkalite/lib exec /usr/bin/python{python} -P -m kafkalite "$@"
"""
MAINTAINER: Final = "kafkalite releases <releases@kafkalite.invalid>"
"""The package's contact, in a domain without mail (RFC 2606); docs/releasing.md tells the owner to replace it."""
CONTROL: Final = """Package: kafkalite
Version: {version}
Architecture: {arch}
Maintainer: {maintainer}
Section: net
Priority: optional
Installed-Size: {size}
Depends: python{python}, libc6 (>= 2.28), libgcc-s1, libstdc++6, zlib1g
Recommends: libssl3
Description: durable Kafka broker of one process
 A broker that today's Kafka clients use unmodified, without a JVM.
 `systemctl start kafkalite` starts it. Its settings are in
 /etc/kafkalite/server.properties.
"""
CHANGES: Final = """kafkalite ({version}) stable; urgency=medium

  * Release {version}. CHANGELOG.md.gz in this directory lists its changes.

 -- {maintainer}  {date}
"""
INSTALLED: Final = """#!/bin/sh
set -e
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers kafkalite.conf
elif ! getent passwd kafkalite >/dev/null; then
    useradd --system --home-dir /var/lib/kafkalite --no-create-home --shell /usr/sbin/nologin kafkalite
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
REMOVED: Final = """#!/bin/sh
set -e
if [ "$1" = purge ]; then
    # What the units and pip wrote, and the links of `systemctl enable`. A directory that is mounted stays, empty.
    rm -rf /var/lib/kafkalite /var/lib/kafkalite-audit /var/lib/kafkalite-load || true
    rm -rf /etc/kafkalite /opt/kafkalite
    rm -f /etc/systemd/system/*.wants/kafkalite*.service /etc/systemd/system/*.wants/kafka-controller.service
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
"""The user stays, as Debian's packages leave it: files of other directories can belong to it."""
STOPPED: Final = """#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then systemctl stop 'kafkalite*.service'; fi
"""


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file of the package."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def install(target: Path, wheel: Path, number: str, arch: str, constraints: Path | None = None) -> str:
    """Install a wheel and what it needs into a directory, as /opt/kafkalite/lib will have it.

    Return the text of the package's copyright file.
    """
    platforms = [f"--platform=manylinux_2_{minor}_{arch}" for minor in range(17, 29)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--implementation=cp"]
    command += [f"--python-version={number}", *platforms, f"--platform=manylinux2014_{arch}", "--no-compile"]
    command += ["--constraint", str(constraints)] if constraints is not None else []
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)
    copyrights = copyright_file(parts(target), (ROOT / "LICENSE").read_text(encoding="utf-8"))
    shutil.rmtree(target / "bin", ignore_errors=True)  # scripts with this machine's paths
    for name in ("direct_url.json", "RECORD"):  # paths of this machine, and of those scripts
        for path in target.glob(f"*.dist-info/{name}"):
            path.unlink()
    for path in target.rglob("*"):  # some wheels have executable libraries
        path.chmod(0o755 if path.is_dir() else 0o644)
    interpreter = shutil.which(f"/usr/bin/python{number[0]}.{number[1:]}")
    if interpreter is not None:  # times are no part of such bytecode
        options = [
            "-q",
            "-j",
            "1",
            "--invalidation-mode",
            "unchecked-hash",
            "-s",
            str(target),
            "-p",
            "/opt/kafkalite/lib",
        ]
        subprocess.run([interpreter, "-m", "compileall", *options, str(target)], check=True)
    return copyrights


def installed_size(root: Path) -> int:
    """Return the package's size on a disk in KiB, as dpkg-gencontrol estimates it."""
    paths = [path for path in root.rglob("*") if "DEBIAN" not in path.relative_to(root).parts]
    return sum(-(-path.stat().st_size // 1024) if path.is_file() and not path.is_symlink() else 1 for path in paths)


def digests(root: Path) -> str:
    """Return the MD5 of each file, for `dpkg --verify`."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path.relative_to(root).as_posix(): path for path in files}
    return "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {name}\n"
        for name, path in names.items()
        if not name.startswith("DEBIAN/")
    )


def write_packed(path: Path, text: str) -> None:
    """Write a file of the package with gzip, without the time of the build."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def fill(root: Path, wheel: Path, number: str, arch: str, constraints: Path | None = None) -> None:
    """Write the installed files and the package's control files."""
    python = f"{number[0]}.{number[1:]}"
    copyrights = install(root / "opt/kafkalite/lib", wheel, number, arch, constraints)
    write(root / "usr/share/doc/kafkalite/copyright", copyrights)
    write(root / "opt/kafkalite/bin/kafkalite", COMMAND.format(python=python), 0o755)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/kafkalite").symlink_to("/opt/kafkalite/bin/kafkalite")
    version = wheel.name.split("-")[1]
    for source, target in (
        *((unit, f"lib/systemd/system/{unit}") for unit in UNITS),
        ("kafkalite.sysusers", "usr/lib/sysusers.d/kafkalite.conf"),
        ("server.properties", "etc/kafkalite/server.properties"),
        ("lintian-overrides", "usr/share/lintian/overrides/kafkalite"),
    ):
        write(root / target, (PACKAGING / source).read_text(encoding="utf-8"))
    write_packed(root / "usr/share/man/man1/kafkalite.1.gz", man_page(version))
    date = format_datetime(datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), UTC))
    changes = CHANGES.format(version=version, maintainer=MAINTAINER, date=date)
    write_packed(root / "usr/share/doc/kafkalite/changelog.gz", changes)
    write_packed(root / "usr/share/doc/kafkalite/CHANGELOG.md.gz", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    about = {"version": version, "arch": DEBIAN_ARCHS[arch], "python": python, "size": installed_size(root)}
    write(root / "DEBIAN/control", CONTROL.format(maintainer=MAINTAINER, **about))
    write(root / "DEBIAN/md5sums", digests(root))
    write(root / "DEBIAN/conffiles", "/etc/kafkalite/server.properties\n")
    for name, text in (("postinst", INSTALLED), ("postrm", REMOVED), ("prerm", STOPPED)):
        write(root / "DEBIAN" / name, text, 0o755)


def package(root: Path, wheel: Path, number: str, arch: str, constraints: Path | None = None) -> None:
    """Write the package next to the wheel. `root` is its scratch directory."""
    shutil.rmtree(root, ignore_errors=True)
    fill(root, wheel, number, arch, constraints)
    # The compressed blocks depend on the number of threads.
    command = ["dpkg-deb", "--root-owner-group", "--threads-max=1", "--build", str(root), str(wheel.parent)]
    subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.deb", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel.resolve()
    match = NAME.fullmatch(wheel.name)
    if match is None:
        sys.exit(f"{wheel.name} is no wheel of kafkalite's for Linux")
    package(ROOT / "build" / "deb", wheel, match["python"], match["arch"])


if __name__ == "__main__":
    main()

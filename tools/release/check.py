"""Checks a release's directory by use: python -m tools.release.check DIRECTORY [--only wheel,deb,image]

Checksums first, and the signature where there is one. Then each artefact for this machine's processor is installed on a
file system that is empty but for a minimal Debian (or for itself, an image), without a network or a compiler, and used:
a broker starts, a message is written and read back, and the broker stops. Wheels are used where Debian 12 has their
Python. A line that ends in "not used" names an artefact that this machine cannot check. Needs root, debootstrap,
unshare and ip.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools.release import archives, dependencies
from tools.release.build import DEBIAN_PYTHON, PACKAGES, SIGNATURE, SUMS, pins
from tools.wheel_check import DEBIAN_ARCHS, NAME, SUITES, empty_system

KINDS: Final = ("wheel", "deb", "image")
ISOLATED: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec")
PREPARE: Final = """
ip link set lo up
mkdir -p "$WORK/upper" "$WORK/work" "$WORK/root"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
mount -t proc proc "$WORK/root/proc"
mount --bind /dev "$WORK/root/dev"
inside() { chroot "$WORK/root" "$@"; }
"""
USE: Final = """
$RUN start --data-dir "$DATA" --listeners kafka://127.0.0.1:9092 --ready-file "$DATA/ready" &
broker=$!
waited=0
until [ -e "$WORK/root$DATA/ready" ]; do
    kill -0 $broker
    [ $waited -lt 1200 ]
    waited=$((waited + 1))
    sleep 0.1
done
$RUN topics list --names -b 127.0.0.1:9092
echo "hello from $KIND" | $RUN produce -t greetings
[ "$($RUN consume -t greetings -o beginning -e)" = "hello from $KIND" ]
kill $broker
wait $broker
"""
NO_COMPILER: Final = """
for name in gcc cc clang tcc; do
    if [ -e "$WORK/root/usr/bin/$name" ]; then echo "there is a compiler: $name" >&2; exit 1; fi
done
"""
WHEEL: Final = """
inside python3 -m venv /venv
inside sh -ec "/venv/bin/pip install --quiet --no-index --find-links /house /house/kafkalite-*.whl"
RUN="chroot $WORK/root /venv/bin/kafkalite"
"""
DEB: Final = """
inside dpkg --install /house/package.deb >"$WORK/dpkg.log" || { cat "$WORK/dpkg.log"; exit 1; }
inside mkdir -p "$DATA"
RUN="chroot $WORK/root kafkalite"
"""
IMAGE: Final = """
mount -t tmpfs -o mode=1777 tmpfs "$WORK/root/tmp"
mount -t tmpfs -o mode=0700,uid=10001,gid=10001 tmpfs "$WORK/root$DATA"
mount -o remount,ro "$WORK/root"
if touch "$WORK/root/written" 2>/dev/null; then echo "the root can be written" >&2; exit 1; fi
RUN="env -i $IMAGE_ENV $(command -v chroot) --userspec=$IMAGE_USER $WORK/root /usr/bin/kafkalite"
"""
"""How the image is run: by its own user, its root read-only but for /tmp and the volume."""


def verify(folder: Path) -> list[str]:
    """Return a line for each file that is missing, changed or not listed in the checksums."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {path.name for path in folder.iterdir()} - {SUMS, SIGNATURE}
    found = [f"{name} is missing" for name in sorted(expected.keys() - there)]
    found += [f"{name} is not in {SUMS}" for name in sorted(there - expected.keys())]
    for name in sorted(there & expected.keys()):
        if archives.sha256(folder / name) != expected[name]:
            found.append(f"{name} has another SHA-256 than {SUMS} says")
    return found


def unpack_image(archive: Path, root: Path) -> dict[str, str]:
    """Unpack an image's layers, each blob checked against its digest; return the variables that run it."""
    with tarfile.open(archive) as outer:

        def blob(digest: str) -> bytes:
            file = outer.extractfile(f"blobs/sha256/{digest.removeprefix('sha256:')}")
            assert file is not None, digest
            content = file.read()
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest, digest
            return content

        index = outer.extractfile("index.json")
        assert index is not None, "no index.json"
        (entry,) = json.load(index)["manifests"]
        manifest = json.loads(blob(entry["digest"]))
        settings = json.loads(blob(manifest["config"]["digest"]))["config"]
        root.mkdir(parents=True)
        for layer in manifest["layers"]:
            subprocess.run(
                ["tar", "--extract", "--gzip", "--same-owner", "-C", root], input=blob(layer["digest"]), check=True
            )
    return {"IMAGE_USER": settings["User"], "IMAGE_ENV": " ".join(settings["Env"])}


def use(kind: str, prepare: str, lower: Path, **variables: str) -> None:
    """Install and use one artefact on a copy of `lower` that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-release-") as scratch:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/tmp", "KIND": kind}  # noqa: S108  # inside
        environment |= {"LOWER": str(lower), "WORK": scratch, "DATA": "/var/lib/kafkalite", **variables}
        script = PREPARE + prepare + NO_COMPILER + USE
        subprocess.run([*ISOLATED, script], check=True, env=environment, timeout=900)


def house(folder: Path, *files: Path, packages: str = "", arch: str = "") -> str:
    """Fill a directory with what is installed, and return it as a lower layer: `folder`/house."""
    target = folder / "house"
    target.mkdir(parents=True)
    for path in files:
        shutil.copy(path, target / ("package.deb" if path.suffix == ".deb" else path.name))
    if packages:
        constraints = folder / "constraints.txt"
        constraints.write_text(packages, encoding="utf-8")
        dependencies.fetch(packages.split(), DEBIAN_PYTHON, arch, target, constraints)
    return str(folder)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of artefacts, with commas between them")
    parsed = parser.parse_args(arguments)
    folder: Path = parsed.directory.resolve()
    if wrong := verify(folder):
        print(*wrong, sep="\n")
        return 1
    print(f"{SUMS}: every file as listed")
    if (folder / SIGNATURE).exists():
        subprocess.run(["gpg", "--batch", "--verify", str(folder / SIGNATURE), str(folder / SUMS)], check=True)
    if os.geteuid() != 0:
        sys.exit("using the artefacts needs root, to mount file systems")
    arch = platform.machine()
    asked = parsed.only.split(",")
    failed = 0
    for path in sorted(folder.iterdir()):
        try:
            said = check(path, arch, asked)
        except subprocess.CalledProcessError as error:
            failed += 1
            said = f"failed: a command in it ended with status {error.returncode}"
        if said:
            print(f"{path.name}: {said}", flush=True)
    return 1 if failed else 0


def check(path: Path, arch: str, asked: list[str]) -> str:
    """Use a file of a release if it is an artefact of the kinds `asked`. Return what to report, or nothing."""
    match = NAME.fullmatch(path.name)
    is_image = "-image-" in path.name
    kind = "wheel" if match is not None else "deb" if path.suffix == ".deb" else "image" if is_image else ""
    if kind not in asked:
        return ""
    is_ours = path.stem.endswith(DEBIAN_ARCHS[arch])
    if match is not None:
        is_ours = (match["python"], match["arch"]) == (DEBIAN_PYTHON, arch)
    if not is_ours:
        return "not used"
    with tempfile.TemporaryDirectory(prefix="kafkalite-house-") as name:
        scratch = Path(name)
        if is_image:
            variables = unpack_image(path, scratch / "root")
            use(kind, IMAGE, scratch / "root", **variables)
            return "used"
        system = empty_system(SUITES[DEBIAN_PYTHON], arch)
        if kind == "deb":
            use(kind, DEB, system, LOWER=f"{house(scratch, path)}:{system}")
        else:
            packages = pins((path.parent / PACKAGES).read_text(encoding="utf-8"), f"needed {DEBIAN_PYTHON}")
            extra = house(scratch, path, packages=packages, arch=arch)
            use(kind, WHEEL, system, LOWER=f"{extra}:{system}", DATA="/data")
    return "installed and used"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

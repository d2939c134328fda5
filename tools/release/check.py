"""Check a release's directory by using it: python -m tools.release.check DIRECTORY [--only wheel,deb,image]

First it verifies the checksums, the signature if there is one, the list of files in README.md and the links of the
pages. Each wheel must be stripped, must not need a newer glibc than promised, and must contain its SBOM. Each Debian
package must pass lintian if it is installed.

Then each artifact is installed and used without network and compiler: a broker starts, a message is written and read
back, and the broker stops. The Debian package is also removed and purged. The file system is a minimal Debian, or for
an image only the image. If no Debian has a wheel's Python, this machine's is mounted. Artifacts for another processor
are unpacked and used under qemu. "untested" marks what this machine cannot use, with the reason. Needs root,
debootstrap, unshare, ip and readelf; qemu-user-static for other processors.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tools import wheels
from tools.release import archives, dependencies, pages, readme
from tools.release.build import DEBIAN_PYTHON, KEY, PACKAGES, SIGNATURE, SUMS, UNLISTED, pins
from tools.wheel_check import DEBIAN_ARCHS, NAME, SUITES, empty_system, emulated_python, unpack

KINDS: Final = ("wheel", "deb", "image")
IMAGE_BYTES_MAX: Final = 120_000_000
SBOM: Final = re.compile(r"[^/]+\.dist-info/sboms/[^/]+\.cdx\.json")
ISOLATED: Final = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec")
PREPARE: Final = """
ip link set lo up
mkdir -p "$WORK/upper" "$WORK/work" "$WORK/root"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/root"
mount -t proc proc "$WORK/root/proc"
mount --bind /dev "$WORK/root/dev"
if [ -n "$MOUNTED" ]; then
    mkdir -p "$WORK/root$MOUNTED"
    mount --bind -o ro "$MOUNTED" "$WORK/root$MOUNTED"
fi
inside() { chroot "$WORK/root" "$@"; }
"""
USE: Final = """
$RUN start --data-dir "$DATA" --listeners kafka://127.0.0.1:9092 --ready-file "$DATA/ready" &
broker=$!
waited=0
until [ -e "$WORK/root$DATA/ready" ]; do
    kill -0 $broker
    [ $waited -lt 6000 ]
    waited=$((waited + 1))
    sleep 0.1
done
$RUN $HEALTH
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
inside "$PYTHON" -m venv /venv
inside sh -ec "/venv/bin/pip install --quiet --no-index --find-links /house /house/kafkalite-*.whl"
RUN="chroot $WORK/root /venv/bin/kafkalite"
"""
EMULATED: Final = """
mkdir -p "$WORK/root$DATA"
RUN="env PYTHONPATH=$SITE chroot $WORK/root $PYTHON -P -m kafkalite"
"""
DEB: Final = """
inside dpkg --install /house/package.deb >"$WORK/dpkg.log" || { cat "$WORK/dpkg.log"; exit 1; }
inside mkdir -p "$DATA"
RUN="chroot $WORK/root kafkalite"
"""
PURGE: Final = """
for name in /usr/share/doc/kafkalite/copyright /usr/share/man/man1/kafkalite.1.gz; do inside test -s "$name"; done
package=$(inside dpkg-deb --field /house/package.deb Package)
inside dpkg --remove "$package" >"$WORK/dpkg.log" 2>&1 || { cat "$WORK/dpkg.log"; exit 1; }
for name in "$DATA" /etc/kafkalite/server.properties; do inside test -e "$name"; done
inside dpkg --purge "$package" >"$WORK/dpkg.log" 2>&1 || { cat "$WORK/dpkg.log"; exit 1; }
for name in "$DATA" /etc/kafkalite /opt/kafkalite /usr/bin/kafkalite; do inside test ! -e "$name"; done
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
    there = {path.name for path in folder.iterdir()} - UNLISTED
    found = [f"{name} is missing" for name in sorted(expected.keys() - there)]
    found += [f"{name} is not in {SUMS}" for name in sorted(there - expected.keys())]
    for name in sorted(there & expected.keys()):
        if archives.sha256(folder / name) != expected[name]:
            found.append(f"{name} has another SHA-256 than {SUMS} says")
    return found


def unlisted(folder: Path) -> list[str]:
    """Return a line for each difference between the directory and the list in its README.md."""
    page = folder / readme.README
    if not page.exists():
        return [f"{readme.README} is missing"]
    return readme.faults(page.read_text(encoding="utf-8"), {path.name for path in folder.iterdir()})


def signed_by(folder: Path) -> str:
    """Return the fingerprint of the key that signed the checksums; exit if that is not the key in the directory."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-keys-") as home:
        gpg = ["gpg", "--batch", "--quiet", "--homedir", home, "--status-fd", "1"]
        subprocess.run([*gpg, "--import", str(folder / KEY)], check=False, stdout=subprocess.DEVNULL)
        command = [*gpg, "--verify", str(folder / SIGNATURE), str(folder / SUMS)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    valid = re.search(r"VALIDSIG .* (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode or valid is None:
        sys.exit(f"{SIGNATURE} is no signature of {SUMS} by the key in {KEY}")
    return valid[1]


def unpack_image(archive: Path, root: Path) -> dict[str, str]:
    """Unpack an image's layers, checking each blob against its digest; return the variables that run it."""
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
    health = settings["Healthcheck"]["Test"][2:]  # after CMD and the command's name
    return {"IMAGE_USER": settings["User"], "IMAGE_ENV": " ".join(settings["Env"]), "HEALTH": " ".join(health)}


def use(kind: str, prepare: str, lower: str, **variables: str) -> None:
    """Install and use one artifact on a copy of the directories `lower`, which is then deleted."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-release-") as scratch:
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/tmp", "KIND": kind}  # noqa: S108  # inside
        environment |= {"LOWER": lower, "WORK": scratch, "DATA": "/var/lib/kafkalite", "MOUNTED": "", "HEALTH": "ping"}
        environment |= variables
        script = PREPARE + prepare + NO_COMPILER + USE + (PURGE if prepare is DEB else "")
        subprocess.run([*ISOLATED, script], check=True, env=environment, timeout=1800)


def house(folder: Path, artefact: Path, number: str, arch: str) -> Path:
    """Fill `folder`/house with a wheel or a Debian package, and with the packages that a wheel needs; return it."""
    target = folder / "house"
    target.mkdir(parents=True)
    shutil.copy(artefact, target / ("package.deb" if artefact.suffix == ".deb" else artefact.name))
    if artefact.suffix == ".whl":
        packages = pins((artefact.parent / PACKAGES).read_text(encoding="utf-8"), f"needed {number}")
        constraints = folder / "constraints.txt"
        constraints.write_text(packages, encoding="utf-8")
        dependencies.fetch(packages.split(), number, arch, target, constraints)
    return target


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of artefacts to check, separated by commas")
    parsed = parser.parse_args(arguments)
    folder: Path = parsed.directory.resolve()
    if wrong := verify(folder) or unlisted(folder) or pages.dead_links(folder):
        print(*wrong, sep="\n")
        return 1
    print(f"{SUMS} and {readme.README}: every file as listed; no dead link in the pages")
    if (folder / SIGNATURE).exists():
        print(f"{SIGNATURE}: made with the key {signed_by(folder)}; compare it with a fingerprint from elsewhere")
    if os.geteuid() != 0:
        sys.exit("using the artefacts needs root, to mount file systems")
    asked = parsed.only.split(",")
    failed = 0
    for path in sorted(folder.iterdir()):
        try:
            said = check(path, asked)
        except (subprocess.SubprocessError, ValueError) as error:
            failed += 1
            said = f"failed: {describe(error)}"
        if said:
            print(f"{path.name}: {said}", flush=True)
    return 1 if failed else 0


def describe(error: subprocess.SubprocessError | ValueError) -> str:
    """Return the text to report for a failed check."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"a command in it ended with status {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done within {error.timeout:g} s"
    return str(error)


def check(path: Path, asked: list[str]) -> str:
    """Use a file of a release if it is an artifact of the kinds `asked`. Return the text to report, if any.

    Raises ValueError or a SubprocessError if the artifact is wrong.
    """
    match = NAME.fullmatch(path.name)
    kind = (
        "wheel" if match is not None else "deb" if path.suffix == ".deb" else "image" if "-image-" in path.name else ""
    )
    if kind not in asked or not kind:
        return ""
    if kind == "wheel" and (wrong := faults_of_wheel(path)):
        raise ValueError("; ".join(wrong))
    if kind == "deb" and (wrong := faults_of_package(path)):
        raise ValueError("; ".join(wrong))
    if kind == "image" and path.stat().st_size > IMAGE_BYTES_MAX:
        raise ValueError(f"{path.stat().st_size:,} bytes; an image has at most {IMAGE_BYTES_MAX:,}")
    number = match["python"] if match is not None else DEBIAN_PYTHON
    arch = next(arch for arch, debian in DEBIAN_ARCHS.items() if path.stem.endswith((arch, debian)))
    with tempfile.TemporaryDirectory(prefix="kafkalite-house-") as name:
        if arch != platform.machine():
            return check_emulated(path, kind, number, arch, Path(name))
        return check_here(path, kind, number, arch, Path(name))


def check_here(path: Path, kind: str, number: str, arch: str, scratch: Path) -> str:
    """Install and use an artifact for this processor."""
    if kind == "image":
        variables = unpack_image(path, scratch / "root")
        use(kind, IMAGE, str(scratch / "root"), **variables)
        return "used"
    python, mounted = "python3", ""
    if number not in SUITES:
        found = [each for each in wheels.interpreters() if each.tag == f"cp{number}"]
        if not found:
            return f"untested: no Debian and nothing on this machine has CPython {number[0]}.{number[1:]}"
        python, mounted = prefix_of(found[0])
    system = empty_system(SUITES.get(number, SUITES[DEBIAN_PYTHON]), arch)
    house(scratch, path, number, arch)
    prepare = DEB if kind == "deb" else WHEEL
    data = {} if kind == "deb" else {"DATA": "/data"}
    use(kind, prepare, f"{scratch}:{system}", PYTHON=python, MOUNTED=mounted, **data)
    return f"installed and used{f' with {mounted}' if mounted else ''}"


def prefix_of(interpreter: wheels.Interpreter) -> tuple[str, str]:
    """Return an interpreter's executable and the directory of its installation, following pyenv's links."""
    code = "import sys; print(sys.base_prefix)"
    prefix = subprocess.run([interpreter.path, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return f"{prefix}/bin/python{interpreter.version[0]}.{interpreter.version[1]}", prefix


def check_emulated(path: Path, kind: str, number: str, arch: str, scratch: Path) -> str:
    """Unpack and use an artifact for another processor."""
    if shutil.which(f"qemu-{arch}-static") is None:
        return f"untested: this machine has no qemu-{arch}-static"
    if number not in SUITES:
        return f"untested: no Debian has CPython {number[0]}.{number[1:]} for {arch}"
    if kind == "image":
        return "untested: images are used on their own processor only"
    system = empty_system(SUITES[number], arch)
    python = emulated_python(system, number, arch)[-1]
    layer = scratch / "layer"
    if kind == "deb":
        subprocess.run(["dpkg-deb", "--extract", path, layer], check=True)
    else:
        unpack(house(scratch, path, number, arch), layer / "site")
    site = "/opt/kafkalite/lib" if kind == "deb" else "/site"
    use(kind, EMULATED, f"{layer}:{system}", PYTHON=python, SITE=site)
    return "unpacked and used under qemu"


def faults_of_wheel(path: Path) -> list[str]:
    """Return the faults of a wheel's native modules and SBOM, without running it."""
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory(prefix="kafkalite-modules-") as folder:
        names = archive.namelist()
        modules = [name for name in names if name.endswith(".so")]
        found = [
            f"{name}: {fault}" for name in modules for fault in faults_of_module(Path(archive.extract(name, folder)))
        ]
        boms = [name for name in names if SBOM.fullmatch(name)]
        found += [] if modules else ["no native module"]
        tag = f"manylinux_2_{wheels.GLIBC_MINOR}_"
        found += [] if f"-{tag}" in path.name else [f"not tagged {tag}…"]
        found += [] if boms else ["no SBOM"]
        found += [
            f"{name} is no CycloneDX" for name in boms if json.loads(archive.read(name)).get("bomFormat") != "CycloneDX"
        ]
    return found


def faults_of_package(path: Path) -> list[str]:
    """Return the errors and warnings of lintian about a Debian package, or nothing where lintian is not installed."""
    if shutil.which("lintian") is None:
        return []
    command = ["lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    if done.returncode and not done.stdout:
        return [f"lintian failed: {done.stderr.strip()}"]
    return [line for line in done.stdout.splitlines() if line.startswith(("E: ", "W: "))]


def faults_of_module(path: Path) -> list[str]:
    """Return the faults of a shared object: symbols of a newer glibc, or a symbol table that is not stripped."""
    read = ["readelf", "--wide", "--version-info", "--sections", str(path)]
    text = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    needed = sorted({(int(major), int(minor)) for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text)})
    found = [f"needs glibc {major}.{minor}" for major, minor in needed if (major, minor) > (2, wheels.GLIBC_MINOR)]
    return found + (["not stripped"] if re.search(r"\s\.(symtab|debug_info)\s", text) else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

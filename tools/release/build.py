"""Build a release: `make release VERSION=0.2.0`, or python -m tools.release.build VERSION [OPTIONS]

Everything is built from a clone of HEAD in a scratch directory, in which the version is set. The same commit, version
and package list give the same bytes, except for signatures; `python -m tools.release.compare ONE OTHER` checks this.
The package list is packages.txt in the release's directory. `--packages FILE` builds with that of an earlier run.

    --arch x86_64,aarch64    wheels for other processors, too (Debian: gcc-aarch64-linux-gnu)
    --python /usr/bin/python3.11    may be repeated; default: each CPython from 3.11 on that is found
    --sign-key KEY           sign SHA256SUMS with this key of GnuPG (an id, a fingerprint or an address), and write
                             its public key
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

from tests.power import proof
from tools import deb, wheels
from tools.release import archives, crates, dependencies, image, pages, readme
from tools.wheel_check import DEBIAN_ARCHS, NAME

ROOT: Final = Path(__file__).resolve().parents[2]
VERSION: Final = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
PACKAGES: Final = "packages.txt"
ABOUT_PACKAGES: Final = """\
# Everything that went into kafkalite {version}: `PACKAGE==VERSION  # USE`, written by `python -m tools.release.build`.
# build: Python packages that build the wheels          needed 311: what a wheel for CPython 3.11 installs with it
# image: the image's Debian packages, with SHA-256      site: Python packages that render the documentation
# toolchain: compilers, linkers and interpreters
# The same commit and this list give the same bytes: `python -m tools.release.build {version} --packages packages.txt`.
"""
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = f"{SUMS}.asc"
KEY: Final = "signing-key.asc"
"""The public key of the signature."""
UNLISTED: Final = frozenset((SUMS, SIGNATURE, KEY))
"""The files that the checksums do not list; without a key of the owner's, the last two do not exist."""
DEBIAN_PYTHON: Final = "311"
"""Of Debian 12, for which the package and the image are."""
RELEASED: Final = ("kafkalite", "ext", ":(exclude)kafkalite/version.py")
"""The paths whose code is released, for git. The commit that cuts a release changes only the version."""
COMPILED_IN: Final = {"cython": "Apache-2.0", "numpy": "BSD-3-Clause"}
"""Whose code the compiler puts into native modules: Cython's support code, numpy's headers."""


@dataclass
class Release:
    """The state that the steps share. `tree` is the clone that is built; `epoch` is the commit's time in seconds."""

    version: str
    out: Path
    work: Path
    epoch: int
    commit: str
    given_packages: str | None
    packages: set[str] = field(default_factory=set)
    """Lines of the package list."""
    needed: dict[tuple[str, str], list[dependencies.Dependency]] = field(default_factory=dict)
    """What the wheels install with them: Python ("311") and processor → packages."""
    compiled_in: list[dependencies.Bundled] = field(default_factory=list)
    debian: list[dependencies.Bundled] = field(default_factory=list)
    """The image's packages of Debian."""
    texts: dict[str, bytes] = field(default_factory=dict)
    """Licence texts by their names in the archive."""

    @property
    def tree(self) -> Path:
        return self.work / "kafkalite"

    def environment(self) -> dict[str, str]:
        """The environment variables of every program that builds."""
        found = {
            **os.environ,
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "PYTHONHASHSEED": "0",
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }
        found["CCACHE_BASEDIR"], found["PIP_DISABLE_PIP_VERSION_CHECK"] = str(self.tree), "1"
        if self.given_packages is not None:
            found["PIP_CONSTRAINT"] = str(self.constraints("build"))
        return found

    def run(self, *command: str | Path) -> None:
        """Run one program in the clone. It must succeed."""
        print("+", *(str(word) for word in command[:8]), flush=True)
        subprocess.run([str(word) for word in command], cwd=self.tree, check=True, env=self.environment())

    def constraints(self, use: str) -> Path:
        """Write the lines of the given package list for one use, as a constraints file for pip."""
        path = self.work / f"constraints-{use}.txt"
        path.write_text(pins(self.given_packages or "", use), encoding="utf-8")
        return path

    def record(self, use: str, lines: list[str]) -> None:
        """Add packages to the package list: `name==version`, optionally with a marker."""
        self.packages |= {f"{line}  # {use}" for line in lines}


def pins(packages: str, use: str) -> str:
    """Return the lines of a package list for one use, as pip reads them."""
    return "".join(f"{line.partition('  # ')[0]}\n" for line in packages.splitlines() if line.endswith(f"  # {use}"))


def output(*command: str | Path, cwd: Path) -> str:
    """Return what a program prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def clone(release: Release) -> None:
    """Clone HEAD, and set the version there."""
    shutil.rmtree(release.work, ignore_errors=True)
    release.work.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(release.tree)], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--detach", release.commit], cwd=release.tree, check=True)
    target = release.tree / "kafkalite" / "version.py"
    text = target.read_text(encoding="utf-8")
    target.write_text(re.sub(r'(?m)^(VERSION: Final = )".*"$', rf'\1"{release.version}"', text), encoding="utf-8")


def build_sdist(release: Release, python: Path) -> None:
    """Write the source distribution."""
    folder = release.work / "sdist"
    release.run("env", "KAFKALITE_NATIVE=0", python, "setup.py", "-q", "egg_info", "sdist", "--dist-dir", folder)
    (made,) = folder.glob("*.tar.gz")
    archives.normalise_tar_gz(made, release.out / made.name, release.epoch)
    for leftover in release.tree.glob("*.egg-info"):
        shutil.rmtree(leftover)


def build_wheels(release: Release, interpreters: list[wheels.Interpreter], arguments: argparse.Namespace) -> None:
    """Build the wheels of every interpreter and processor, in the clone."""
    command: list[str | Path] = [sys.executable, "-P", "-m", "tools.wheels", "--arch", arguments.arch]
    command += ["--out", release.out, "--jobs", str(arguments.jobs)]
    for each in interpreters:
        command += ["--python", each.path]
    release.run("env", f"PYTHONPATH={release.tree}", *command)
    environments = [*(each.tag for each in interpreters), "tools"]
    for tag in environments:
        python = release.tree / "build" / "wheels" / tag / "bin" / "python"
        minor = output(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", cwd=release.work)
        # venv put its setuptools into the tools' environment, and the one that builds may be newer.
        excluded = ("--exclude", "pip", *(("--exclude", "setuptools") if tag == "tools" else ()))
        frozen = output(python, "-m", "pip", "freeze", "--all", *excluded, cwd=release.work).splitlines()
        release.record("build", [f'{line} ; python_version == "{minor}"' for line in frozen])


def fetch_needed(release: Release, numbers: list[str], archs: str) -> None:
    """Download what the wheels install with them. Exit if the licence text of a Rust crate in it is not stored."""
    project = tomllib.loads((release.tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for number, arch in itertools.product(numbers, archs.split(",")):
        folder = release.work / "needed" / f"{number}-{arch}"
        folder.mkdir(parents=True)
        use = f"needed {number}"
        constraints = release.constraints(use) if release.given_packages is not None else None
        dependencies.fetch(project["dependencies"], number, arch, folder, constraints)
        needed = [dependencies.read(path) for path in sorted(folder.glob("*.whl"))]
        release.record(use, [f"{each.name}=={each.version}" for each in needed])
        try:
            release.texts |= {name: text for each in needed for name, text in (each.files | each.texts).items()}
        except crates.MissingTextsError as error:
            sys.exit(str(error))
        release.needed[number, arch] = needed


def describe_wheels(release: Release) -> None:
    """Put an SBOM into each wheel, and list what is compiled in."""
    release.texts["LICENSE"] = (release.tree / "LICENSE").read_bytes()
    for wheel in sorted(release.out.glob("*.whl")):
        match = NAME.fullmatch(wheel.name)
        assert match is not None, wheel.name
        number, arch = match["python"], match["arch"]
        python = release.tree / "build" / "wheels" / f"cp{number}" / "bin" / "python"
        versions = dict(
            line.lower().split("==") for line in output(python, "-m", "pip", "freeze", cwd=release.work).splitlines()
        )
        compiled = {name: (versions[name], licence) for name, licence in COMPILED_IN.items()}
        release.compiled_in += [
            dependencies.Bundled(name, version, licence) for name, (version, licence) in compiled.items()
        ]
        needed = release.needed[number, arch]
        bom = dependencies.sbom(release.version, wheel.name, compiled, needed, release.epoch)
        archives.rewrite_wheel(wheel, {"sboms/kafkalite.cdx.json": bom}, release.epoch)


def write_licences(release: Release) -> None:
    """Write the table of licences, and the archive of their texts."""
    needed = [each for found in release.needed.values() for each in found]
    page = dependencies.licence_table(needed, release.compiled_in, release.debian)
    (release.out / "licences.md").write_text(page, encoding="utf-8")
    folder = f"kafkalite-{release.version}-licences"
    packed = {f"{folder}/{name}": (text, 0o644) for name, text in release.texts.items()}
    archives.write_tar_gz(release.out / f"{folder}.tar.gz", packed, release.epoch)


def build_packages(release: Release) -> None:
    """Write the Debian packages, and the image for this machine's processor."""
    os.environ["SOURCE_DATE_EPOCH"] = str(release.epoch)
    for wheel in sorted(release.out.glob(f"*-cp{DEBIAN_PYTHON}-*.whl")):
        match = NAME.fullmatch(wheel.name)
        assert match is not None, wheel.name
        arch = match["arch"]
        given = release.given_packages is not None
        constraints = release.constraints(f"needed {DEBIAN_PYTHON}") if given else None
        root = release.work / f"deb-{arch}"
        deb.package(root, wheel, DEBIAN_PYTHON, arch, constraints)
        if arch == platform.machine():
            pinned = pins(release.given_packages or "", "image").split()
            packages = image.download(release.work / "image", pinned)
            release.record("image", [each.pin for each in packages])
            name = f"kafkalite-{release.version}-image-{DEBIAN_ARCHS[arch]}.tar"
            about = image.About(release.version, release.commit, release.epoch, DEBIAN_ARCHS[arch])
            system = image.system_layer([each.path for each in packages], release.epoch)
            image.write(release.out / name, system, root, about)
            release.debian += [image.licence_of(each, system) for each in packages]
            release.texts |= {f"debian/{each}": text for each, text in image.licence_texts(packages, system).items()}


def build_site(release: Release) -> None:
    """Write the website from the clone and the modules in its wheels."""
    number = f"{sys.version_info[0]}{sys.version_info[1]}"
    (native,) = (release.tree / "build" / "wheels" / f"cp{number}-{platform.machine()}").glob("lib.*/kafkalite/_native")
    folder = release.work / "site"
    variables = [f"PYTHONPATH={release.tree}", f"KAFKALITE_NATIVE_PATH={native}"]
    used = release.work / "site-packages.txt"
    release.run("env", *variables, sys.executable, "-P", "-m", "tools.site.build", "--out", folder, "--used", used)
    name = pages.site(release.version)
    entries = archives.directory_entries(folder, name)
    archives.write_tar_gz(release.out / f"{name}.tar.gz", entries, release.epoch)
    release.record("site", used.read_text(encoding="utf-8").splitlines())


def check_site_packages(given: str) -> None:
    """Refuse a package list whose site was built with packages that this environment does not have."""
    installed = {f"{each.name}=={each.version}" for each in metadata.distributions()}
    if missing := sorted(set(pins(given, "site").splitlines()) - installed):
        sys.exit(f"the site of this package list needs {', '.join(missing)}: pip install them in this environment")


def toolchain(interpreters: list[wheels.Interpreter], archs: str) -> list[str]:
    """Return the versions of the programs, other than Python packages, that determine an artifact's bytes."""
    code = "import platform; print(platform.python_version())"
    found = [f"cpython=={output(each.path, '-c', code, cwd=ROOT)}" for each in interpreters]
    compilers = dict.fromkeys(wheels.compiler(arch) for arch in archs.split(","))
    for name in compilers:
        found.append(f"{name}=={output(name, '-dumpfullversion', cwd=ROOT)}")
        linker = output(name, "-print-prog-name=ld", cwd=ROOT)
        found.append(
            f"{Path(linker).name} of {name}=={output(linker, '--version', cwd=ROOT).splitlines()[0].split()[-1]}"
        )
    (dpkg,) = re.findall(r"version (\S+)", output("dpkg-deb", "--version", cwd=ROOT).splitlines()[0])
    return [*found, f"dpkg-deb=={dpkg}", f"zlib=={zlib.ZLIB_RUNTIME_VERSION}"]


def check_toolchain(given: str, used: list[str]) -> None:
    """Refuse a package list of another toolchain, whose build would give other bytes."""
    if missing := sorted(set(pins(given, "toolchain").splitlines()) - set(used)):
        sys.exit(f"this package list was built with {', '.join(missing)}; this machine has {', '.join(used)}")


def write_pages(release: Release) -> None:
    """Write the release notes and the evidence page."""

    def distance(run: str) -> pages.Distance | None:
        is_ancestor = ["git", "merge-base", "--is-ancestor", run, release.commit]
        if subprocess.run(is_ancestor, cwd=release.tree, check=False, stderr=subprocess.DEVNULL).returncode:
            return None
        count = ["git", "rev-list", "--count", f"{run}..{release.commit}"]
        return pages.Distance(*(int(output(*count, *paths, cwd=release.tree)) for paths in ((), ("--", *RELEASED))))

    campaigns = [
        pages.Campaign(
            family,
            f"{each.title} ({name})" if name else each.title,
            [row for row in proof.load(family) if row.get(each.variant, "") == name],
        )
        for family, each in proof.FAMILIES.items()
        for name in each.variants
    ]
    texts = {name: (release.tree / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "docs/proof.md")}
    page = pages.evidence(
        release.version, release.commit, campaigns, texts["docs/proof.md"], texts["CHANGELOG.md"], distance
    )
    (release.out / "evidence.md").write_text(page, encoding="utf-8")
    notes = pages.notes(release.version, texts["CHANGELOG.md"])
    (release.out / "release-notes.md").write_text(notes, encoding="utf-8")


def write_packages(release: Release) -> None:
    """Write the package list."""
    listed = "".join(f"{line}\n" for line in sorted(release.packages))
    (release.out / PACKAGES).write_text(ABOUT_PACKAGES.format(version=release.version) + listed, encoding="utf-8")


def write_readme(release: Release) -> None:
    """Write the release's README: a table of its files, and the commands to verify and install them."""
    page = readme.readme(release.version, [path.name for path in release.out.iterdir()])
    (release.out / readme.README).write_text(page, encoding="utf-8")
    if dead := pages.dead_links(release.out):
        sys.exit("\n".join(dead))


def write_sums(release: Release, sign_key: str) -> None:
    """Write the checksums, and sign them if there is a key."""
    names = sorted(path.name for path in release.out.iterdir() if path.name not in UNLISTED)
    sums = "".join(f"{archives.sha256(release.out / name)}  {name}\n" for name in names)
    (release.out / SUMS).write_text(sums, encoding="utf-8")
    if sign_key:
        sign(release.out, sign_key)


def sign(out: Path, key: str) -> None:
    """Sign the checksums with a key of GnuPG, and write its public key."""
    gpg = ["gpg", "--batch", "--yes", "--status-fd", "1", "--armor", "--output"]
    command = [*gpg, str(out / SIGNATURE), "--local-user", key, "--detach-sign", str(out / SUMS)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    signed = re.search(r"SIG_CREATED .* (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode or signed is None:
        sys.exit(f"gpg could not sign with the key {key!r}; `gpg --list-secret-keys` lists the keys of this account")
    # The fingerprint, because an address can name several keys.
    subprocess.run([*gpg, str(out / KEY), "--export", signed[1]], check=True, stdout=subprocess.DEVNULL)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools.release.build", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="version of the release, such as 0.2.0")
    parser.add_argument("--out", type=Path, help="directory to create (default: build/release/VERSION)")
    parser.add_argument("--arch", default=platform.machine(), help="processors, separated by commas")
    parser.add_argument("--python", action="append", help="interpreter to build for; can be repeated")
    parser.add_argument("--packages", type=Path, help="packages.txt of an earlier run, whose versions are used again")
    parser.add_argument("--sign-key", default="", help="GnuPG key that signs the release")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parsed = parser.parse_args(arguments)
    if VERSION.fullmatch(parsed.version) is None:
        parser.error(f"version {parsed.version!r} is not MAJOR.MINOR.PATCH, such as 0.2.0 or 0.2.0rc1")
    parsed.out = (parsed.out or ROOT / "build" / "release" / parsed.version).resolve()
    if parsed.out.exists() and any(parsed.out.iterdir()):
        parser.error(f"{parsed.out} is not empty; remove it or choose another --out")
    return parsed


def main(arguments: list[str]) -> None:
    parsed = parse(arguments)
    if output("git", "status", "--porcelain", "--untracked-files=no", cwd=ROOT):
        sys.exit("uncommitted changes: a release is built from a commit, so commit or stash them first")
    image.check_machine(Path("/etc/os-release").read_text(encoding="utf-8"))
    given = parsed.packages.read_text(encoding="utf-8") if parsed.packages else None
    commit = output("git", "rev-parse", "HEAD", cwd=ROOT)
    epoch = int(output("git", "log", "-1", "--format=%ct", commit, cwd=ROOT))
    release = Release(
        parsed.version, parsed.out, parsed.out.with_name(f".{parsed.out.name}-work"), epoch, commit, given
    )
    looked_at = [each for path in parsed.python or [] if (each := wheels.look_at(path))]
    interpreters = looked_at if parsed.python else wheels.interpreters()
    if not interpreters:
        sys.exit("no CPython from 3.11 on, with its headers, was found")
    if sys.version_info[:2] not in {each.version for each in interpreters}:
        sys.exit(
            f"the site needs the modules of Python {sys.version_info[0]}.{sys.version_info[1]}, which runs this: add it"
        )
    programs = toolchain(interpreters, parsed.arch)
    release.record("toolchain", programs)
    if given is not None:
        check_site_packages(given)
        check_toolchain(given, programs)
    release.out.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    clone(release)
    numbers = dict.fromkeys(each.tag.removeprefix("cp") for each in interpreters)
    fetch_needed(release, list(numbers), parsed.arch)
    build_wheels(release, interpreters, parsed)
    build_sdist(release, release.tree / "build" / "wheels" / interpreters[0].tag / "bin" / "python")
    describe_wheels(release)
    build_packages(release)
    write_licences(release)
    build_site(release)
    write_pages(release)
    write_packages(release)
    write_readme(release)
    write_sums(release, parsed.sign_key)
    shutil.rmtree(release.work)
    for path in sorted(release.out.iterdir()):
        print(f"{path.stat().st_size:12,}  {path.name}")


if __name__ == "__main__":
    main(sys.argv[1:])

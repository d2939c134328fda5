"""Write README.md of a release: every file with one line, how to verify the files, and how to install each kind."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tools.release.pages import how_to_install, site, unpack_site
from tools.wheel_check import NAME

README: Final = "README.md"
ROW: Final = re.compile(r"^\| `(?P<name>[^`]+)` \|", re.MULTILINE)
SIGNED_ONLY: Final = "only in a signed release"
OTHER: Final = re.compile(r"aarch64|arm64")
"""The processor whose files are listed after those of x86-64."""
PIP: Final = "python3 -m venv kafkalite-venv\nkafkalite-venv/bin/pip install ./{name}"


class Kind(NamedTuple):
    """The files of one kind. `about` can use the pattern's groups; `install` are commands for {name}, if any."""

    pattern: str
    about: str
    heading: str = ""
    install: str = ""
    note: str = ""


KINDS: Final = (
    Kind(
        NAME.pattern,
        "wheel for CPython {python} on {arch} with glibc 2.28 or newer",
        "A wheel",
        PIP,
        "Choose the wheel for your Python and processor: `cp311` is CPython 3.11; `uname -m` prints the processor.\n"
        "pip downloads the dependencies from your package index.",
    ),
    Kind(
        r"kafkalite_[^_]+_(?P<arch>[a-z0-9]+)\.deb",
        "Debian 12 package for {arch}, with the Python packages that it needs",
        "The Debian package",
        "apt install ./{name}\nsystemctl enable --now kafkalite",
        "The settings are in `/etc/kafkalite/server.properties`.",
    ),
    Kind(
        r"kafkalite-.+-image-(?P<arch>[a-z0-9]+)\.tar",
        "OCI image for {arch}: Debian 12, user 10001, no shell",
        "The image",
        "podman load --input {name}",
        "Its data is in the volume `/var/lib/kafkalite`, its settings are in `/etc/kafkalite/server.properties`.",
    ),
    Kind(r"kafkalite-.+-site\.tar\.gz", "the documentation as a website"),
    Kind(r"kafkalite-.+-licences\.tar\.gz", "the licence texts of everything in these files"),
    Kind(
        r"kafkalite-[^-]+\.tar\.gz",
        "source distribution",
        "The source distribution",
        f"apt install gcc python3-dev python3-venv\n{PIP}",
        "It needs a C compiler and compiles for minutes.",
    ),
    Kind(r"licences\.md", "table of the dependencies and their licences"),
    Kind(r"release-notes\.md", "the changes in this release"),
    Kind(r"evidence\.md", "which fault-injection campaigns ran on this code, and their results"),
    Kind(r"packages\.txt", "the packages and compilers that the build used"),
    Kind(re.escape(README), "this file"),
    Kind(r"SHA256SUMS", "checksums of all files above"),
    Kind(r"SHA256SUMS\.asc", f"signature of the checksums, {SIGNED_ONLY}"),
    Kind(r"signing-key\.asc", f"public key of the signature, {SIGNED_ONLY}"),
)
"""The kinds in the order in which the page lists them; the first that matches a file is the file's."""
LAST: Final = ("SHA256SUMS", "SHA256SUMS.asc", "signing-key.asc")
"""Files that do not exist yet when the page is written. The page is the same with and without a signature."""
VERIFY: Final = """\
## Verify the files

```sh
sha256sum --check --ignore-missing SHA256SUMS
```

The checksums find damaged files. A signed release also shows who made the files:

```sh
gpg --show-keys --fingerprint signing-key.asc
gpg --import signing-key.asc
gpg --verify SHA256SUMS.asc SHA256SUMS
```

The key comes from the same place as the files, so it proves nothing alone. Compare its fingerprint with the one in
`SECURITY.md` of the project's repository. `gpg --verify` must print "Good signature" and the same fingerprint."""


def kind_of(name: str) -> tuple[Kind, dict[str, str]]:
    """Return the kind of a file and the groups of its pattern. Raises ValueError if there is none."""
    for kind in KINDS:
        if (match := re.fullmatch(kind.pattern, name)) is not None:
            groups = match.groupdict()
            if "python" in groups:
                groups["python"] = f"{groups['python'][0]}.{groups['python'][1:]}"
            return kind, groups
    raise ValueError(f"{README} has no description for {name}; add its kind to tools/release/readme.py")


def readme(version: str, names: list[str]) -> str:
    """Return the page for the files of a release, to which its own name and `LAST` are added."""

    def order(name: str) -> tuple[int, bool, str]:
        return KINDS.index(kind_of(name)[0]), OTHER.search(name) is not None, name

    every = sorted({*names, README, *LAST}, key=order)
    rows = []
    first: dict[Kind, str] = {}
    for name in every:
        kind, groups = kind_of(name)
        rows.append(f"| `{name}` | {kind.about.format(**groups)} |")
        first.setdefault(kind, name)
    install = [
        f"{kind.heading}:\n\n```sh\n{kind.install.format(name=name)}\n```\n\n{kind.note}"
        for kind, name in first.items()
        if kind.install
    ]
    parts = [
        f"# kafkalite {version}",
        "| File | Contents |\n| --- | --- |\n" + "\n".join(rows),
        VERIFY,
        "## Install",
        *install,
        f"{how_to_install(version)} {unpack_site(version)} Then open `{site(version)}/index.html`.",
    ]
    return "\n\n".join(parts) + "\n"


def faults(text: str, names: set[str]) -> list[str]:
    """Return a line for each file that the page does not list, and for each listed file that does not exist."""
    listed = {found["name"] for found in ROW.finditer(text)}
    optional = set(LAST)
    found = [f"{README} does not list {name}" for name in sorted(names - listed)]
    return found + [f"{README} lists {name}, which is missing" for name in sorted(listed - names - optional)]

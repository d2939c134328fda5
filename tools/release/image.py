"""Write an OCI image as an archive, without a daemon: Debian's Python from packages, and kafkalite as installed.

The image has two layers and no shell. What runs in it is user 10001; the root may be read-only, and the data is in the
volume /var/lib/kafkalite. The health check reads the broker's listeners from its configuration file: Docker runs
it; Kubernetes has its probes.
Layout: OCI Image Format Specification 1.1.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import posixpath
import re
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.release.archives import sha256
from tools.release.dependencies import Bundled

ROOT: Final = Path(__file__).resolve().parents[2]
WANTED: Final = (
    *("libpython3.11-stdlib", "python3.11-minimal", "libssl3", "libstdc++6", "tzdata", "ca-certificates"),
    "base-files",  # os-release, and the licences that Debian's copyright files refer to
)
WITHOUT: Final = {
    *("dpkg", "tar", "debconf", "openssl", "perl-base", "libmd0", "libselinux1", "libpcre2-8-0", "libacl1"),
    *("mawk", "original-awk", "gawk"),
}
"""What packages need to be installed with, but not to run."""
COMMON: Final = "usr/share/common-licenses"
SHORT_NAME: Final = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
"""In a copyright file of Debian's machine-readable format."""
MERGED: Final = re.compile(r"^(bin|sbin|lib|lib64)(/|$)")
LEFT_OUT: Final = re.compile(
    r"^usr/share/(man|locale|lintian|doc-base|info|bug)/|^usr/share/doc/(?!.*/copyright$|[^/]+$)"
)
"""A package's documentation stays if it is its copyright file, or a link to another package's."""
USER: Final = 10001
DATA: Final = "/var/lib/kafkalite"
COMMAND: Final = "#!/usr/bin/python3.11 -P\nfrom kafkalite.cli import main\n\nraise SystemExit(main())\n"
GZIP: Final = "application/vnd.oci.image.layer.v1.tar+gzip"


class Package(NamedTuple):
    """A downloaded Debian package."""

    name: str
    version: str
    path: Path

    @property
    def pin(self) -> str:
        """The entry in the package list."""
        return f"{self.name}={self.version}={sha256(self.path)}"


class About(NamedTuple):
    """The image's metadata. `epoch` is its time in seconds; `arch` is Go's name, such as amd64."""

    version: str
    commit: str
    epoch: int
    arch: str


def check_machine(os_release: str) -> None:
    """Refuse a system whose apt has packages of another Debian than 12, as the text of /etc/os-release shows."""
    names = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    if (names.get("ID"), names.get("VERSION_ID", "").strip('"')) != ("debian", "12"):
        raise SystemExit(
            f"a release is built on Debian 12, whose packages its image contains, not on {names.get('PRETTY_NAME')}"
        )


def download(folder: Path, pinned: list[str]) -> list[Package]:
    """Download Debian's packages: the pinned ones (`name=version=sha256`), or the newest that apt finds."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [each.rpartition("=")[0] for each in pinned] or _resolve()
    subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *found], cwd=folder, check=True)
    packages = []
    for path in sorted(folder.glob("*.deb")):
        name, version = field(path, "Package"), field(path, "Version")
        packages.append(Package(name, version, path))
    if pinned and (others := set(pinned) ^ {each.pin for each in packages}):
        raise ValueError(f"the archive has other packages than the list: {', '.join(sorted(others))}")
    return packages


def _resolve() -> list[str]:
    """Return what apt would install on an empty system, as `name=version`."""
    options = ["-o", "Dir::State::status=/dev/null", "-o", "APT::Install-Recommends=false"]
    command = ["apt-get", *options, "--simulate", "install", *WANTED]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = re.findall(r"(?m)^Inst (\S+?)(?::\S+)? \((\S+)", done.stdout)
    return [f"{name}={version}" for name, version in lines if name not in WITHOUT]


def field(path: Path, name: str) -> str:
    """Return a field of a Debian package, or of its whole control file without a name."""
    command = ["dpkg-deb", "--field", str(path), *([name] if name else [])]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Layer:
    """The entries of a layer by path, written in order. All have one time; the owner is root by default."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def add(
        self,
        name: str,
        content: bytes = b"",
        *,
        kind: bytes = tarfile.REGTYPE,
        mode: int = 0o644,
        link: str = "",
        owner: int = 0,
    ) -> None:
        """Add an entry, and the directories above it."""
        above = name.rpartition("/")[0]
        if above and above not in self._entries:
            self.add(above, kind=tarfile.DIRTYPE, mode=0o755)
        if kind == tarfile.DIRTYPE and name in self._entries:
            return
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.linkname, member.size = kind, mode, link, len(content)
        member.uid = member.gid = owner
        member.mtime = self._epoch
        self._entries[name] = (member, content)

    def add_package(self, path: Path) -> None:
        """Unpack a Debian package, with the status file that scanners read (/var/lib/dpkg/status.d)."""
        process = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], check=True, capture_output=True)
        with tarfile.open(fileobj=io.BytesIO(process.stdout)) as archive:
            for member in archive:
                name = merged(member.name.removeprefix("./").strip("/"))
                if not name or LEFT_OUT.search(name):
                    continue
                link = merged(member.linkname.removeprefix("./")) if member.islnk() else member.linkname
                file = archive.extractfile(member) if member.isreg() else None
                content = file.read() if file is not None else b""
                self.add(name, content, kind=member.type, mode=member.mode & 0o755, link=link)
        self.add(f"var/lib/dpkg/status.d/{field(path, 'Package')}", f"{field(path, '')}\n".encode())

    def add_tree(self, root: Path, target: str) -> None:
        """Add the files below a directory."""
        for path in sorted(root.rglob("*")):
            if path.is_file():
                mode = 0o755 if path.suffix == ".so" else 0o644
                self.add(f"{target}/{path.relative_to(root).as_posix()}", path.read_bytes(), mode=mode)

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        return self._entries[self._resolved(name)][1]

    def _resolved(self, name: str) -> str:
        """Follow the symbolic links in a path."""
        path = ""
        for part in name.split("/"):
            path = posixpath.join(path, part)
            entry = self._entries.get(path)
            if entry is not None and entry[0].issym():
                path = self._resolved(posixpath.normpath(posixpath.join(posixpath.dirname(path), entry[0].linkname)))
        return path

    def names(self) -> list[str]:
        """Return all paths, in order."""
        return sorted(self._entries)

    def packed(self) -> tuple[bytes, str]:
        """Return the layer as tar.gz, and the SHA-256 of the tar."""
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
            # A hard link after what it leads to, which may be later in the alphabet.
            for name in sorted(self._entries, key=lambda name: (self._entries[name][0].islnk(), name)):
                member, content = self._entries[name]
                archive.addfile(member, io.BytesIO(content))
        return gzip.compress(raw.getvalue(), 9, mtime=0), hashlib.sha256(raw.getvalue()).hexdigest()


def merged(name: str) -> str:
    """Return where a path is on a system whose /bin and /lib are in /usr."""
    return f"usr/{name}" if MERGED.search(name) else name


def system_layer(packages: list[Path], epoch: int) -> Layer:
    """Return the layer with Debian's packages, an account for the broker, and the directories of a system."""
    layer = Layer(epoch)
    for name in ("bin", "sbin", "lib", "lib64"):
        layer.add(f"usr/{name}", kind=tarfile.DIRTYPE, mode=0o755)
        layer.add(name, kind=tarfile.SYMTYPE, mode=0o777, link=f"usr/{name}")
    for name in ("dev", "proc", "sys", "run", "etc"):
        layer.add(name, kind=tarfile.DIRTYPE, mode=0o755)
    layer.add("tmp", kind=tarfile.DIRTYPE, mode=0o1777)
    for path in packages:
        layer.add_package(path)
    layer.add(
        "etc/passwd",
        f"root:x:0:0:root:/:/usr/sbin/nologin\nkafkalite:x:{USER}:{USER}::{DATA}:/usr/sbin/nologin\n".encode(),
    )
    layer.add("etc/group", f"root:x:0:\nkafkalite:x:{USER}:\n".encode())
    layer.add("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    certificates = [
        name for name in layer.names() if name.startswith("usr/share/ca-certificates/") and name.endswith(".crt")
    ]
    layer.add("etc/ssl/certs/ca-certificates.crt", b"".join(layer.read(name) for name in certificates))
    return layer


def licence_of(package: Package, layer: Layer) -> Bundled:
    """Return what a package's copyright file says about its licences."""
    text = layer.read(copyright_file(package)).decode(errors="replace")
    names = dict.fromkeys(SHORT_NAME.findall(text)) if text.startswith("Format:") else {}
    return Bundled(package.name, package.version, ", ".join(names) or "see the copyright file")


def licence_texts(packages: list[Package], layer: Layer) -> dict[str, bytes]:
    """Return the packages' copyright files and the licences that these refer to, by name."""
    texts = {f"{each.name}/copyright": layer.read(copyright_file(each)) for each in packages}
    common = [name for name in layer.names() if posixpath.dirname(name) == COMMON]
    return texts | {f"common-licenses/{posixpath.basename(name)}": layer.read(name) for name in common}


def copyright_file(package: Package) -> str:
    """Return the path of a package's copyright file in the image."""
    return f"usr/share/doc/{package.name}/copyright"


def own_layer(tree: Path, epoch: int) -> Layer:
    """kafkalite and what it needs, the command, the configuration and an empty data directory.

    `tree`: the files of the Debian package.
    """
    layer = Layer(epoch)
    for name in ("opt/kafkalite/lib", "usr/share/doc/kafkalite"):
        layer.add_tree(tree / name, name)
    layer.add("usr/bin/kafkalite", COMMAND.encode(), mode=0o755)
    layer.add("etc/kafkalite/server.properties", (ROOT / "packaging" / "container.properties").read_bytes())
    layer.add(DATA.lstrip("/"), kind=tarfile.DIRTYPE, mode=0o700, owner=USER)
    return layer


def configuration(about: About, diff_ids: list[str]) -> dict[str, Any]:
    """Return the image's configuration, the same as in packaging/Containerfile."""
    second = 1_000_000_000
    check = ["CMD", "kafkalite", "ping", "--config", "/etc/kafkalite/server.properties"]
    return {
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(about.epoch)),
        "architecture": about.arch,
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": [
                "PATH=/usr/bin",
                "PYTHONPATH=/opt/kafkalite/lib",
                "PYTHONUNBUFFERED=1",
                f"HOME={DATA}",
                "LANG=C.UTF-8",
            ],
            "Entrypoint": ["kafkalite"],
            "Cmd": ["start", "--config", "/etc/kafkalite/server.properties"],
            "WorkingDir": DATA,
            "ExposedPorts": {"9092/tcp": {}},
            "Volumes": {DATA: {}},
            "StopSignal": "SIGTERM",
            "Healthcheck": {"Test": check, "Interval": 15 * second, "Timeout": 10 * second, "StartPeriod": 60 * second},
            "Labels": {
                "org.opencontainers.image.title": "kafkalite",
                "org.opencontainers.image.version": about.version,
                "org.opencontainers.image.revision": about.commit,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in diff_ids]},
    }


def write(target: Path, system: Layer, tree: Path, about: About) -> None:
    """Write an image as an archive: on the layer of Debian's packages, the files of kafkalite's Debian package."""
    entries: dict[str, bytes] = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def blob(content: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        entries[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    packed = [layer.packed() for layer in (system, own_layer(tree, about.epoch))]
    settings = json.dumps(configuration(about, [digest for _, digest in packed]), sort_keys=True).encode()
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(settings, "application/vnd.oci.image.config.v1+json"),
        "layers": [blob(content, GZIP) for content, _ in packed],
    }
    entry = blob(json.dumps(manifest, sort_keys=True).encode(), manifest["mediaType"])
    entry["platform"] = {"architecture": about.arch, "os": "linux"}
    entry["annotations"] = {"org.opencontainers.image.ref.name": f"kafkalite:{about.version}"}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}
    entries["index.json"] = json.dumps(index, sort_keys=True).encode()
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(entries):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(entries[name]), about.epoch, 0o644
            archive.addfile(member, io.BytesIO(entries[name]))

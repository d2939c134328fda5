"""Write archives whose bytes depend only on their contents: sorted entries, one time, no owner."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import time
import zipfile
from pathlib import Path


def sha256(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tar_gz(target: Path, entries: dict[str, tuple[bytes, int]], epoch: int) -> None:
    """Write a tar.gz of regular files: name → (content, mode). Their time is `epoch` in seconds."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(entries):
            content, mode = entries[name]
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, epoch
            archive.addfile(member, io.BytesIO(content))


def normalise_tar_gz(source: Path, target: Path, epoch: int) -> None:
    """Rewrite a tar.gz of regular files, such as an sdist, in this way."""
    entries: dict[str, tuple[bytes, int]] = {}
    with tarfile.open(source) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                entries[member.name] = (file.read(), 0o755 if member.mode & 0o100 else 0o644)
    write_tar_gz(target, entries, epoch)


def directory_entries(root: Path, prefix: str) -> dict[str, tuple[bytes, int]]:
    """Return the files below a directory as entries of `write_tar_gz`."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {f"{prefix}/{path.relative_to(root).as_posix()}": (path.read_bytes(), 0o644) for path in paths}


def rewrite_wheel(wheel: Path, additions: dict[str, bytes], epoch: int) -> None:
    """Add files to a wheel's .dist-info (name below it → content) and record them in RECORD."""
    with zipfile.ZipFile(wheel) as archive:
        entries = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    (record,) = (name for name in entries if name.endswith(".dist-info/RECORD"))
    folder = record.rpartition("/")[0]
    entries |= {f"{folder}/{name}": content for name, content in additions.items()}
    lines = [
        f"{name},{_record_hash(content)},{len(content)}\n"
        for name, content in sorted(entries.items())
        if name != record
    ]
    entries[record] = ("".join(lines) + f"{record},,\n").encode()
    moment = time.gmtime(max(epoch, 315_532_800))[:6]  # a zip begins in 1980
    temporary = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(entries, key=lambda name: (name.startswith(folder), name)):  # PEP 427: .dist-info last
            member = zipfile.ZipInfo(name, moment)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(member, entries[name])
    temporary.replace(wheel)


def _record_hash(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"

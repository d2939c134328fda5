"""An image is written from packages and a directory, and is checked and unpacked again."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.release import check, image
from tools.release.build import SIGNATURE, SUMS

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb")
ABOUT = image.About("0.2.0", "abcdef", 1_790_000_000, "amd64")
COPYRIGHT = {"usr/share/doc/kafkalite/copyright": "ours"}


def write(target: Path, parts: tuple[list[Path], Path]) -> None:
    image.write(target, image.system_layer(parts[0], ABOUT.epoch), parts[1], ABOUT)


def a_package(folder: Path, name: str, files: dict[str, str], *, links: dict[str, str]) -> Path:
    root = folder / name
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    (root / "DEBIAN").mkdir()
    control = f"Package: {name}\nVersion: 1:2.0-1\nArchitecture: amd64\nMaintainer: M\nDescription: a test\n"
    (root / "DEBIAN" / "control").write_text(control)
    command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(folder / f"{name}.deb")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / f"{name}.deb"


@pytest.fixture
def parts(tmp_path: Path) -> tuple[list[Path], Path]:
    machine_readable = "Format: URL\n\nFiles: *\nLicense: GPL-2\n\nFiles: a\nLicense: MIT\n\nLicense: GPL-2\n text\n"
    files = {
        "lib/x86_64-linux-gnu/libc.so.6": "libc",
        "usr/share/man/man1/a.1": "",
        "usr/share/doc/base/copyright": machine_readable,
        "usr/share/common-licenses/GPL-2": "GPL",
    }
    base = a_package(tmp_path, "base", files, links={"usr/share/common-licenses/GPL": "GPL-2"})
    files = {"usr/share/ca-certificates/mozilla/a.crt": "A\n"}
    certificate = a_package(tmp_path, "certs", files, links={"usr/share/doc/certs": "base"})
    tree = tmp_path / "tree"
    for name, text in {"opt/kafkalite/lib/kafkalite/native.so": "\x7fELF", **COPYRIGHT}.items():
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text(text)
    return [base, certificate], tree


def test_an_image_depends_on_its_parts_alone(parts: tuple[list[Path], Path], tmp_path: Path) -> None:
    write(tmp_path / "one.tar", parts)
    os.utime(parts[1] / "opt/kafkalite/lib/kafkalite/native.so", (1, 1))
    write(tmp_path / "other.tar", parts)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "other.tar").read_bytes()


def test_an_image_names_its_blobs_by_digest(parts: tuple[list[Path], Path], tmp_path: Path) -> None:
    write(tmp_path / "image.tar", parts)
    with tarfile.open(tmp_path / "image.tar") as archive:
        contents = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    blobs = {name.rpartition("/")[2]: content for name, content in contents.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    (entry,) = json.loads(contents["index.json"])["manifests"]
    manifest = json.loads(blobs[entry["digest"].partition(":")[2]])
    for each in (manifest["config"], *manifest["layers"]):
        assert len(blobs[each["digest"].partition(":")[2]]) == each["size"]
    settings = json.loads(blobs[manifest["config"]["digest"].partition(":")[2]])
    assert settings["config"]["User"] == "10001:10001"
    check_words = settings["config"]["Healthcheck"]["Test"]
    assert check_words == ["CMD", "kafkalite", "ping", *settings["config"]["Cmd"][1:]], (
        "of the file that it starts with"
    )
    assert json.dumps(check_words[1:]) in (image.ROOT / "packaging" / "Containerfile").read_text()
    assert len(settings["rootfs"]["diff_ids"]) == len(manifest["layers"]) == 2


def test_layers_of_an_image(parts: tuple[list[Path], Path]) -> None:
    packages, tree = parts
    system = image.system_layer(packages, ABOUT.epoch)
    names = system.names()
    assert system.read("usr/lib/x86_64-linux-gnu/libc.so.6") == b"libc", "/lib is in /usr"
    assert "usr/share/doc/base/copyright" in names
    assert not any("man1" in name for name in names)
    assert b"Package: base\n" in system.read("var/lib/dpkg/status.d/base")
    assert system.read("etc/ssl/certs/ca-certificates.crt") == b"A\n"
    assert b"kafkalite:x:10001:10001" in system.read("etc/passwd")
    own = image.own_layer(tree, ABOUT.epoch)
    expected = {"opt/kafkalite/lib/kafkalite/native.so", "usr/bin/kafkalite", "var/lib/kafkalite", *COPYRIGHT}
    assert expected <= set(own.names())


def test_licences_of_an_image(parts: tuple[list[Path], Path]) -> None:
    layer = image.system_layer(parts[0], ABOUT.epoch)
    packages = [image.Package(path.stem, "1:2.0-1", path) for path in parts[0]]
    assert [image.licence_of(each, layer) for each in packages] == [
        ("base", "1:2.0-1", "GPL-2, MIT"),
        ("certs", "1:2.0-1", "GPL-2, MIT"),
    ], "a package's documentation can be a link to another's"
    texts = image.licence_texts(packages, layer)
    assert {name: text[:3] for name, text in texts.items()} == {
        "base/copyright": b"For",
        "certs/copyright": b"For",
        "common-licenses/GPL": b"GPL",
        "common-licenses/GPL-2": b"GPL",
    }


def test_packages_other_than_the_pinned_ones_are_refused(
    parts: tuple[list[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run
    asked: list[list[str]] = []

    def without_apt(command: list[str], **options: object) -> object:
        if command[0] != "apt-get":
            return run(command, **options)  # type: ignore[call-overload]
        asked.append(command)
        plan = "Inst dpkg (1.21 Debian [amd64])\nInst base (1:2.0-1 Debian [amd64])\nConf base (1:2.0-1)\n"
        return subprocess.CompletedProcess(command, 0, plan)

    monkeypatch.setattr(image.subprocess, "run", without_apt)
    folder = tmp_path / "downloaded"
    folder.mkdir()
    shutil.copy(parts[0][0], folder)
    (pinned,) = [each.pin for each in image.download(folder, [])]
    assert pinned.startswith("base=1:2.0-1=")
    assert asked[-1][-2:] == ["download", "base=1:2.0-1"], "dpkg is not needed to run"
    assert len(image.download(folder, [pinned])) == 1
    with pytest.raises(ValueError, match="other packages than the list: base=1:2"):
        image.download(folder, [pinned[:-4] + "0000"])


def test_another_system_than_debian_12_is_refused() -> None:
    image.check_machine('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n')
    for text in (
        'ID=debian\nVERSION_ID="13"\nPRETTY_NAME="Debian 13"\n',
        "ID=ubuntu\nVERSION_ID=12\nPRETTY_NAME=U\n",
        "",
    ):
        with pytest.raises(SystemExit, match="built on Debian 12"):
            image.check_machine(text)


def test_checksums_find_what_is_missing_changed_or_added(tmp_path: Path) -> None:
    for name in ("kept", "changed", "missing", "added"):
        (tmp_path / name).write_text(name)
    sums = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("kept", "changed", "missing")]
    (tmp_path / SUMS).write_text("".join(sums))
    (tmp_path / SIGNATURE).touch()
    (tmp_path / "missing").unlink()
    (tmp_path / "changed").write_text("other")
    assert check.verify(tmp_path) == [
        "missing is missing",
        f"added is not in {SUMS}",
        f"changed has another SHA-256 than {SUMS} says",
    ]
    assert check.main([str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("name", "kind", "arch"),
    [
        ("kafkalite-0.2.0-cp311-cp311-manylinux_2_28_aarch64.whl", "wheel", "aarch64"),
        ("kafkalite-0.2.0-cp313-cp313-manylinux_2_28_x86_64.whl", "wheel", "x86_64"),
        ("kafkalite_0.2.0_arm64.deb", "deb", "aarch64"),
        ("kafkalite-0.2.0-image-amd64.tar", "image", "x86_64"),
    ],
)
def test_an_artefact_for_another_machine_is_emulated(
    name: str, kind: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[tuple[object, ...]] = []
    for function in ("check_here", "check_emulated"):
        monkeypatch.setattr(
            check, function, lambda *given, function=function: used.append((function, *given[1:4])) or ""
        )
    monkeypatch.setattr(check, "faults_of_wheel", lambda path: [])
    monkeypatch.setattr(check, "faults_of_package", lambda path: [])
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    path = tmp_path / name
    path.touch()
    assert check.check(path, []) == ""
    assert check.check(tmp_path / "licences.md", list(check.KINDS)) == ""
    assert used == []
    check.check(path, list(check.KINDS))
    number = "313" if "cp313" in name else "311"
    assert used == [("check_here" if arch == "x86_64" else "check_emulated", kind, number, arch)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for owners of files")
def test_an_image_is_unpacked_with_owners_and_links(parts: tuple[list[Path], Path], tmp_path: Path) -> None:
    write(tmp_path / "image.tar", parts)
    variables = check.unpack_image(tmp_path / "image.tar", tmp_path / "root")
    assert variables["IMAGE_USER"] == "10001:10001"
    assert "PYTHONPATH=/opt/kafkalite/lib" in variables["IMAGE_ENV"].split()
    assert variables["HEALTH"] == "ping --config /etc/kafkalite/server.properties"
    data = (tmp_path / "root/var/lib/kafkalite").stat()
    assert (data.st_uid, data.st_mode & 0o777) == (10001, 0o700)
    assert (tmp_path / "root/lib/x86_64-linux-gnu/libc.so.6").read_text() == "libc"

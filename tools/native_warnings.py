"""Compile every extension with -Wconversion and -Wsign-compare, and print the warnings in our own sources.

Cython's generated code causes many such warnings, which we cannot fix. With line markers, each warning names the .pyx,
.pxd or .c line that it belongs to, so only those in our files are printed. Exit status 1 if there is one.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile(
    r"^(?:\./)?((?:ext/)?(?:kafkalite/_native|c)/\S+\.(?:pyx|pxd|c|h):\d+):\S*\s+(warning: .*)$", re.MULTILINE
)


def main() -> int:
    """Build into a temporary directory, so that the tree keeps its own build. Return the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", scratch, "--build-temp", scratch]
        environment = {**os.environ, "KAFKALITE_WARNINGS": "1", "LC_ALL": "C"}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(result.stderr)
        return result.returncode
    found = sorted({f"{where}: {what}" for where, what in OURS.findall(result.stderr)})
    print("\n".join([*found, f"{len(found)} warnings in our own lines"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

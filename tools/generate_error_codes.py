"""Write error_codes.pxd, the protocol's error codes for native code, from the table in kafkalite/errors.py.

python -m tools.generate_error_codes            write the file
python -m tools.generate_error_codes --check    exit 1 if it is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafkalite.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "ext" / "kafkalite" / "_native" / "wire" / "error_codes.pxd"

HEAD = '''"""Kafka's error codes of the protocol: written by tools/generate_error_codes.py, do not edit.

The table is `ErrorCode` in kafkalite/errors.py; change it there, then `make generated`.
"""

cdef enum:
'''


def document() -> str:
    """Return the whole file."""
    return HEAD + "".join(f"    {code.name} = {code.value}\n" for code in ErrorCode)


def main(arguments: list[str]) -> int:
    """Write the file. With --check, return 1 if it is out of date."""
    if "--check" in arguments:
        fresh = TARGET.exists() and TARGET.read_text(encoding="utf-8") == document()
        if not fresh:
            print(f"{TARGET.name} is stale: run `make generated`")
        return 0 if fresh else 1
    TARGET.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

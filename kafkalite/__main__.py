"""`python -m kafkalite`: the command line."""

from __future__ import annotations

from kafkalite.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m kafkalite`: the command line."""

from kafkalite.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

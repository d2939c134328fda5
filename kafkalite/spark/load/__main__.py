"""`python -m kafkalite.spark.load` is `kafkalite load`."""

from __future__ import annotations

import sys

from kafkalite.cli import main

raise SystemExit(main(["load", *sys.argv[1:]]))

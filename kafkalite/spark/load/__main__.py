"""`python -m kafkalite.spark.load` is `kafkalite load`."""

import sys

from kafkalite.cli import main

raise SystemExit(main(["load", *sys.argv[1:]]))

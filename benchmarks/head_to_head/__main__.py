"""`python -m benchmarks.head_to_head OPTION...` is `kafkalite bench OPTION...`."""

import sys

from kafkalite.cli import main

sys.exit(main(["bench", *sys.argv[1:]]))

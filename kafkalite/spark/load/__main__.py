"""Run `kafkalite load` for `python -m kafkalite.spark.load`."""

from __future__ import annotations

import runpy
import sys

sys.argv[1:1] = ["load"]
runpy.run_module("kafkalite", run_name="__main__")

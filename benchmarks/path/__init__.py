"""Benchmarks of a whole broker process against a yardstick in the same run; `python -m benchmarks.path --help`."""

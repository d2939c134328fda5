"""Benchmark a whole broker process against a yardstick in the same run; see `python -m benchmarks.path --help`."""

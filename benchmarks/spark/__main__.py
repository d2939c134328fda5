"""Run benchmarks.spark.compare: `python -m benchmarks.spark`."""

from benchmarks.spark.compare import main

if __name__ == "__main__":
    main()

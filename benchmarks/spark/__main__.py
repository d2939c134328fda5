"""`python -m benchmarks.spark`: see benchmarks.spark.compare."""

from benchmarks.spark.compare import main

if __name__ == "__main__":
    main()

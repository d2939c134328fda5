"""Run a whole data pipeline on this machine, and report: web servers, two brokers, mirror, loads, audit.

  python -m kafkalite.examples.pipeline
  python -m kafkalite.examples.pipeline --out pipeline --rate 2000 --seconds 60

The run takes about two minutes. It uses free ports and a new directory, and needs Java 17 and the extra `pipeline`.
Exit status: 0 if every visit arrived everywhere exactly once, 1 if not, or if a part failed, 2 if the run could not
begin.
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalite.base.extras import needs_extra
from kafkalite.examples.pipeline.visits import KILLS

if TYPE_CHECKING:
    from collections.abc import Sequence

NEEDED: Final = ("pyarrow", "pyspark")
EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the flags."""
    parser = argparse.ArgumentParser(
        prog="python -m kafkalite.examples.pipeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory to create (default: a temporary one)")
    parser.add_argument(
        "--rate", type=positive, default=1000.0, help="visits per second of each server (default: 1000)"
    )
    parser.add_argument(
        "--seconds", type=positive, default=45.0, help="seconds during which visits are sent (default: 45)"
    )
    parser.add_argument(
        "--timeout", type=positive, help="time limit of the whole run in seconds (default: --seconds plus 240)"
    )
    parser.add_argument(
        "--kill",
        action="append",
        choices=("all", *KILLS),
        metavar="PART",
        default=[],
        help=f"kill a part once and restart it; can be repeated: all, {', '.join(KILLS)}",
    )
    return parser.parse_args(arguments)


def positive(text: str) -> float:
    """Parse a number above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return its exit status."""
    try:
        return begin(parse(arguments))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def begin(parsed: argparse.Namespace) -> int:
    """Check the requirements, then run the pipeline."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return fail(needs_extra(f"the pipeline needs {' and '.join(missing)}", "pipeline"), EXIT_USAGE)
    from kafkalite.spark.session import require_java

    try:
        require_java()
        folder = new_folder(parsed.out)
    except (RuntimeError, OSError) as error:
        return fail(str(error), EXIT_USAGE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the parts on SIGTERM too
    return run(parsed, folder)


def new_folder(wanted: Path | None) -> Path:
    """Create an empty directory. Raises FileExistsError if the directory exists and is not empty."""
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="kafkalite-pipeline-"))
    wanted.mkdir(parents=True, exist_ok=True)
    if any(wanted.iterdir()):
        raise FileExistsError(f"{wanted} is not empty")
    return wanted.absolute()


def run(parsed: argparse.Namespace, folder: Path) -> int:
    """Run the pipeline and write the report. Return the exit status."""
    from kafkalite.examples.pipeline.processes import PartFailed
    from kafkalite.examples.pipeline.report import write_report
    from kafkalite.examples.pipeline.run import Plan, run_pipeline

    kills = KILLS if "all" in parsed.kill else tuple(parsed.kill)
    timeout_s = parsed.timeout or parsed.seconds + 240
    try:
        outcome = run_pipeline(Plan(folder, parsed.rate, parsed.seconds, timeout_s, kills), say)
    except PartFailed as error:
        return fail(f"{error}\n(more in {folder / 'logs'})", EXIT_FAILURE)
    report = write_report(outcome, folder)
    print(report.text())
    say(f"the report is {folder / 'report.html'}")
    return 0 if report.complete else EXIT_FAILURE


def say(text: str) -> None:
    """Print progress."""
    print(f"pipeline: {text}", file=sys.stderr, flush=True)


def fail(text: str, status: int) -> int:
    """Print an error. Return `status`."""
    print(f"pipeline: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())

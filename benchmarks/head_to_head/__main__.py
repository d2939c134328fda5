"""Run what `kafkalite bench OPTION...` runs: `python -m benchmarks.head_to_head OPTION...`"""

import sys

from kafkalite.base.extras import needs_extra
from kafkalite.cli import CommandError, Formatter, Parser, bench, reported


def run() -> int:
    parser = Parser(prog="kafkalite bench", description=bench.__doc__, formatter_class=Formatter)
    bench.add_arguments(parser)
    arguments = parser.parse_args()
    try:
        from benchmarks.head_to_head import command
    except ModuleNotFoundError as error:
        raise CommandError(
            needs_extra(f"the benchmarks need the Python package {error.name}", "bench"), status=2
        ) from error
    return command.run(arguments)


sys.exit(reported(run))

"""One of the programs of examples/failures with another client, or with its handler as a coroutine function.

    python tests/kit/processes/decorated_program.py PROGRAM SERVERS CLIENT run|async|serve

`run` runs the program's handler, `async` the same handler declared with `async def`, and `serve` awaits that one in an
event loop of the program. The member has the name that the program gives it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalite.failures import Handler

MEMBER = "worker-1"


def handler_of(program: Path, *, is_async: bool) -> Handler[..., Any]:
    """The decorated function of a program; the program's own `run` is not reached."""
    source = program.read_text()
    if is_async:
        assert source.count("\ndef bill(") == 1, program
        source = source.replace("\ndef bill(", "\nasync def bill(")
    names: dict[str, Any] = {"__name__": program.stem}
    exec(compile(source, str(program), "exec"), names)  # noqa: S102  # a file of this repository
    found: Handler[..., Any] = names["bill"]
    return found


def main() -> None:
    program, servers, client, form = sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.WARNING)
    bill = handler_of(Path(program), is_async=form != "run")
    if form == "serve":
        asyncio.run(bill.serve(servers, client=client, member=MEMBER, workers=4))
    else:
        bill.run(servers, client=client, member=MEMBER)


if __name__ == "__main__":
    main()

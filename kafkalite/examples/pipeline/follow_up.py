"""Run a consumer of the example that fails for some visits: those that the web server answered with status 500.

  python -m kafkalite.examples.pipeline.follow_up -b HOST:PORT --registry URL

A failed visit of the page /login goes to a retry topic, and succeeds at the second attempt, a second later. All other
failed visits become dead letters at once. SIGTERM ends the program cleanly.
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite.avro import AvroDecoder, RegistryClient
from kafkalite.examples.pipeline.visits import SUBJECT, TOPIC
from kafkalite.failures import Policy, RetryTopics, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalite.failures import Message

GROUP: Final = "follow-up"
FLAKY: Final = "/login"


class BadVisit(Exception):
    """An error for a visit that would fail at each retry, so it is not retried."""


def handle(visit: Message) -> None:
    """Handle a visit. Raise an error for each visit that the server answered with status 500."""
    value: Any = visit.value
    if value["status"] != 500:
        return
    if value["path"] != FLAKY:
        raise BadVisit(f"visitor {value['visitor']} saw status 500 at {value['path']}")
    if not visit.attempt:
        raise ConnectionResetError("the session store is restarting")


def decoding(registry: RegistryClient) -> Callable[[bytes], Any]:
    """Return a decoder of visits from Avro to dicts."""
    import pyarrow as pa

    decoder = AvroDecoder.of_subject(registry, SUBJECT)
    return lambda value: decoder.decode(pa.array([value])).values[0].as_py()


def policy(decode: Callable[[bytes], Any]) -> Policy:
    """Return the policy for visits that fail."""
    return Policy(group=GROUP, topics=[TOPIC], strategy=RetryTopics(["1 s"]), fatal=[BadVisit], decode=decode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap-server", required=True)
    parser.add_argument("--registry", required=True)
    parsed = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with RegistryClient(parsed.registry) as registry:
        run(policy(decoding(registry)), handle, parsed.bootstrap_server, stop=stop, member="follow-up-1")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

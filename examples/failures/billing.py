"""Orders to invoices, by one of four strategies for orders that fail. Kill it wherever you like, and start it again.

    python examples/failures/billing.py ignore|forever|here|topics [BOOTSTRAP]
    printf '1:good\\n2:late\\n3:broken\\n' | kafkalite produce -t orders -K :
    kafkalite consume -t invoices-topics -o beginning
    kafkalite letters list billing-topics

An order `broken` can never be handled, an order `late` works at its third attempt, every other at once. Invoices go to
`invoices-STRATEGY`, each in the transaction that finishes its order: none is lost, none is there twice.
"""

import os
import signal
import sys
import threading

from kafkalite.client import Client
from kafkalite.failures import Exponential, Ignore, Loss, Policy, RetryForever, RetryHere, RetryTopics, run

STRATEGIES = {
    "ignore": Ignore(alarm=Loss(0.5)),
    "forever": RetryForever(Exponential("100 ms", "5 s")),
    "here": RetryHere(3, "200 ms"),
    "topics": RetryTopics(["1 s", "2 s"]),
}


def main(strategy: str, bootstrap: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    policy = Policy(group=f"billing-{strategy}", topics=["orders"], strategy=STRATEGIES[strategy], fatal=[LookupError])

    with Client(bootstrap) as client:
        for topic in {"orders", f"invoices-{strategy}"} - client.topics().keys():
            client.admin.create_topic(topic, 1)

    def handle(order, transaction) -> None:
        moment(f"handling {(order.key or b'an order').decode()}")
        if order.value == b"broken":
            raise LookupError("there is no such customer")
        if order.value == b"late" and order.attempt < 2:
            raise RuntimeError("the customer is not known yet")
        transaction.send(f"invoices-{strategy}", order.value, order.key, partition=0)

    run(policy, handle, bootstrap, stop=stop, member="worker-1")


def moment(name: str) -> None:
    """Says where the program is; stays there when PAUSE_AT asks for it, so that somebody can end it there."""
    print(name, flush=True)
    if os.environ.get("PAUSE_AT") == name:
        signal.pause()


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "topics", sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:9092")
    except KeyboardInterrupt:
        sys.exit(130)

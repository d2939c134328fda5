"""RetryTopics: a failing order waits in retry topics, then becomes a dead letter; other orders continue."""

import sys

from kafkalite import failures


@failures.handler(topics="orders", group="billing", retry=["1 s", "2 s"], fatal=LookupError)
def bill(order, transaction):
    if order.value == b"broken":
        raise LookupError("there is no such customer")
    if order.value == b"late" and order.attempt < 2:
        raise RuntimeError("the customer is not known yet")
    transaction.send("invoices", order.value, order.key)


if __name__ == "__main__":
    bill.run(*sys.argv[1:2], member="worker-1")

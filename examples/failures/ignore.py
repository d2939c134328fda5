"""Ignore: a failing order is skipped and noted in the ledger; an alarm is logged when half of the orders fail."""

import sys

from kafkalite import failures

IGNORE = failures.Ignore(failures.Loss(0.5), record=True)


@failures.handler(topics="orders", group="billing", strategy=IGNORE, fatal=LookupError)
def bill(order, transaction):
    if order.value == b"broken":
        raise LookupError("there is no such customer")
    if order.value == b"late" and order.attempt < 2:
        raise RuntimeError("the customer is not known yet")
    transaction.send("invoices", order.value, order.key)


if __name__ == "__main__":
    bill.run(*sys.argv[1:2], member="worker-1")

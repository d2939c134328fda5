"""Audit changes made with the console: log lines and, if an audit topic is configured, records in this topic.

    request ─▶ record "asked" (if it cannot be written, the change is refused) ─▶ the change
            ─▶ log line and record "done", "refused", "denied", "failed" or "cancelled"

A line contains names and numbers. The reason of a refusal must not quote keys, values or headers of records, or lines
of a form: a password may be pasted in any of them. The reason is the text that the user sees, unless the change has
put another one into the detail as `why`, because the text quotes them.

Thread rule: any thread.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalite.base.logging import fields
from kafkalite.client.errors import ClientError
from kafkalite.console.console_roles import ForbiddenError
from kafkalite.console.requests import BadRequestError, BusyError, NotFoundError
from kafkalite.errors import KafkaError
from kafkalite.wire.record.columns import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalite.client import Client

logger = logging.getLogger(__name__)

REFUSED: Final = (BadRequestError, BusyError, NotFoundError)


class NoAuditError(Exception):
    """Status 503: the audit record cannot be written, so the change is not made."""


class AuditEntry(NamedTuple):
    """One audited change: user, action, object and address. The change adds entries to `detail` while it runs."""

    who: str
    role: str
    address: str
    action: str
    target: tuple[str, ...]
    detail: dict[str, Any]


class Audit:
    """Writes log lines and audit records. `topic` is the audit topic, None for no records.

    The topic must exist if the cluster does not create topics automatically.
    """

    def __init__(self, topic: str | None = None) -> None:
        self._topic = topic

    @contextlib.contextmanager
    def watched(self, client: Client, deed: AuditEntry) -> Iterator[None]:
        """Audit the change that the `with` block makes. Raises NoAuditError before the block if no record can be
        written.

        If the change is refused, `why` is added to the entry's detail.
        """
        if self._topic is not None:
            try:
                self._write(client, deed, "asked")
            except (KafkaError, ClientError) as error:
                logger.exception("cannot write the audit topic")
                raise NoAuditError(f"cannot write the audit topic {self._topic}, so nothing was changed") from error
        outcome = "failed"
        try:
            yield
            outcome = "refused" if "why" in deed.detail else "done"
        except REFUSED as error:
            outcome = "refused"
            deed.detail["why"] = str(error)
            raise
        except ForbiddenError as error:
            outcome = "denied"
            deed.detail["why"] = str(error)
            raise
        except Exception as error:
            deed.detail["why"] = type(error).__name__
            raise
        finally:
            self.note(client, deed, outcome)

    def note(self, client: Client, deed: AuditEntry, outcome: str) -> None:
        """Log the outcome and write its record. If the record cannot be written, log this error, too."""
        logger.info(
            "audit",
            extra=fields(
                who=deed.who or "-",
                role=deed.role,
                address=deed.address,
                action=deed.action,
                target="/".join(deed.target),
                outcome=outcome,
                detail=json.dumps(deed.detail, default=str),
            ),
        )
        if self._topic is not None:
            try:
                self._write(client, deed, outcome)
            except (KafkaError, ClientError):
                logger.exception("cannot write the audit topic; the line above is the only record of the change")

    def _write(self, client: Client, deed: AuditEntry, outcome: str) -> None:
        now = time.time_ns() // 1_000_000
        document = {"time": now, **deed._asdict(), "outcome": outcome}
        topic = self._topic or ""
        client.topic(topic, create=True)
        client.produce(topic, 0, [Record(-1, now, deed.who.encode(), json.dumps(document, default=str).encode())])

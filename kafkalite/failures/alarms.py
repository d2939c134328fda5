"""Send alarms as JSON by HTTP POST to one URL, with a limited number of retries.

    {"id": …, "group": …, "kind": …, "reason": …, "details": {…}, "time": ms since 1970}

The id stays the same over retries, so a receiver can drop duplicates.

Thread rule: any thread may call `send`; the sender's own thread posts.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final

from kafkalite.base import http_ask
from kafkalite.base.logging import MESSAGE_SIZE_MAX, escaped

if TYPE_CHECKING:
    from kafkalite.failures.events import Alarm

QUEUE_MAX: Final = 1000
TRIES_MAX: Final = 5
TRY_S: Final = 5.0
"""Limit for one attempt as a whole, however slow the response."""
BACKOFF_S: Final = 0.5
CLOSE_S: Final = 5.0

logger = logging.getLogger(__name__)


class AlarmSender:
    """Sends alarms to one URL; see the module. Raises ValueError if the URL is not an HTTP URL.

    Log lines contain only the host of the URL, and errors nothing of it, because it may contain a secret.
    """

    def __init__(self, url: str, group: str) -> None:
        parts = http_ask.split_url(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ValueError("the alarm URL is not an http:// or https:// URL")
        self._url = url
        self._host = parts.netloc.rpartition("@")[2]
        self._group = group
        self._queue: queue.Queue[bytes | None] = queue.Queue(QUEUE_MAX)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="failures-alarms", daemon=True)
        self._thread.start()

    def send(self, alarm: Alarm) -> None:
        """Queue an alarm and return at once. If the queue is full, drop and log the oldest alarm."""
        document = {
            "id": str(uuid.uuid4()),
            "group": self._group,
            "kind": alarm.kind,
            "reason": alarm.text,
            "details": dict(alarm.details),
            "time": time.time_ns() // 1_000_000,
        }
        body = json.dumps(document, ensure_ascii=False, default=str).encode(errors="replace")
        logger.warning("group %s: %s: %s", self._group, alarm.kind, escaped(alarm.text, MESSAGE_SIZE_MAX))
        while True:
            try:
                self._queue.put_nowait(body)
            except queue.Full:
                try:
                    self._queue.get_nowait()
                except queue.Empty:
                    continue
                logger.warning(
                    "dropped an alarm of group %s: %d alarms are waiting for %s", self._group, QUEUE_MAX, self._host
                )
            else:
                return

    def close(self) -> None:
        """Post the queued alarms, waiting at most CLOSE_S."""
        self._closing.set()
        self.send_end()
        self._thread.join(CLOSE_S)

    def send_end(self) -> None:
        """Queue the signal that ends the thread after all alarms."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            logger.warning("dropped %d waiting alarms of group %s at shutdown", QUEUE_MAX, self._group)

    def _work(self) -> None:
        while (body := self._queue.get()) is not None:
            for number in range(TRIES_MAX):
                try:
                    self._post(body)
                except Exception as error:  # noqa: BLE001  # OSError, bad HTTP or URL: later alarms are still sent
                    logger.info("sending an alarm to %s failed, attempt %d: %s", self._host, number + 1, error)
                    self._closing.wait(BACKOFF_S * 2**number)
                else:
                    break
            else:
                logger.warning("sending an alarm to %s failed after %d attempts", self._host, TRIES_MAX)

    def _post(self, body: bytes) -> None:
        http_ask.tell(self._url, body, headers={"Content-Type": "application/json"}, connect_s=TRY_S, whole_s=TRY_S)

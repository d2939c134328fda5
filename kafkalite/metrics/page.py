"""Serve `/metrics`, `/health/live` and `/health/ready` as a WSGI application, for a broker or a command.

    families ─▶ text for Prometheus      alive, ready ─▶ 200, or 503 and the reasons

All paths are read-only: GET and HEAD.

Thread rule: any thread.
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkalite._native.base import native_time as time
from kafkalite.base.logging import RepeatLogger
from kafkalite.base.metric_families import Family
from kafkalite.metrics.text import OPENMETRICS, PROMETHEUS, compressed, render, wants_openmetrics
from kafkalite.web.routes import NoSuchMethodError, NoSuchPathError, Routes
from kafkalite.web.server import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalite.base.metric_families import Source

logger = RepeatLogger(logging.getLogger(__name__))

LIMITS: Final = Limits(threads=2, connections=16, header_size=16 * 1024, body_size=1024, request_timeout_s=15.0)
"""Limits of a server that serves only this application."""
REASONS: Final = {
    200: "OK",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Answer = tuple[int, list[tuple[str, str]], list[bytes]]


class Page:
    """The WSGI application for metrics and health checks.

    `families`   yields the metrics; called at each scrape
    `alive`      returns the reasons why the process is not alive, so that a supervisor restarts it; [] if it is alive
    `ready`      returns the reasons why the process is not ready; [] if it is ready
    `notes`      returns remarks for the readiness page, which do not make the process unready
    """

    def __init__(
        self,
        families: Source,
        alive: Callable[[], list[str]],
        ready: Callable[[], list[str]],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        self._families = families
        self._alive = alive
        self._ready = ready
        self._scraping = threading.Lock()
        self._routes: Routes[Callable[[Mapping[str, Any]], Answer]] = Routes(
            [
                ("/metrics", {"GET": self._metrics}),
                ("/health/live", {"GET": lambda _environ: _verdict(self._alive())}),
                ("/health/ready", {"GET": lambda _environ: _verdict(self._ready(), notes())}),
            ]
        )

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        try:
            handler, _ = self._routes.find(environ)
            status, headers, pieces = handler(environ)
        except NoSuchPathError:
            message = "not found; this server has /metrics and /health/…"
            status, headers, pieces = _json(404, {"error_code": 404, "message": message})
        except NoSuchMethodError as error:
            status, headers, pieces = _json(405, {"error_code": 405, "message": "Method Not Allowed"})
            headers.append(("Allow", str(error)))
        except Exception:
            logger.exception("a metrics request failed")
            status, headers, pieces = _json(500, {"error_code": 500, "message": "Internal Server Error"})
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
        start_response(f"{status} {REASONS[status]}", headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else pieces

    def _metrics(self, environ: Mapping[str, Any]) -> Answer:
        openmetrics = wants_openmetrics(str(environ.get("HTTP_ACCEPT", "")))
        headers = [("Content-Type", OPENMETRICS if openmetrics else PROMETHEUS), ("Vary", "Accept, Accept-Encoding")]
        with self._scraping:  # one scrape at a time, which bounds the work that clients can cause
            pieces: Iterable[bytes] = render(self._families(), openmetrics=openmetrics)
            if takes_gzip(str(environ.get("HTTP_ACCEPT_ENCODING", ""))):
                headers.append(("Content-Encoding", "gzip"))
                pieces = compressed(pieces)
            return 200, headers, list(pieces)


def told(sources: Iterable[Source]) -> Iterator[Family]:
    """Yield the metrics of all sources. A source that fails is logged and skipped."""
    began = time.thread_time()
    failed = 0
    for source in sources:
        try:
            yield from source()
        except Exception:
            failed += 1
            logger.exception("a source of metrics failed")
    yield Family(
        "kafkalite_scrape_failed_sources", "gauge", "Sources whose metrics this scrape could not read.", [("", failed)]
    )
    yield Family(
        "kafkalite_scrape_cpu_seconds",
        "gauge",
        "CPU time that this scrape has taken so far.",
        [("", time.thread_time() - began)],
    )


def takes_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip."""
    for part in accept_encoding.split(","):
        name, _, rest = part.partition(";")
        if name.strip().lower() in {"gzip", "*"}:
            return rest.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def _verdict(reasons: list[str], notes: Sequence[str] = ()) -> Answer:
    more = {"notes": list(notes)} if notes else {}
    if reasons:
        return _json(503, {"status": "down", "reasons": reasons, **more})
    return _json(200, {"status": "up", **more})


def _json(status: int, body: Mapping[str, object]) -> Answer:
    return status, [("Content-Type", "application/json")], [json.dumps(body).encode() + b"\n"]

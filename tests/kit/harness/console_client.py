"""A visitor of a console, without a browser: answers to GET, and to POST as its own pages send it."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalite.console.server import ConsoleServer

OWN = {"sec-fetch-site": "same-origin"}


class Answer:
    """Status, headers and text."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.raw = answer.read()

    @property
    def text(self) -> str:
        return self.raw.decode()

    @property
    def data(self) -> Any:
        return json.loads(self.raw)


class Visitor:
    """Somebody with the same headers on every request."""

    def __init__(self, console: ConsoleServer, **headers: str) -> None:
        self._port = console.addresses[0].port
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def ask(
        self, method: str, path: str, body: str | bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request(method, path, body, {**self._headers, **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def data(self, path: str) -> Any:
        """The page as JSON."""
        answer = self.ask("GET", path, headers={"accept": "application/json"})
        assert answer.status == 200, answer.raw
        return answer.data

    def form(self, path: str, fields: Mapping[str, str] | Sequence[tuple[str, str]], **headers: str) -> Answer:
        """As a page of the console sends it; another `sec_fetch_site` makes it another site's."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self.ask("POST", path, urlencode(fields), {**OWN, **kind, **named})

    def send(self, path: str, document: object) -> Any:
        """As a program sends it; what is answered."""
        answer = self.send_any(path, document)
        assert answer.status == 200, answer.raw
        return answer.data

    def send_any(self, path: str, document: object) -> Answer:
        """Send the same request, and return the response with any status."""
        kinds = {"content-type": "application/json", "accept": "application/json"}
        return self.ask("POST", path, json.dumps(document), {**OWN, **kinds})

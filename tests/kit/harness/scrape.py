"""Asks a broker for its metrics and health, and reads the answer with prometheus_client's parsers."""

from __future__ import annotations

import gzip
import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Got(NamedTuple):
    """An answer."""

    status: int
    headers: dict[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        raw = gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body
        return raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(url: str, path: str = "/metrics", *, method: str = "GET", **headers: str) -> Got:
    """One request; the headers' names with underscores for dashes."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        return Got(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class Scrape:
    """Samples of a text: `scrape("name", topic="a")` is a value."""

    def __init__(self, text: str, *, openmetrics: bool = False) -> None:
        parse = (
            openmetrics_parser.text_string_to_metric_families if openmetrics else parser.text_string_to_metric_families
        )
        self.families = {family.name: family for family in parse(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    @classmethod
    def of(cls, url: str) -> Scrape:
        return cls(ask(url).text)

    def __call__(self, name: str, /, **labels: object) -> float:
        return self.samples[name, frozenset((key, str(value)) for key, value in labels.items())]

    def labels_of(self, name: str) -> list[dict[str, str]]:
        """Of every sample of a name."""
        return [dict(labels) for found, labels in self.samples if found == name]

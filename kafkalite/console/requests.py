"""Define the requests that page functions get, the results that they return, and the errors that they raise.

Thread rule: a Request belongs to one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

from kafkalite.console.rendering import visible
from kafkalite.failures.dead_topics import RoutedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kafkalite.avro.documents import Documents
    from kafkalite.client import Client
    from kafkalite.client.cluster import TopicDescription
    from kafkalite.console.masks import Masks

    Topics = Callable[[Client], Mapping[str, TopicDescription]]

FIELD_MAX: Final = 4096
FIELDS_MAX: Final = 50
NUMBER_DIGITS_MAX: Final = 18


class BadRequestError(Exception):
    """Status 400 with a message."""


class AwayError(Exception):
    """Status 502 with a message: the cluster or a service does not respond."""


class BusyError(Exception):
    """Status 503 with a message."""


class NotFoundError(Exception):
    """Status 404 with a message."""


class ConflictError(Exception):
    """Status 409 with a message: the current state does not allow the change."""


class Done(NamedTuple):
    """The result of an action: the path to which a browser is redirected, and data for programs."""

    location: str
    data: dict[str, Any]


class Download(NamedTuple):
    """A file to download."""

    path: Path
    name: str


def all_topics(client: Client) -> Mapping[str, TopicDescription]:
    """List the topics from the cluster."""
    return client.with_retries(client.topics)


class Request:
    """A request to the console: the decoded variable parts of its path, and its query fields.

    `pairs` are the fields of a body, which replace the query's fields. If a field is repeated, the last one counts.
    """

    def __init__(
        self,
        environ: Mapping[str, Any],
        values: tuple[str, ...],
        masks: Masks,
        documents: Documents | None = None,
        *,
        pairs: list[tuple[str, str]] | None = None,
        topics: Topics = all_topics,
        routed: RoutedTopics | None = None,
    ) -> None:
        self.values = values
        self.routed = routed or RoutedTopics()
        """The dead-letter topics that policies chose; shared by the requests of a console."""
        self.topics = topics
        """All topics by name: from the cluster, or from a recent sample if there are many."""
        self.origin = f"{environ.get('wsgi.url_scheme', 'http')}://{environ.get('HTTP_HOST', '')}"
        """Base URL of this console as the user sees it."""
        self.masks = masks
        self.documents = documents
        """Decoder of Avro; None without a schema registry."""
        if pairs is not None:
            self.pairs = pairs
            self.fields = dict(pairs)
            return
        try:
            pairs = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            raise BadRequestError(f"the request has more than {FIELDS_MAX} fields") from None
        self.pairs = pairs
        self.fields = dict(pairs)
        if any(len(value) > FIELD_MAX for value in self.fields.values()):
            raise BadRequestError(f"a field has more than {FIELD_MAX} characters")

    def text(self, name: str, default: str = "") -> str:
        """Return a field without surrounding spaces."""
        return self.whole_text(name, FIELD_MAX).strip() or default

    def whole_text(self, name: str, size_max: int) -> str:
        """Return a field unchanged. Raises BadRequestError if the field is too long."""
        found = self.fields.get(name, "")
        if len(found) > size_max:
            raise BadRequestError(f"{name} has more than {size_max} characters")
        return found

    def many(self, name: str) -> list[str]:
        """Return all fields with this name, in order."""
        return [value for found, value in self.pairs if found == name and len(value) <= FIELD_MAX]

    def require_name(self, name: str) -> None:
        """Raise BadRequestError unless the field `confirm` is the name of the object, as stored or as shown."""
        if self.fields.get("confirm", "").strip() not in {name.strip(), visible(name).strip()}:
            raise BadRequestError(f"nothing was changed: type {visible(name)} to confirm")

    def flag(self, name: str) -> bool:
        """Return whether a checkbox was checked."""
        return self.text(name) not in {"", "0", "false"}

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a field as an integer from `low` to `high`. Raises BadRequestError."""
        text = self.text(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS_MAX or not low <= int(text) <= high:
            raise BadRequestError(f"{name} must be a whole number from {low} to {high}")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return a field whose value is one of several words, by default the first word. Raises BadRequestError."""
        text = self.text(name, choices[0])
        if text not in choices:
            raise BadRequestError(f"{name} must be one of {', '.join(choices)}")
        return text

    def query(self, **changes: object) -> str:
        """Return the query with some fields changed, for a link."""
        fields = {**self.fields, **{name: str(value) for name, value in changes.items()}}
        return urlencode({name: value for name, value in fields.items() if value != ""})


def whole(text: str, what: str) -> int:
    """Parse a number in the path. Raises NotFoundError if it is invalid."""
    if not text.isascii() or not text.isdigit() or len(text) > NUMBER_DIGITS_MAX:
        raise NotFoundError(f"{what} {text[:80]!r} does not exist")
    return int(text)

"""Path prefixes: which texts are one, and how requests and redirects pass through them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kafkalite.errors import StartupError
from kafkalite.web.prefix import parse_base_path, with_prefix


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("", ""), ("/", ""), ("/kafka", "/kafka"), ("/kafka/", "/kafka"), ("/a/b-1/~c.d_/", "/a/b-1/~c.d_")],
)
def test_a_slash_at_the_end_makes_no_difference(text: str, prefix: str) -> None:
    assert parse_base_path(text) == prefix


@pytest.mark.parametrize(
    "text",
    [
        *(
            "kafka",
            "kafka/",
            "/a/../b",
            "/..",
            "/./a",
            "//",
            "//a",
            "/a//",
            "/a//b",
            "/a b",
            "/a\n",
            "/a\0b",
            "/%2e%2e",
        ),
        *('/"><script>', "/{{ 7 }}", "/a?b", "/a#b", "/a\\1", "/ä", "http://a/b", " /a"),
    ],
)
def test_any_other_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(StartupError, match=r"^--base-path .* is not a path such as /kafka") as refused:
        parse_base_path(text)
    assert "\n" not in str(refused.value)
    assert "\0" not in str(refused.value)


def test_a_prefix_that_is_an_address_of_the_server_is_refused() -> None:
    with pytest.raises(StartupError, match="/topics is a path of this server already"):
        with_prefix(lambda *_: [], "/topics/a", {"topics"})
    assert callable(with_prefix(lambda *_: [], "/a/topics", {"topics"}))


@pytest.mark.parametrize(
    ("uri", "inner"),
    [
        ("/kafka/topics/a%2Fb?q=1", "/topics/a%2Fb?q=1"),
        ("/topics/a%2Fb?q=1", "/topics/a%2Fb?q=1"),
        ("http://host/kafka/topics", "/topics"),
        ("/kafka", "/"),
        ("/kafka/", "/"),
        ("/kafka?q=1", "/?q=1"),
        ("/kafkalite", "/kafkalite"),
        ("/kafka/kafka/topics", "/kafka/topics"),
        ("/", "/"),
    ],
)
def test_paths_with_and_without_the_prefix_reach_the_application(uri: str, inner: str) -> None:
    locations = [("Location", "/there"), ("Location", "https://else.example/"), ("X", "/there")]

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("303 See Other", locations)
        return [str(environ["REQUEST_URI"]).encode()]

    told: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "REQUEST_URI": uri, "QUERY_STRING": uri.partition("?")[2]}
    served = with_prefix(application, "/kafka", ())
    body = b"".join(served(environ, lambda status, headers: told.extend((status, headers))))
    assert body == inner.encode()
    assert told == ["303 See Other", [("Location", "/kafka/there"), *locations[1:]]]
    assert environ["REQUEST_URI"] == uri

"""The file of clusters, and addresses that begin with a cluster's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.console.clusters import ClusterEntry, Mount, based, read_clusters
from kafkalite.errors import StartupError


def test_a_file_of_clusters(tmp_path: Path) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(
        '[[cluster]]\nname = "live"\nbootstrap = "a:1,b:2"\nconfig = "live.properties"\ncolour = "red"\n'
        '[[cluster]]\nname = "test"\nbootstrap = "c:3"\nregistry = "http://r:8081"\nzookeeper = "z:2181"\n'
    )
    live, test = read_clusters(file)
    assert live == ClusterEntry("live", "a:1,b:2", tmp_path / "live.properties", None, "red")
    assert (test.base, test.registry, test.zookeeper, test.config) == ("/c/test", "http://r:8081", "z:2181", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must have 1 to 50"),
        ("cluster = 1", "and nothing else"),
        ("[other]", "and nothing else"),
        ('[[cluster]]\nname = "a"', "has no bootstrap"),
        ('[[cluster]]\nname = "a/b"\nbootstrap = "x:1"', "expected at most 63 letters"),
        ('[[cluster]]\nname = ".."\nbootstrap = "x:1"', "expected at most 63 letters"),
        ('[[cluster]]\nname = "a"\nbootstrap = "x:1"\ncolour = "pink"', "expected one of red"),
        ('[[cluster]]\nname = "a"\nbootstrap = "x:1"\npassword = "b"', "table can have name"),
        ('[[cluster]]\nname = "a"\nbootstrap = 7', "each a string"),
        ('[[cluster]]\nname = "a"\nbootstrap = "x:1"\n' * 2, "the cluster name a is used twice"),
        ("nonsense", "Expected"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text(text)
    with pytest.raises(StartupError, match=said):
        read_clusters(file)


def test_addresses_of_a_template_begin_with_the_clusters() -> None:
    source = (
        '<a href="/topics/{{ x }}"><form action="/track"><a href="?a=1"><i data-url="/a">'
        '<a href="https://x/"><a href="//x">'
    )
    assert based(source, "/c/a") == (
        '<a href="/c/a/topics/{{ x }}"><form action="/c/a/track"><a href="?a=1"><i data-url="/c/a/a">'
        '<a href="https://x/"><a href="//x">'
    )


def answer(mount: Mount, uri: str) -> tuple[str, dict[str, str], bytes]:
    told: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "REQUEST_URI": uri, "QUERY_STRING": uri.partition("?")[2]}
    body = b"".join(mount(environ, lambda status, headers, *_: told.extend((status, dict(headers)))))
    return told[0], told[1], body


@pytest.mark.parametrize(
    ("uri", "name", "inner", "location"),
    [
        ("/c/live/topics/a%2Fb?q=1", b"live", b"/topics/a%2Fb?q=1", "/c/live/there"),
        ("/c/test", b"test", b"/", "/c/test/there"),
        ("/c/test/", b"test", b"/", "/c/test/there"),
        ("/c/none/topics", b"live", b"/c/none/topics", "/there"),
        ("/topics", b"live", b"/topics", "/there"),
        ("//c/live", b"live", b"//c/live", "/there"),
    ],
)
def test_a_path_goes_to_its_cluster(uri: str, name: bytes, inner: bytes, location: str) -> None:
    def application(own: bytes) -> Any:
        def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            start_response("303 See Other", [("Location", "/there")])
            return [own, b" ", str(environ["REQUEST_URI"]).encode()]

        return call

    mount = Mount({"/c/live": application(b"live"), "/c/test": application(b"test")})
    status, headers, body = answer(mount, uri)
    assert (status, headers["Location"], body) == ("303 See Other", location, name + b" " + inner)


def test_the_root_leads_to_the_first_cluster() -> None:
    mount = Mount({"/c/live": lambda *_: [b""]})
    status, headers, _ = answer(mount, "/")
    assert (status, headers["Location"]) == ("302 Found", "/c/live/")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_what_names_no_cluster_changes_none(method: str) -> None:
    called: list[str] = []
    mount = Mount({"/c/live": lambda environ, _: called.append(environ["REQUEST_METHOD"]) or []})
    told: list[str] = []
    for uri in ("/produce", "/", "/c/none/produce"):
        mount({"REQUEST_METHOD": method, "REQUEST_URI": uri}, lambda status, _: told.append(status))
    assert (told, called) == (["404 Not Found"] * 3, [])
    mount({"REQUEST_METHOD": method, "REQUEST_URI": "/c/live/produce"}, lambda status, _: told.append(status))
    assert called == [method]

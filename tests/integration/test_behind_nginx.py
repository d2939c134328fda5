"""The console and the registry under a path prefix of nginx, which passes the prefix on or strips it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import pytest

from kafkalite.avro.client import RegistryClient
from kafkalite.broker import Broker
from kafkalite.cli import main
from kafkalite.client import Client
from kafkalite.console.application import STATIC
from kafkalite.console.clusters import ClusterEntry
from kafkalite.console.server import ConsoleServer
from kafkalite.model import TopicPartition
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import parse_address
from tests.kit.harness.console_scene import fill, fill_further, register_some
from tests.kit.harness.samples import sample
from tests.kit.processes.broker import wait_until

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

pytestmark = pytest.mark.integration
needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx: apt-get install nginx-light")

LOOPBACK = parse_address("http://127.0.0.1:0", 0)
WAIT_S = 60
MISSING_MAX = 10
QUERIES_MAX = 2
"""Links with other queries to the same page are not followed."""
PAGES_MAX = 600
"""More than a walk finds: it ends, and not because it gives up."""
SLASHED = "group/with a slash?&%2F"
CONFIG = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ }}
http {{
  access_log off;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  map $request_uri $stripped {{ ~^/[^/]+/[^/?]+(?<rest>/.*)$ $rest; default /; }}
  server {{
    listen 127.0.0.1:{port};
    proxy_set_header Host $http_host;
    location /passed/kafka/ {{ proxy_pass http://127.0.0.1:{passed}; }}
    location /stripped/kafka/ {{ proxy_pass http://127.0.0.1:{stripped}$stripped; }}
    location /passed/several/ {{ proxy_pass http://127.0.0.1:{several}; }}
    location /passed/registry/ {{ proxy_pass http://127.0.0.1:{registry}; }}
    location /stripped/registry/ {{ proxy_pass http://127.0.0.1:{registry}$stripped; }}
  }}
}}
"""


class Links(HTMLParser):
    """Addresses in a page, by the attribute that has them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.posts: list[str] = []
        self._form: dict[str, str | None] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("href", "src", "data-base"):
            if name in values and not str(values[name]).startswith("data:"):
                self.found.append((name, values[name] or ""))
        if tag == "form":
            self._form = values
        for name in ("action", "formaction"):
            if values.get(name) is None:
                continue
            if self._form.get("method") == "post":
                self.posts.append(values[name] or "")
            else:
                self.found.append((name, values[name] or ""))


class Answer(NamedTuple):
    status: int
    kind: str
    location: str
    text: str


def answer_of(port: int, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        answer = connection.getresponse()
        text = answer.read().decode()
        kind = answer.headers.get("Content-Type", "")
        return Answer(answer.status, kind, answer.headers.get("Location", ""), text)
    finally:
        connection.close()


class Site:
    """nginx before two consoles, one of several clusters, and a registry."""

    def __init__(self, port: int, ports: dict[str, int]) -> None:
        self.port = port
        self.ports = ports
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        return answer_of(self.port, path, method, body, **headers)

    def walk(self, prefix: str, direct: int) -> tuple[set[str], set[str]]:
        """Follow all links from the first page; the paths that were asked and those that forms post to."""
        asked: set[str] = set()
        posts: set[str] = set()
        missing: list[str] = []
        queried: dict[str, set[str]] = {}
        waiting = [f"{prefix}/"]
        while waiting:
            path = waiting.pop()
            queries = queried.setdefault(path.partition("?")[0], set())
            if path in queries or len(queries) == QUERIES_MAX:
                continue
            queries.add(path)
            asked.add(path)
            assert len(asked) < PAGES_MAX
            answer = self.ask(path)
            if answer.status != 200:
                missing.append(path)
            if not answer.kind.startswith("text/html"):
                continue
            links = Links(answer.text)
            for name, link in links.found:
                split = urlsplit(urljoin(self.url + path, link))
                assert split.netloc == f"127.0.0.1:{self.port}", (path, name, link)
                assert split.path.startswith(f"{prefix}/"), (path, name, link)
                if name != "data-base":
                    waiting.append(split.path + (f"?{split.query}" if split.query else ""))
            for link in links.posts:
                assert link.startswith(f"{prefix}/"), (path, link)
                posts.add(link)
        for path in missing:  # the scene names groups and records that are not there
            assert answer_of(direct, path.removeprefix(prefix)).status == 404, path
        assert len(missing) < MISSING_MAX, missing
        return asked, posts


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("nginx")
    with Broker(flush_on_acks_all="false", offsets_topic_num_partitions=2) as broker:
        servers = broker.bootstrap_servers
        with Client(servers) as client:
            fill(client)
            fill_further(client)
            client.groups.commit(SLASHED, {TopicPartition("orders", 0): 1})
        entries = [ClusterEntry("live", servers, colour="red"), ClusterEntry("try", servers)]
        with (
            RegistryServer(servers, port=0, base_path="/passed/registry/") as registry,
            ConsoleServer(servers, [LOOPBACK], base_path="/passed/kafka", registry=registry.url) as passed,
            ConsoleServer(servers, [LOOPBACK], base_path="/stripped/kafka/", registry=registry.url) as stripped,
            ConsoleServer("", [LOOPBACK], base_path="/passed/several", clusters=entries) as several,
        ):
            register_some(registry.url)
            for console in (passed, stripped, several):
                wait_until(lambda one=console: one.sampler.latest is not None, WAIT_S, "the first look")
            port = free_port()
            ports = {name: server.addresses[0].port for name, server in locals().items() if name in PORTS}
            (directory / "nginx.conf").write_text(CONFIG.format(directory=directory, port=port, **ports))
            command = [str(NGINX), "-p", str(directory), "-c", str(directory / "nginx.conf")]
            process = subprocess.Popen([*command, "-e", str(directory / "error.log")])
            try:
                wait_until(lambda: process.poll() is not None or is_open(port), WAIT_S, "nginx listens")
                assert process.poll() is None, (directory / "error.log").read_text()
                yield Site(port, ports)
            finally:
                process.terminate()
                process.wait(WAIT_S)


PORTS = {"passed", "stripped", "several", "registry"}


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@needs_nginx
@pytest.mark.parametrize("prefix", sample(["/passed/kafka", "/stripped/kafka"], 1))
def test_every_link_stays_under_the_prefix_and_answers(site: Site, prefix: str) -> None:
    asked, posts = site.walk(prefix, site.ports[prefix.split("/")[1]])
    pages = {path.removeprefix(prefix).partition("?")[0] for path in asked}
    expected = {"/", "/topics", "/topics/orders", "/topics/orders/messages", "/topics/orders/messages/0/2", "/groups"}
    expected |= {"/groups/billing", "/letters", "/letters/dlq.billing.orders", "/track", "/search", "/policies"}
    expected |= {"/brokers", "/brokers/1", "/replicas", "/jobs", "/rights", "/transactions", "/subjects", "/new-topic"}
    expected |= {"/topics/orders/tail", "/topics/orders/export", "/topics/orders/alter", "/produce"}
    expected |= {f"/static/{name}" for name in STATIC}
    assert expected - pages == set()
    assert any("%2F" in path for path in pages), "no name with a slash"
    assert {f"{prefix}/new-topic", f"{prefix}/topics/orders/delete", f"{prefix}/groups/billing/delete"} <= posts


@needs_nginx
def test_several_clusters_stay_under_the_prefix(site: Site) -> None:
    prefix = "/passed/several"
    first = site.ask(f"{prefix}/")
    assert (first.status, urlsplit(first.location).path) == (302, f"{prefix}/c/live/")
    page = site.ask(f"{prefix}/c/try/topics")
    links = [link for _, link in Links(page.text).found if not link.startswith("?") and not link.startswith("#")]
    assert {f"{prefix}/c/live/", f"{prefix}/c/try/", f"{prefix}/c/try/topics/orders"} <= {*links}
    for link in {*links}:
        assert link.startswith(f"{prefix}/c/"), link
        assert site.ask(link).status == 200, link


@needs_nginx
@pytest.mark.parametrize("prefix", ["/passed/kafka", "/stripped/kafka"])
def test_a_form_leads_back_to_a_page_under_the_prefix(site: Site, prefix: str) -> None:
    name = prefix.strip("/").replace("/", "-")
    form = f"name={name}&partitions=1"
    kind = {"content_type": "application/x-www-form-urlencoded"}
    foreign = site.ask(f"{prefix}/new-topic", "POST", form, origin="http://evil.example", **kind)
    assert foreign.status == 403
    answer = site.ask(f"{prefix}/new-topic", "POST", form, origin=site.url, **kind)
    assert answer.status == 303, answer
    assert urlsplit(answer.location).path == f"{prefix}/topics/{name}"
    assert site.ask(urlsplit(answer.location).path).status == 200


@needs_nginx
@pytest.mark.parametrize("prefix", ["/passed/kafka", "/stripped/kafka"])
def test_the_link_and_curl_of_a_message_have_the_prefix(site: Site, prefix: str) -> None:
    page = site.ask(f"{prefix}/topics/orders/messages/0/2")
    assert f'<pre tabindex="0">{site.url}{prefix}/topics/orders/messages/0/2</pre>' in page.text
    assert re.search(rf"curl -s &#39;{re.escape(site.url + prefix)}/topics/", page.text)
    answer: Any = json.loads(site.ask(f"{prefix}/topics/orders?as_json=1").text)
    assert answer["name"] == "orders"


@needs_nginx
@pytest.mark.parametrize("prefix", ["/passed/registry", "/stripped/registry"])
def test_a_registry_serves_clients_under_the_prefix(site: Site, prefix: str) -> None:
    schema = json.dumps({"type": "record", "name": "Behind", "fields": []})
    subject = f"a/{prefix.split('/')[1]}"
    with RegistryClient(site.url + prefix, retry_timeout_s=0) as client:
        number = client.register(subject, schema)
        assert client.look_up(subject, schema) == number
        assert subject in client.request("GET", "/subjects")


@pytest.mark.parametrize(
    ("command", "path"),
    [
        *itertools.product(["console", "registry"], ["kafka", "/a/../b", "/a\nb", "/subjects"]),
        ("console", "/static/x"),  # an address that the registry does not have
    ],
)
def test_a_bad_prefix_ends_the_command_with_one_sentence(
    command: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--registry", "http://127.0.0.1:1"] if command == "console" else []
    assert main([command, "-b", "127.0.0.1:1", *options, "--base-path", path]) == 2
    assert re.fullmatch(r"kafkalite.*--base-path.*\n", capsys.readouterr().err)

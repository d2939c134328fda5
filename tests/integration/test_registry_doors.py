"""The registry behind TLS and sign-in, asked by our client, by Confluent's settings, and from the command line."""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from kafkalite.avro.client import RegistryClient, RegistryRefused, RegistryUnreachable
from kafkalite.cli import main
from kafkalite.errors import ConfigError
from kafkalite.schema_registry.server import RegistryServer
from kafkalite.web.server import Address
from kafkalite.web.tls import Tls
from kafkalite.web.users import Role, Users, certificate_line, password_line, token_line
from tests.kit.harness.certificates import Authority

pytestmark = pytest.mark.integration

SCHEMA = '{"type":"record","name":"R","fields":[]}'
OTHER = '{"type":"record","name":"S","fields":[]}'
TOKEN_LINE, TOKEN = token_line("ci", Role.OPERATOR)


@pytest.fixture(scope="module")
def users() -> Users:
    lines = [password_line("reader", Role.VIEWER, "p:w"), certificate_line("O=Tests,CN=app", Role.OPERATOR), TOKEN_LINE]
    return Users(lines)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("doors")
    authority = Authority()
    authority.write_pem(directory / "ca.pem")
    authority.issue("server").write_pem(directory / "server.pem")
    authority.issue("app", client=True).write_pem(directory / "app.pem")
    return directory


@pytest.fixture
def registry(kafka_broker, kafka_topic: str, site: Path, users: Users):
    tls = Tls(
        {
            "ssl.keystore.location": str(site / "server.pem"),
            "ssl.truststore.location": str(site / "ca.pem"),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),(.*)$/$2,CN=$1/",
        }
    )
    with RegistryServer(
        kafka_broker.bootstrap_servers,
        addresses=[Address("https", "127.0.0.1", 0)],
        topic=f"schemas-{kafka_topic}"[:249],
        tls=tls,
        users=users,
    ) as server:
        yield server


def client(registry: RegistryServer, site: Path, **settings: str) -> RegistryClient:
    trusted = {"schema.registry.ssl.truststore.location": str(site / "ca.pem")}
    named = {key.replace("_", "."): text for key, text in settings.items()}
    return RegistryClient(registry.url, settings=trusted | named, retry_timeout_s=0)


def test_a_role_says_what_may_be_done(registry: RegistryServer, site: Path) -> None:
    with client(registry, site, bearer_auth_token=TOKEN) as writer:
        number = writer.register("s", SCHEMA)
    with client(registry, site, basic_auth_user_info="reader:p:w") as reader:
        assert reader.schema(number).text
        assert reader.look_up("s", SCHEMA) == number
        assert reader.request("POST", "/compatibility/subjects/s/versions/latest", {"schema": SCHEMA})["is_compatible"]
        for method, path, body in (
            ("POST", "/subjects/s/versions", {"schema": OTHER}),
            ("DELETE", "/subjects/s", None),
            ("PUT", "/config", {"compatibility": "NONE"}),
            ("PUT", "/mode/s", {"mode": "READONLY"}),
        ):
            with pytest.raises(RegistryRefused) as refused:
                reader.request(method, path, body)
            assert refused.value.status == 403


def test_a_certificate_signs_in(registry: RegistryServer, site: Path) -> None:
    own = {"schema.registry.ssl.keystore.location": str(site / "app.pem")}
    trusted = {"schema.registry.ssl.truststore.location": str(site / "ca.pem")}
    with RegistryClient(registry.url, settings=trusted | own, retry_timeout_s=0) as app:
        assert app.register("s", SCHEMA) == 1


def test_nobody_and_wrong_passwords_learn_nothing(registry: RegistryServer, site: Path) -> None:
    for settings in ({}, {"basic_auth_user_info": "reader:wrong"}, {"bearer_auth_token": "x"}):
        with client(registry, site, **settings) as stranger, pytest.raises(RegistryRefused) as refused:
            stranger.request("GET", "/subjects")
        assert refused.value.status == 401


def test_a_password_in_the_url_is_used_and_never_shown(registry: RegistryServer, site: Path) -> None:
    url = registry.url.replace("https://", "https://reader:p%3Aw@")
    trusted = {"schema.registry.ssl.truststore.location": str(site / "ca.pem")}
    with RegistryClient(url, settings=trusted, retry_timeout_s=0) as reader:
        assert reader.request("GET", "/subjects") == []
    with RegistryClient(url, retry_timeout_s=0) as untrusting, pytest.raises(RegistryUnreachable) as failed:
        untrusting.request("GET", "/subjects")
    assert "p%3Aw" not in str(failed.value)
    assert "CERTIFICATE_VERIFY_FAILED" in str(failed.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"basic.auth.user.info": "alice"},
        {"basic.auth.user.info": "a:b", "bearer.auth.token": "t"},
        {"schema.registry.ssl.truststore.locatoin": "x"},
    ],
)
def test_invalid_settings_are_reported(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        RegistryClient("https://127.0.0.1:1", settings=settings)


def test_the_command_serves_https_to_its_users(kafka_broker, kafka_topic: str, site: Path, tmp_path) -> None:
    users, tls, ready = tmp_path / "users", tmp_path / "tls.properties", tmp_path / "ready"
    tls.write_text(f"ssl.keystore.location={site / 'server.pem'}\n")
    added = [sys.executable, "-m", "kafkalite", "web", "add-user", str(users), "alice", "--role", "operator"]
    subprocess.run(added, input="secret\n", text=True, check=True, timeout=120)
    assert users.stat().st_mode & 0o777 == 0o600
    command = [sys.executable, "-m", "kafkalite", "registry", "-b", kafka_broker.bootstrap_servers]
    command += ["--listen", "https://127.0.0.1:0", "--tls-config", str(tls), "--users", str(users)]
    command += ["--topic", f"schemas-{kafka_topic}"[:249], "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "ready: https://127.0.0.1:" in process.stdout.readline()
        with RegistryClient(
            f"https://{ready.read_text().strip()}",
            settings={
                "basic.auth.user.info": "alice:secret",
                "schema.registry.ssl.truststore.location": str(site / "ca.pem"),
            },
        ) as alice:
            assert alice.register("s", SCHEMA) == 1
    finally:
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_name_that_is_not_this_machine_needs_to_be_allowed(kafka_broker, kafka_topic: str) -> None:
    def status(server: RegistryServer, host: str) -> int:
        asked = urllib.request.Request(f"{server.url}/subjects", headers={"Host": host})  # noqa: S310  # our own
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    topic = f"schemas-{kafka_topic}"[:249]
    with RegistryServer(
        kafka_broker.bootstrap_servers, port=0, topic=topic, allowed_hosts=["schemas.example"]
    ) as server:
        assert status(server, "schemas.example:8081") == 200
        assert status(server, "localhost") == 200
        assert status(server, socket.gethostname()) == 200
        assert status(server, "rebound.example") == 421


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["registry", "--listen", "https://127.0.0.1:0"], "requires --tls-config"),
        (["registry", "--listen", "tcp://x"], "not an address to listen on"),
        (["registry", "--users", "/nowhere/users"], "No such file"),
        (["registry", "--tls-config", "/nowhere/tls"], "/nowhere/tls"),
        (["web", "remove-user", "/nowhere/users", "a"], "file /nowhere/users does not exist"),
        (["web", "add-user", "/nowhere/users", "a:b", "--certificate"], "the name must be printable"),
        (["web", "add-user", "users", "a", "--role", "root"], "invalid choice"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_users_are_added_changed_listed_and_removed(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    users = str(tmp_path / "users")
    assert main(["web", "add-user", users, "ci", "--token"]) == 0
    first = capsys.readouterr().out.strip()
    assert main(["web", "add-user", users, "app", "--certificate", "--role", "admin"]) == 0
    assert main(["web", "add-user", users, "ci", "--token", "--role", "operator"]) == 0
    second = capsys.readouterr().out.strip()
    found = Users.from_file(Path(users))
    assert found.by_token(first) is None
    assert found.by_token(second) == ("ci", Role.OPERATOR)
    assert main(["web", "list-users", users]) == 0
    assert capsys.readouterr().out == "app\tadmin\tcertificate\nci\toperator\ttoken\n"
    assert main(["web", "remove-user", users, "ci"]) == 0
    assert Users.from_file(Path(users)).by_token(second) is None
    assert main(["web", "remove-user", users, "ci"]) == 2
    assert os.listdir(tmp_path) == ["users"]

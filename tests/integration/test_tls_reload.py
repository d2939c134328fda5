"""Certificates changed while the broker runs: by AlterConfigs, by a changed file, by SIGHUP. Nobody is cut off."""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509

from kafkalite.broker import Broker
from kafkalite.client import Client
from kafkalite.errors import InvalidRequest, KafkaError
from kafkalite.security import tls_listener
from tests.kit.harness.certificates import Authority
from tests.kit.harness.tls_broker import TlsBroker, answered, api_versions, ask
from tests.kit.processes.broker import BrokerProcess, free_port, wait_until

if TYPE_CHECKING:
    from tests.kit.harness.certificates import Identity

KEY = "listener.name.ssl.ssl.keystore.location"


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path) as broker:
        yield broker


def shown(tls: TlsBroker, port: int | None = None) -> int:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=str(tls.authority_file))
    where = ("127.0.0.1", port or tls.broker.endpoints["SSL"].port)
    bare = socket.create_connection(where, timeout=60)
    with context.wrap_socket(bare, server_hostname="localhost") as sock:
        der = sock.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def alter(tls: TlsBroker, settings: dict[str, str | None]) -> None:
    with Client(tls.address("PLAINTEXT")) as client:
        client.admin.alter_broker_configs(1, settings)


def test_altered_location_shows_the_new_certificate_and_cuts_nobody_off(tls: TlsBroker, tmp_path: Path) -> None:
    renewed = tls.authority.issue("server")
    assert shown(tls) == tls.server.certificate.serial_number
    opened = [tls.secure() for _ in range(50)]
    try:
        alter(tls, {KEY: str(renewed.write_pem(tmp_path / "renewed.pem"))})
        assert shown(tls) == renewed.certificate.serial_number
        for number, sock in enumerate(opened):
            sock.sendall(api_versions(number))
            assert answered(sock) == number
    finally:
        for sock in opened:
            sock.close()


def test_same_location_again_reads_the_file_again(tls: TlsBroker) -> None:
    renewed = tls.authority.issue("server")
    tls.write_server(renewed)
    alter(tls, {KEY: str(tls.server_file)})
    assert shown(tls) == renewed.certificate.serial_number


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        (lambda authority: authority.issue("another"), "another subject"),
        (lambda authority: authority.issue("server", hosts=(), addresses=("127.0.0.1",)), "lacks a name"),
        (lambda authority: authority.issue("server", begins_days=-9, ends_days=-2), "expired"),
    ],
    ids=["another subject", "a name less", "expired"],
)
def test_certificate_that_may_not_replace_the_old_one_is_refused(
    tls: TlsBroker, tmp_path: Path, faulty: object, reason: str
) -> None:
    identity: Identity = faulty(tls.authority)  # type: ignore[operator]
    with pytest.raises(KafkaError, match=reason):
        alter(tls, {KEY: str(identity.write_pem(tmp_path / "faulty.pem"))})
    assert shown(tls) == tls.server.certificate.serial_number


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.keystore.location", "/x"),
        ("listener.name.ssl.ssl.client.auth", "none"),
        ("listener.name.ssl.ssl.enabled.protocols", "TLSv1.3"),
        ("listener.name.ssl.ssl.keystore.location", "/absent"),
    ],
)
def test_what_cannot_change_while_running_is_refused(tls: TlsBroker, key: str, value: str) -> None:
    with pytest.raises(InvalidRequest):
        alter(tls, {key: value})
    assert shown(tls) == tls.server.certificate.serial_number


def test_secrets_are_never_told(tls: TlsBroker) -> None:
    key = "listener.name.ssl.ssl.key.password"
    alter(tls, {key: "not to be told"})
    with Client(tls.address("PLAINTEXT")) as client:
        entries = {entry.name: entry for entry in client.admin.describe_broker_configs(1)}
    assert entries[key].value is None
    assert entries[KEY].value == str(tls.server_file)


def test_private_key_in_the_settings_is_in_no_answer_and_in_no_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    authority = Authority()
    server, other = authority.issue("server"), authority.issue("server").key_pem.decode()
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.key_pem.decode(),
        "ssl.keystore.certificate.chain": server.chain_pem.decode(),
    }
    own = {f"listener.name.ssl.{key}": value for key, value in inline.items()}
    settings = {"listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    with Broker({**settings, **own}) as broker:
        with Client(str(broker.endpoints["PLAINTEXT"])) as client:
            client.admin.alter_broker_configs(1, own)
            with pytest.raises(InvalidRequest) as refused:
                client.admin.alter_broker_configs(1, {**own, "listener.name.ssl.ssl.keystore.key": other})
            listed = client.admin.describe_broker_configs(1)
        entries = {entry.name: entry for entry in listed}
        assert len(entries) == len(listed), "each is told once"
        assert "means nothing here" not in caplog.text
        crashed = "".join(traceback.format_exception(refused.value))
        told = [caplog.text, crashed, repr(broker.config), *(str(entry) for entry in entries.values())]
    secrets = [*server.key_pem.decode().splitlines()[1:-1], *other.splitlines()[1:-1]]
    assert entries["listener.name.ssl.ssl.keystore.key"].value is None
    assert [text for text in told if any(secret in text for secret in secrets)] == []


def test_changed_file_is_noticed(tls: TlsBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = tls.broker._tls.by_name["SSL"]  # type: ignore[union-attr]
    assert not listener.reload(only_changed=True)
    renewed = tls.authority.issue("server")
    tls.write_server(renewed)
    assert listener.reload(only_changed=True)
    assert shown(tls) == renewed.certificate.serial_number


@pytest.mark.parametrize("damage", ["empty", "absent", "key of another", "directory", "pipe"])
def test_file_that_does_not_load_keeps_the_old_certificate_and_is_told_once(
    tls: TlsBroker, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    tls.server_file.unlink()
    if damage == "directory":
        tls.server_file.mkdir()
    elif damage == "pipe":
        os.mkfifo(tls.server_file)  # nobody ever writes to it
    elif damage != "absent":
        other = tls.authority.issue("server")
        tls.server_file.write_bytes(b"" if damage == "empty" else other.key_pem + tls.server.chain_pem)
    listener = tls.broker._tls.by_name["SSL"]  # type: ignore[union-attr]
    for _ in range(3):
        assert not listener.reload(only_changed=True)
    assert caplog.text.count("the certificate stays as it was") == 1
    assert shown(tls) == tls.server.certificate.serial_number


def test_ticket_of_the_context_before_is_no_good_after_a_reload(tls: TlsBroker) -> None:
    context = tls.context(maximum_version=ssl.TLSVersion.TLSv1_2)
    with tls.secure(context) as sock:
        session = sock.session
    with tls.secure(context, session=session) as sock:
        assert sock.session_reused
    tls.write_server(tls.authority.issue("server"))
    tls.broker.reload_certificates()
    wait_until(lambda: shown(tls) != tls.server.certificate.serial_number, 60, "the new certificate")
    with tls.secure(context, session=session) as sock:
        assert not sock.session_reused


@pytest.mark.parametrize(
    ("bits", "asks", "given"),
    [(0, "none", False), (2048, "none", True), (0, "requested", True)],
    ids=["ECDSA", "RSA", "ECDSA and certificates of clients"],
)
def test_tickets_of_tls_1_3_are_given_where_coming_back_spares_something(
    tmp_path: Path, bits: int, asks: str, given: bool
) -> None:
    tls = TlsBroker(tmp_path, ssl_client_auth=asks)
    tls.write_server(tls.authority.issue("server", bits=bits))
    tls.broker = Broker(tls.settings)
    with tls:
        context = tls.context(minimum_version=ssl.TLSVersion.TLSv1_3)
        with tls.secure(context) as sock:
            sock.sendall(api_versions())
            assert answered(sock) == 7
            session = sock.session
        assert (session is not None and session.has_ticket) is given
        with tls.secure(context, session=session) as sock:
            sock.sendall(api_versions())
            assert answered(sock) == 7
            assert sock.session_reused is given


def test_revoked_certificate_is_refused(tmp_path: Path) -> None:
    lists = tmp_path / "revoked.pem"
    tls = TlsBroker(tmp_path, ssl_crl_location=str(lists))
    lists.write_bytes(tls.authority.revocations())
    with tls:
        assert serves(tls, tls.alice_file)
        lists.write_bytes(tls.authority.revocations(tls.alice))
        tls.broker.reload_certificates()
        bob = tls.authority.issue("bob", client=True).write_pem(tmp_path / "bob.pem")
        wait_until(lambda: serves(tls, bob) and not serves(tls, tls.alice_file), 60, "the list to count")


def serves(tls: TlsBroker, identity: Path) -> bool:
    try:
        return ask(tls, tls.context(identity)) == 7
    except OSError:
        return False


def test_certificate_near_its_end_is_told_once_a_day(tls: TlsBroker, caplog: pytest.LogCaptureFixture) -> None:
    listener = tls.broker._tls.by_name["SSL"]  # type: ignore[union-attr]
    ends = listener.expires
    for now in (ends - 20 * 86400, ends - 3 * 86400, ends - 3 * 86400 + 600, ends - 2 * 86400 + 600):
        listener.tell_expiry(now)
    told = [record.getMessage() for record in caplog.records if "certificate ends" in record.getMessage()]
    assert told == ["the certificate ends in 3 days", "the certificate ends in 1 days"]
    assert tls_listener.EXPIRY_WARNING_S < 20 * 86400


def test_hangup_signal_reads_the_files_again(tmp_path: Path) -> None:
    tls = TlsBroker(tmp_path)
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(tls.server_file),
    }
    port = free_port()
    settings["listeners"] = f"SSL://127.0.0.1:{port}"
    with BrokerProcess(tmp_path / "process", settings=settings, port=port) as process:
        assert shown(tls, process.port) == tls.server.certificate.serial_number
        tls.write_server(tls.authority.issue("server"))
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: shown(tls, process.port) != tls.server.certificate.serial_number, 60, "the new certificate")
        assert process.alive

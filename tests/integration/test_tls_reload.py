"""Certificates changed while the broker runs: by AlterConfigs, by a changed file, by SIGHUP. No connection is cut."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from cryptography import x509

from kafkalite.base.logging import TextFormatter
from kafkalite.broker import Broker
from kafkalite.broker.security import tls_listener
from kafkalite.client import Client
from kafkalite.errors import InvalidRequest, KafkaError
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


def test_an_altered_location_shows_the_new_certificate_and_cuts_no_connection(tls: TlsBroker, tmp_path: Path) -> None:
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


def test_same_location_again_reads_the_file_again(tls: TlsBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    renewed = tls.authority.issue("server", ends_days=77)
    tls.write_server(renewed)
    alter(tls, {KEY: str(tls.server_file)})
    assert shown(tls) == renewed.certificate.serial_number
    loaded = [TextFormatter().format(each) for each in caplog.records if each.getMessage() == "certificate loaded"]
    assert len(loaded) == 2  # of each of the two listeners that share the file
    assert all(f'expires="{renewed.certificate.not_valid_after_utc:%Y-%m-%d %H:%M:%S} UTC"' in line for line in loaded)


def test_a_change_of_another_setting_reads_no_certificate_again(
    tls: TlsBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    real, loads = tls_listener.load, []
    monkeypatch.setattr(tls_listener, "load", lambda config: (loads.append(config), real(config))[1])
    alter(tls, {"log.retention.ms": "3600000"})
    assert loads == []
    assert "certificate loaded" not in caplog.text
    renewed = tls.authority.issue("server")
    tls.write_server(renewed)
    alter(tls, {"log.retention.ms": "7200000"})
    assert loads != []
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
        assert "has no effect" not in caplog.text
        crashed = "".join(traceback.format_exception(refused.value))
        told = [caplog.text, crashed, repr(broker.config), *(str(entry) for entry in entries.values())]
    secrets = [*server.key_pem.decode().splitlines()[1:-1], *other.splitlines()[1:-1]]
    assert entries["listener.name.ssl.ssl.keystore.key"].value is None
    assert [text for text in told if any(secret in text for secret in secrets)] == []


def test_changed_file_is_noticed(tls: TlsBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = tls.broker._parts.tls.by_name["SSL"]  # type: ignore[union-attr]
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
        os.mkfifo(tls.server_file)  # a pipe without a writer
    elif damage != "absent":
        other = tls.authority.issue("server")
        tls.server_file.write_bytes(b"" if damage == "empty" else other.key_pem + tls.server.chain_pem)
    listener = tls.broker._parts.tls.by_name["SSL"]  # type: ignore[union-attr]
    for _ in range(3):
        assert not listener.reload(only_changed=True)
    assert caplog.text.count("could not reload the certificate") == 1
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


@pytest.mark.parametrize("inline", [False, True], ids=["trust store in a file", "trust store in the settings"])
def test_revoked_certificate_is_refused(tmp_path: Path, inline: bool) -> None:
    lists = tmp_path / "revoked.pem"
    tls = TlsBroker(tmp_path, ssl_crl_location=str(lists))
    if inline:
        del tls.settings["ssl.truststore.location"]
        tls.settings["ssl.truststore.type"] = "PEM"
        tls.settings["ssl.truststore.certificates"] = tls.authority_file.read_text()
        tls.broker = Broker(tls.settings)
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


def test_a_certificate_near_its_expiry_is_logged_once_a_day(tls: TlsBroker, caplog: pytest.LogCaptureFixture) -> None:
    listener = tls.broker._parts.tls.by_name["SSL"]  # type: ignore[union-attr]
    ends = listener.expires
    for now in (ends - 20 * 86400, ends - 3 * 86400, ends - 3 * 86400 + 600, ends - 2 * 86400 + 600):
        listener.tell_expiry(now)
    told = [record.getMessage() for record in caplog.records if "certificate expires" in record.getMessage()]
    assert told == ["the certificate expires in 3 days", "the certificate expires in 1 days"]
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


OPEN_COUNT = 1000
RENEWALS = 3
"""Times that a certificate is replaced under the open connections and the load."""


class Load:
    """Clients that work all along, through TLS: one writes and reads with librdkafka, one keeps reconnecting."""

    def __init__(self, port: int, tls: TlsBroker) -> None:
        self.errors: list[object] = []
        self.written = self.arrivals = 0
        self.read: list[int] = []
        self._ending = threading.Event()
        self._port, self._tls = port, tls
        self._settings = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(tls.authority_file),
            "error_cb": self.errors.append,
        }
        self._threads = [
            threading.Thread(target=self._run, args=[work]) for work in (self._write, self._read, self._arrive)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def go_on(self) -> None:
        """Returns when each of them has done something more."""
        before = self._done()
        wait_until(
            lambda: self.errors or all(now > then for now, then in zip(self._done(), before, strict=True)),
            60,
            "each client to do something",
        )
        assert self.errors == []

    def _done(self) -> tuple[int, int, int]:
        return self.written, len(self.read), self.arrivals

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # told by the test
            self.errors.append(error)

    def _write(self) -> None:
        producer = Producer({**self._settings, "linger.ms": 0})

        def delivered(error: object, _: object) -> None:
            if error is not None:
                self.errors.append(error)
            self.written += error is None

        number = 0
        while not self._ending.is_set():
            producer.produce("load", str(number).encode(), partition=0, on_delivery=delivered)
            producer.poll(0.005)
            number += 1
        if producer.flush(60):
            self.errors.append("records that were not written")

    def _read(self) -> None:
        wait_until(lambda: self.written or self._ending.is_set(), 60, "a record to read")
        consumer = Consumer({**self._settings, "group.id": "load", "enable.auto.commit": False})
        consumer.assign([TopicPartition("load", 0, 0)])
        while not self._ending.is_set():
            for message in consumer.consume(100, 0.1):
                if message.error() is not None:
                    self.errors.append(message.error())
                else:
                    self.read.append(int(message.value()))
        consumer.close()

    def _arrive(self) -> None:
        context = self._tls.context()
        while not self._ending.wait(0.01):
            bare = socket.create_connection(("127.0.0.1", self._port), timeout=60)
            with context.wrap_socket(bare, server_hostname="localhost") as sock:
                sock.sendall(api_versions())
                answered(sock)
            self.arrivals += 1


@pytest.mark.slow
@pytest.mark.parametrize("way", ["alter", "hangup", "file"])
def test_a_thousand_open_connections_and_a_load_do_not_feel_new_certificates(tmp_path: Path, way: str) -> None:
    tls = TlsBroker(tmp_path)
    port, plain = free_port(), free_port()
    settings = {
        "listeners": f"SSL://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain}",
        KEY: str(tls.server_file),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(descriptors(OPEN_COUNT + 500))
        process = stack.enter_context(BrokerProcess(tmp_path / "process", settings=settings, port=plain))
        context = tls.context()
        opened = []
        for _ in range(OPEN_COUNT):
            bare = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            opened.append(stack.enter_context(context.wrap_socket(bare, server_hostname="localhost")))
        load = stack.enter_context(Load(port, tls))
        load.go_on()
        for _ in range(RENEWALS):
            renewed = tls.authority.issue("server")
            tls.write_server(renewed)
            if way == "hangup":
                os.kill(process.pid, signal.SIGHUP)
            elif way == "alter":
                with Client(process.bootstrap) as client:
                    client.admin.alter_broker_configs(1, {KEY: str(tls.server_file)})
                assert shown(tls, port) == renewed.certificate.serial_number
            serial = renewed.certificate.serial_number
            wait_until(lambda serial=serial: shown(tls, port) == serial, 60, "the new certificate")
            for number, sock in enumerate(opened):
                sock.sendall(api_versions(number))
            assert [answered(sock) for sock in opened] == list(range(OPEN_COUNT))
            load.go_on()
        wait_until(lambda: load.errors or len(load.read) > load.written // 2, 60, "what was written to be read")
    assert load.errors == []
    assert load.read == list(range(len(load.read)))
    print(f"{way}: {load.written} records written, {len(load.read)} read, {load.arrivals} handshakes, no error")


@contextlib.contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Allow `count` open files meanwhile, if the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

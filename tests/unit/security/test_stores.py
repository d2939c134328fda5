"""Key and trust stores: valid ones, and an error message for each invalid one that names the setting."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from kafkalite.broker.security.tls_listener import load
from kafkalite.errors import ConfigError
from kafkalite.security.distinguished_name import java_text
from kafkalite.security.stores import read_key_store, read_trust_store
from kafkalite.settings.areas.tls import TLS_SETTINGS, TlsSettings
from kafkalite.settings.rows import parse_all
from tests.kit.harness.certificates import PASSWORD, Authority, Identity, pem

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("server")


def settings(**texts: object) -> TlsSettings:
    """`keystore_location=` for ssl.keystore.location."""
    named = {"ssl." + name.replace("_", "."): str(value) for name, value in texts.items()}
    return TlsSettings(**parse_all(TLS_SETTINGS, named))  # type: ignore[arg-type]


def subject(config: TlsSettings) -> str:
    return java_text(read_key_store(config).subject)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "PEM"])
def test_pkcs12_is_known_by_its_first_bytes(tmp_path: Path, kind: str) -> None:
    path = SERVER.write_pkcs12(tmp_path / "store")
    config = settings(keystore_location=path, keystore_type=kind, keystore_password=PASSWORD)
    assert subject(config) == "CN=server,O=Tests"
    key, chain = read_key_store(config).to_pem()
    assert chain == SERVER.chain_pem
    assert b"BEGIN PRIVATE KEY" in key


def test_pem_file_inline_and_encrypted(tmp_path: Path) -> None:
    path = SERVER.write_pem(tmp_path / "store.pem")
    assert subject(settings(keystore_location=path, keystore_type="PEM")) == "CN=server,O=Tests"
    key, chain = SERVER.encrypted_key_pem.decode(), SERVER.chain_pem.decode()
    for joint in ("\n", " ", ""):  # as they come out of a .properties file
        inline = settings(
            keystore_type="PEM",
            keystore_key=key.replace("\n", joint),
            keystore_certificate_chain=chain.replace("\n", joint),
            key_password=PASSWORD,
        )
        assert subject(inline) == "CN=server,O=Tests"


def test_inline_text_of_millions_of_blanks_is_read_at_once() -> None:
    """An administrator may set it: a search that restarted at each blank would block every thread."""
    blanks = " " * 4_000_000
    key, chain = SERVER.key_pem.decode(), SERVER.chain_pem.decode()
    inline = settings(keystore_type="PEM", keystore_key=f"{blanks}{key}", keystore_certificate_chain=chain)
    assert subject(inline) == "CN=server,O=Tests"
    with pytest.raises(ConfigError, match="no private key"):
        read_key_store(settings(keystore_type="PEM", keystore_key=f"x{blanks}x", keystore_certificate_chain=chain))


def test_trust_store_of_each_kind(tmp_path: Path) -> None:
    plain, pkcs12 = AUTHORITY.write_pem(tmp_path / "a.pem"), AUTHORITY.write_pkcs12(tmp_path / "a.p12")
    inline = settings(truststore_type="PEM", truststore_certificates=plain.read_text())
    for config in (
        settings(truststore_location=plain),
        settings(truststore_location=pkcs12, truststore_password=PASSWORD),
        inline,
    ):
        store = read_trust_store(config)
        assert store is not None
        assert store.to_pem() == plain.read_bytes()
    assert read_trust_store(settings()) is None


@pytest.mark.slow
def test_stores_of_keytool_are_read(tmp_path: Path) -> None:
    path = tmp_path / "keytool.jks"
    command = [
        "keytool",
        "-genkeypair",
        "-keystore",
        str(path),
        "-storepass",
        "changeit",
        "-alias",
        "a",
        "-keyalg",
        "EC",
    ]
    subprocess.run([*command, "-dname", "CN=java, OU=x, O=y"], check=True, capture_output=True)
    assert subject(settings(keystore_location=path, keystore_password="changeit")) == "CN=java,OU=x,O=y"
    subprocess.run(
        ["keytool", "-importkeystore", "-srckeystore", str(path), "-srcstorepass", "changeit", "-destkeystore",
         f"{path}.old", "-deststoretype", "JKS", "-deststorepass", "changeit"],
        check=True, capture_output=True,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"which is not supported; convert it: keytool -importkeystore"):
        read_key_store(settings(keystore_location=f"{path}.old", keystore_password="changeit"))


def files(directory: Path) -> dict[str, Path]:
    """Stores with one fault each."""
    other = AUTHORITY.issue("other")
    stranger = Authority("stranger").issue("x")
    found: dict[str, bytes] = {
        "expired": pem_of(AUTHORITY.issue("x", begins_days=-9, ends_days=-1)),
        "early": pem_of(AUTHORITY.issue("x", begins_days=2)),
        "strange key": SERVER.key_pem + other.chain_pem,
        "loose chain": SERVER.key_pem + pem(SERVER.certificate) + stranger.chain_pem,
        "two keys": SERVER.key_pem * 2 + SERVER.chain_pem,
        "no key": SERVER.chain_pem,
        "no certificate": SERVER.key_pem,
        "damaged certificate": SERVER.key_pem + SERVER.chain_pem.replace(b"MII", b"AAAA", 1),
        "encrypted": SERVER.encrypted_key_pem + SERVER.chain_pem,
        "text": b"hello",
        "der": b"\x30\x80\x00\x00",
        "empty": b"",
    }
    for name, data in found.items():
        (directory / name).write_bytes(data)
    (directory / "directory").mkdir()
    os.mkfifo(directory / "pipe")
    SERVER.write_pkcs12(directory / "pkcs12")
    return {name: directory / name for name in [*found, "directory", "pipe", "pkcs12", "absent"]}


def pem_of(identity: Identity) -> bytes:
    return identity.key_pem + identity.chain_pem


@pytest.mark.parametrize(
    ("name", "more", "reason"),
    [
        ("expired", {}, "expired on "),
        ("early", {}, "is not valid before "),
        ("strange key", {}, "the private key does not belong to the first certificate"),
        ("loose chain", {}, "did not issue the one before it"),
        ("two keys", {}, "more than one private key"),
        ("no key", {}, "no private key"),
        ("no certificate", {}, "no certificate"),
        ("damaged certificate", {}, "certificate: "),
        ("encrypted", {}, "encrypted, but no password is given"),
        ("encrypted", {"key_password": "wrong"}, "the password is wrong"),
        ("text", {}, "neither PEM nor PKCS#12"),
        ("empty", {}, "neither PEM nor PKCS#12"),
        ("der", {"keystore_password": "x"}, "not a PKCS#12 file"),
        ("directory", {}, "not a regular file"),
        ("pipe", {}, "not a regular file"),
        ("absent", {}, "cannot be read: No such file"),
        ("pkcs12", {}, "is missing"),
        ("pkcs12", {"keystore_password": "wrong"}, "the password is wrong"),
        ("no key", {"keystore_password": "x"}, "applies only to PKCS#12"),
    ],
)
def test_what_is_wrong_with_a_key_store_is_one_sentence(
    tmp_path: Path, name: str, more: dict[str, str], reason: str
) -> None:
    config = settings(keystore_location=files(tmp_path)[name], **more)
    with pytest.raises(ConfigError, match=reason) as refusal:
        read_key_store(config)
    assert str(refusal.value).startswith("ssl.key")
    assert "\n" not in str(refusal.value)


def test_store_of_older_java_and_windows_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    """Its encryption (RC2, 3DES) is only in OpenSSL's legacy provider."""
    pem = SERVER.write_pem(tmp_path / "server.pem")
    legacy = tmp_path / "legacy.p12"
    make = ["openssl", "pkcs12", "-export", "-legacy", "-in", pem, "-out", legacy, "-passout", f"pass:{PASSWORD}"]
    subprocess.run(make, check=True, capture_output=True)
    with pytest.raises(ConfigError, match="a legacy algorithm") as refusal:
        read_key_store(settings(keystore_location=legacy, keystore_password=PASSWORD))
    command = str(refusal.value).partition("here: ")[2]
    subprocess.run([*shlex.split(command), "-passin", f"pass:{PASSWORD}"], check=True, capture_output=True)
    read_key_store(settings(keystore_location=f"{legacy}.pem"))


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "ssl.keystore.location: is missing"),
        ({"keystore_key": "x"}, "requires ssl.keystore.type=PEM and ssl.keystore.certificate.chain"),
        ({"keystore_key": "x", "keystore_location": "y"}, "excludes ssl.keystore.location"),
        ({"client_auth": "required"}, "required requires ssl.truststore.location"),
        ({"enabled_protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not supported"),
        ({"enabled_protocols": ""}, "contains no version"),
        ({"cipher_suites": "TLS_NULL_WITH_NOTHING"}, "OpenSSL does not support 'TLS_NULL_WITH_NOTHING'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(tmp_path: Path, texts: dict[str, str], reason: str) -> None:
    store = {} if not texts or "keystore_key" in texts else {"keystore_location": SERVER.write_pem(tmp_path / "s")}
    with pytest.raises(ConfigError, match=reason):
        load(settings(**{**store, **texts}))


def test_secrets_are_in_no_text_of_the_settings(tmp_path: Path) -> None:
    config = settings(keystore_password=PASSWORD, keystore_key=SERVER.key_pem.decode())
    assert PASSWORD not in repr(config)
    assert "PRIVATE" not in repr(config)


def test_certificates_are_looked_at_at_the_time_that_is_given(tmp_path: Path) -> None:
    config = settings(keystore_location=SERVER.write_pem(tmp_path / "s.pem"))
    read_key_store(config, now=time.time() + 29 * 86400)
    with pytest.raises(ConfigError, match="expired on"):
        read_key_store(config, now=time.time() + 31 * 86400)

"""OpenSSL as it is found at run time: our prototypes are its own, and who does not use TLS does not load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite._native.tls import tls_context

ROOT = Path(__file__).resolve().parents[4]

COMPARE = """
#define KL_LIBSSL_TYPES
#include <openssl/err.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include "libssl.h"
#define SAME(result, name, arguments) \\
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), #name);
KL_LIBSSL_FUNCTIONS(SAME)
#define VALUE(ours, theirs) _Static_assert((ours) == (theirs), #theirs);
VALUE(KL_TLS1_2, TLS1_2_VERSION) VALUE(KL_TLS1_3, TLS1_3_VERSION)
VALUE(KL_ERROR_SSL, SSL_ERROR_SSL) VALUE(KL_ERROR_WANT_READ, SSL_ERROR_WANT_READ)
VALUE(KL_ERROR_ZERO_RETURN, SSL_ERROR_ZERO_RETURN)
VALUE(KL_VERIFY_PEER, SSL_VERIFY_PEER) VALUE(KL_VERIFY_FAIL_IF_NO_PEER_CERT, SSL_VERIFY_FAIL_IF_NO_PEER_CERT)
VALUE(KL_CTRL_MODE, SSL_CTRL_MODE) VALUE(KL_CTRL_SESS_CACHE_MODE, SSL_CTRL_SET_SESS_CACHE_MODE)
VALUE(KL_CTRL_MAX_CERT_LIST, SSL_CTRL_SET_MAX_CERT_LIST) VALUE(KL_CTRL_CHAIN_CERT, SSL_CTRL_CHAIN_CERT)
VALUE(KL_CTRL_MIN_PROTO_VERSION, SSL_CTRL_SET_MIN_PROTO_VERSION)
VALUE(KL_CTRL_MAX_PROTO_VERSION, SSL_CTRL_SET_MAX_PROTO_VERSION)
VALUE(KL_CTRL_CLEAR_MODE, SSL_CTRL_CLEAR_MODE)
VALUE(KL_MODE_RELEASE_BUFFERS, SSL_MODE_RELEASE_BUFFERS) VALUE(KL_SESS_CACHE_OFF, SSL_SESS_CACHE_OFF)
VALUE(KL_BIO_FLAGS_READ, BIO_FLAGS_READ)
VALUE(KL_BIO_FLAGS_SHOULD_RETRY, BIO_FLAGS_SHOULD_RETRY) VALUE(KL_BIO_CTRL_INFO, BIO_CTRL_INFO)
VALUE(KL_BIO_CTRL_FLUSH, BIO_CTRL_FLUSH) VALUE(KL_BIO_TYPE_SOURCE_SINK, BIO_TYPE_SOURCE_SINK)
VALUE(KL_NID_SUBJECT_ALT_NAME, NID_subject_alt_name)
VALUE(KL_NID_KX_ECDHE, NID_kx_ecdhe) VALUE(KL_NID_KX_DHE, NID_kx_dhe)
VALUE(KL_CRL_CHECK_ALL, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL)
VALUE(KL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_NOT_REQUESTED)
VALUE(KL_OP_NO_COMPRESSION, SSL_OP_NO_COMPRESSION) VALUE(KL_OP_NO_RENEGOTIATION, SSL_OP_NO_RENEGOTIATION)
VALUE(KL_OP_CIPHER_SERVER_PREFERENCE, SSL_OP_CIPHER_SERVER_PREFERENCE)
VALUE(KL_INIT_NO_ATEXIT, OPENSSL_INIT_NO_ATEXIT)
"""


def test_prototypes_and_numbers_are_those_of_the_installed_headers(tmp_path: Path) -> None:
    if not Path("/usr/include/openssl/ssl.h").exists():
        pytest.skip("OpenSSL's headers are not installed (apt-get install libssl-dev)")
    source = tmp_path / "compare.c"
    source.write_text(COMPARE)
    command = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{ROOT / 'ext' / 'c'}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_version_is_returned() -> None:
    assert tls_context.library_version().startswith("OpenSSL 3.")


def test_suites_have_two_names() -> None:
    assert tls_context.cipher_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") == "ECDHE-RSA-AES128-GCM-SHA256"
    assert tls_context.cipher_name("TLS_AES_128_GCM_SHA256") == "TLS_AES_128_GCM_SHA256"
    assert tls_context.cipher_name("TLS_OF_NOBODY") is None


PLAIN_BROKER = """
import sys
from kafkalite.broker import Broker
from kafkalite.client import Client
with Broker(num_network_threads=1) as broker, Client(broker.bootstrap_servers) as client:
    client.topic("t", create=True)
    maps = open("/proc/self/maps").read()
    print([name for name in ("libssl", "tls_context.abi", "kafkalite/security") if name in maps],
          [name for name in ("ssl", "_ssl", "kafkalite.security", "kafkalite.client.security") if name in sys.modules])
"""


def test_broker_and_client_without_tls_load_nothing_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", PLAIN_BROKER], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[] []", done.stderr


MISSING = """
import sys
from kafkalite.cli import main
sys.exit(main(["start", "--data-dir", sys.argv[1], "--listeners", "SSL://127.0.0.1:0"]))
"""


def test_listener_without_certificate_ends_the_start_with_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISSING, str(tmp_path / "data")], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "kafkalite: ssl.keystore.location: is missing; a listener with TLS needs a certificate"
    )

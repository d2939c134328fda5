"""Scan a TLS listener with testssl.sh: it reports only properties of the test's certificate.

sslyze 6, run by hand, found three suites per TLS version, no compression and no known weakness. Apart from the
certificate, a listener deviates from Mozilla's "intermediate" profile by allowing the stronger curves X448 and P-521.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.harness.tls_broker import TlsBroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]
UNREMARKABLE = {"OK", "INFO", "DEBUG"}
OF_THE_CERTIFICATE = {"cert_chain_of_trust", "cert_expirationStatus", "cert_notAfter", "cert_revocation"}
"""The test's certificate: its authority is not trusted, and it expires soon."""
NOT_ALWAYS_MADE = {"sessionresumption_ticket", "sessionresumption_ID"}
"""Checks for which the scanner's client leaves before TLS 1.3 has given it a ticket, or after, as it happens."""


@pytest.mark.parametrize("bits", [0, 2048], ids=["ecdsa", "rsa"])
def test_testssl_finds_nothing_but_what_a_certificate_for_a_test_lacks(tmp_path: Path, bits: int) -> None:
    program = shutil.which("testssl") or shutil.which("testssl.sh")
    if program is None:
        pytest.skip("testssl.sh is not installed (apt-get install testssl.sh)")
    found = tmp_path / "found.json"
    command = [program, "--quiet", "--warnings", "off", "--color", "0", "--nodns", "none", "--jsonfile", str(found)]
    tls = TlsBroker(tmp_path)
    tls.write_server(tls.authority.issue("server", bits=bits))
    with tls:
        # Its status is the number of findings, so only the file shows whether it completed.
        subprocess.run([*command, tls.address()], stdin=subprocess.DEVNULL, capture_output=True, timeout=1500)
    rows = {row["id"]: row for row in json.loads(found.read_text())}
    assert {"SSLv3", "TLS1_1", "cipherlist_NULL", "cipherlist_STRONG", "LUCKY13", "RC4", "scanTime"} <= rows.keys()
    assert rows["TLS1_2"]["finding"] == "offered"
    left_out = OF_THE_CERTIFICATE | {name for name in NOT_ALWAYS_MADE if rows[name]["severity"] == "WARN"}
    remarks = {
        name: (row["severity"], row["finding"])
        for name, row in rows.items()
        if row["severity"] not in UNREMARKABLE and name not in left_out
    }
    assert remarks == {}

"""A broker behind TLS and SASL that asks who may, a file of settings for each user, and the commands against it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kafkalite.client import Client, Security
from kafkalite.settings.areas.permissions import STANDARD_AUTHORIZER
from tests.kit.harness.sasl_broker import PASSWORD, SaslTlsBroker

ROOT = "carol"
MECHANISMS = {ROOT: "SCRAM-SHA-512", "bob": "SCRAM-SHA-256", "alice": "SCRAM-SHA-256"}


class Side:
    """A broker with an authoriser; ROOT may everything, the others what rules say."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": f"User:{ROOT}"}
        self.sasl = SaslTlsBroker(directory, transaction_state_log_num_partitions="2", **settings)
        self.configs = {user: self._write_config(user) for user in MECHANISMS}

    def settings(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISMS[user],
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "ssl.truststore.location": str(self.sasl.authority_file),
        }

    def _write_config(self, user: str) -> str:
        path = self.sasl.directory / f"{user}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in self.settings(user).items()))
        return str(path)

    @property
    def address(self) -> str:
        return self.sasl.address("SASL_SSL")

    def allow(self, user: str, *flags: str) -> None:
        """By a running broker; the flags of `kafkalite acls add`."""
        where = ("-b", self.address, "--command-config", self.configs[ROOT])
        kafkalite("acls", "add", "--allow-principal", f"User:{user}", *flags, *where)

    def client(self, user: str) -> Client:
        return Client(self.address, security=Security(self.settings(user)))


def kafkalite(*arguments: str, status: int = 0) -> str:
    """Runs a command; its output, or the sentences that it says when it is to fail."""
    command = [sys.executable, "-m", "kafkalite", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | {"COLUMNS": "100"})
    assert done.returncode == status, (done.stdout, done.stderr)
    if not status:
        return done.stdout
    assert all(line.startswith("kafkalite: ") for line in done.stderr.splitlines()), done.stderr
    return done.stderr

"""List SCRAM users, set their passwords and delete them (KIP-554).

A password never leaves this process: the request contains its salted hash, from which the broker derives the SCRAM
keys. Anyone who reads that hash can authenticate with it, so use TLS where others can listen.

Thread rule: one thread at a time, that of the Client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalite.client.cluster import raise_for
from kafkalite.security import scram
from kafkalite.wire.protocol import api
from kafkalite.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkalite.wire.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

if TYPE_CHECKING:
    from kafkalite.client.cluster import Cluster

ITERATIONS: Final = 4096
"""Default iterations of the hash, as in Kafka's tools."""
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanism → Kafka's number."""
_NAMES: Final = {number: name for name, number in NUMBERS.items()}


class Users:
    """SCRAM user administration, created by `Client.users`."""

    def __init__(self, client: Cluster) -> None:
        self._client = client

    def list_all(self) -> dict[str, dict[str, int]]:
        """Return a map of user → mechanism → iterations."""
        request = DescribeUserScramCredentialsRequest(users=None)
        answer = self._client.controller().request(api.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        raise_for(answer.error_code, "users", answer.error_message)
        return {
            row.user: {
                _NAMES.get(info.mechanism, str(info.mechanism)): info.iterations for info in row.credential_infos
            }
            for row in sorted(answer.results, key=lambda row: row.user)
        }

    def set_password(self, user: str, password: str, mechanism: str, iterations: int = ITERATIONS) -> None:
        """Set a user's password for one mechanism, and create the user if needed.

        Raises UnacceptableCredential and other KafkaErrors.
        """
        salt = scram.new_salt()
        salted = scram.salted_password(mechanism, password.encode(), salt, iterations)
        self._alter(
            AlterUserScramCredentialsRequest(
                upsertions=[
                    ScramCredentialUpsertion(
                        name=user,
                        mechanism=NUMBERS[mechanism],
                        iterations=iterations,
                        salt=salt,
                        salted_password=salted,
                    )
                ]
            )
        )

    def delete(self, user: str, mechanism: str) -> None:
        """Delete a user's password for one mechanism. Raises ResourceNotFound."""
        deletion = ScramCredentialDeletion(name=user, mechanism=NUMBERS[mechanism])
        self._alter(AlterUserScramCredentialsRequest(deletions=[deletion]))

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        answer = self._client.controller().request(api.ALTER_USER_SCRAM_CREDENTIALS, request)
        for row in answer.results:
            raise_for(row.error_code, f"user {row.user}", row.error_message)

"""Convert the server and security settings of another client library to those of kafkalite's client.

    {"bootstrap_servers": …, "security_protocol": "SASL_SSL", "ssl_cafile": …} ─▶ servers, Security

A member reads its ledger with kafkalite's client, even if another client reads the records. Both connect with the same
settings, so users write them only once.

Thread rule: functions are pure, except for reading the files that the settings name.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalite.client.security import Security

if TYPE_CHECKING:
    from collections.abc import Mapping

CERTIFICATES: Final = "ssl.truststore.certificates"
KAFKAS: Final = {
    "sasl_mechanism": "sasl.mechanism",
    "sasl_mechanisms": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_password": "sasl.password",
    "ssl_cafile": "ssl.truststore.location",
    "ssl_ca_location": "ssl.truststore.location",
    "ssl_ca_pem": CERTIFICATES,
    "ssl_certificate_pem": "ssl.keystore.certificate.chain",
    "ssl_key_pem": "ssl.keystore.key",
    "ssl_password": "ssl.key.password",
    "ssl_key_password": "ssl.key.password",
    "ssl_keystore_location": "ssl.keystore.location",
    "ssl_keystore_password": "ssl.keystore.password",
}
"""A client's setting, with underscores → Kafka's setting."""
FILES: Final = {
    "ssl_certfile": "ssl.keystore.certificate.chain",
    "ssl_certificate_location": "ssl.keystore.certificate.chain",
    "ssl_keyfile": "ssl.keystore.key",
    "ssl_key_location": "ssl.keystore.key",
}
"""The same for settings that name a file of PEM text."""
NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
PREFIXES: Final = ("security_", "ssl_", "sasl_", "enable_ssl_", "enable_sasl_", "oauth_")


def servers_of(settings: Mapping[str, Any]) -> Any:
    """Return the bootstrap servers that a configuration names, or None."""
    for name in ("bootstrap_servers", "bootstrap.servers", "metadata.broker.list"):
        if settings.get(name):
            return settings[name]
    return None


def security_of(settings: Mapping[str, Any]) -> Security | None:
    """Return the TLS and SASL settings of a configuration, or None for plaintext.

    Raises ValueError for a setting that kafkalite's client does not have, ConfigError for an invalid setting, and
    OSError for a file that cannot be read.
    """
    plain = {name.replace(".", "_"): value for name, value in settings.items() if value is not None}
    protocol = str(plain.pop("security_protocol", "PLAINTEXT")).upper()
    if protocol == "PLAINTEXT":
        return None
    found = {"security.protocol": protocol}
    context, token = plain.pop("ssl_context", None), None
    for name, value in plain.items():
        if name in KAFKAS:
            found[KAFKAS[name]] = str(value)
        elif name in FILES:
            found[FILES[name]] = Path(value).read_text(encoding="utf-8")
        elif name == "ssl_check_hostname":
            found |= {} if value else {NAME_CHECK: ""}
        elif name == "ssl_endpoint_identification_algorithm":
            found[NAME_CHECK] = "" if value == "none" else str(value)
        elif name == "sasl_oauth_token_provider" and not inspect.iscoroutinefunction(value.token):
            token = value.token
        elif name.startswith(PREFIXES) and not (context is not None and name.startswith("ssl_")):
            raise ValueError(
                f"{name} of the consumer cannot be adopted for the member's own connections: pass security= as well"
            )
    if protocol.startswith("SASL"):
        found.setdefault("sasl.mechanism", "PLAIN")  # aiokafka's default; the others have none
    if "ssl_certfile" in plain:
        found.setdefault("ssl.keystore.key", found["ssl.keystore.certificate.chain"])  # one file may have both
    for store, text in (("ssl.keystore", "ssl.keystore.certificate.chain"), ("ssl.truststore", CERTIFICATES)):
        if text in found:
            found[f"{store}.type"] = "PEM"
    return Security(found, token=token, context=context)

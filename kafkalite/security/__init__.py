"""Authenticate with TLS certificates and SASL.

This package creates TLS contexts from settings, maps certificate subjects to principals, and implements SASL mechanisms
as exchanges of tokens. It does not open client or broker connections. Of Kafka's requests, it knows only SaslHandshake
and SaslAuthenticate.
"""

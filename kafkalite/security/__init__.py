"""Authentication: key stores, TLS contexts, principals and SASL mechanisms.

This package turns settings into TLS contexts, certificate subjects into principals (`ssl_principal_mapping`), and runs
SASL mechanisms as exchanges of tokens. It uses no sockets and writes no logs. It knows only two of Kafka's requests,
those of a SASL exchange (`sasl_client`).
"""

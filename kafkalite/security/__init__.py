"""Authentication: key stores and TLS contexts, distinguished names and their mapping to principals
(`ssl_principal_mapping`), and SASL mechanisms as exchanges of tokens.

Settings go in; native TLS contexts and principals come out. This package uses no sockets and writes no logs. Of Kafka's
requests it knows only the two of a SASL exchange (`sasl_client`).
"""

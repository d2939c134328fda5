"""Who clients are and how they show it: key stores and TLS contexts, distinguished names, the rules that map them to
principals (`ssl_principal_mapping`), SASL mechanisms as tokens in and tokens out. Settings in, native TLS contexts and
principals out; it knows no sockets or logs, and of requests only the two by which a client signs in (`sasl_client`).
"""

"""Who clients are and how they show it: certificates, names, the rules that make principals of names. Settings in,
native TLS contexts and principals out; it knows no sockets, requests or logs.
"""

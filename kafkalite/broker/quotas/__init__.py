"""Quotas: how much a client may do in a second, by user, client id, both, or address."""

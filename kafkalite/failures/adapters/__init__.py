"""Clients that read and write for `kafkalite.failures.runner`, a file each; only that file imports its client."""

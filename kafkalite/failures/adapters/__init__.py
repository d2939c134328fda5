"""Clients that read and write for `kafkalite.failures.runner`, one module each. Only that module imports its client."""

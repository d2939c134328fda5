"""Brokers, links and controllers of a replicated cluster fail one after the other; nothing acknowledged may be lost."""

ENABLED: bool
"""Whether this is the debug build, which checks invariants and aborts if one is broken."""

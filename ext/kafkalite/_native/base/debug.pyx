"""Report whether this is the debug build."""

ENABLED = KL_DEBUG != 0

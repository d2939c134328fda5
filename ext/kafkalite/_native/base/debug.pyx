"""Which build this is."""

ENABLED = KL_DEBUG != 0

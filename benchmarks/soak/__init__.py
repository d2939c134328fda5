"""Find what grows with uptime: one broker and its console under a varied load, sampled for hours."""

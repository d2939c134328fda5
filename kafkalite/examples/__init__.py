"""Example programs that combine the parts; each runs with `python -m`. `pipeline` is the only one."""

"""Example programs that combine the parts of kafkalite. `pipeline` is the only one so far; run it with `python -m`."""

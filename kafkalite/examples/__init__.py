"""Programs that show how the parts work together; each runs with `python -m`. `pipeline` is the only one."""

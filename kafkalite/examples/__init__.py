"""Example programs that combine the parts of kafkalite.

The only example so far is `pipeline`. Run it with `python -m kafkalite.examples.pipeline`.
"""

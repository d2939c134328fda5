"""Record batches as columns for Python, and compression. No I/O, no clock.

columns.py       records as arrays
batches.py       arrays ↔ batches, without what a consumer must not see
compression.py   the five codecs, with bounded output
"""

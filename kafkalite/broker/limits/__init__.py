"""Limits that keep one client from taking what all clients share: network threads, memory, and entries of tables.

A *holder* (`holder.py`) is the unit that these limits compare: one principal at one address.
"""

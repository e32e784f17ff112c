"""Replay traces on a virtual clock through the same scheduling and residency code.

Never here: wall time, unseeded randomness. May import control and below, not server.
"""

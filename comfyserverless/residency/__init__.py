"""Decide which layer of which model belongs where.

Pure functions and one state class. Never here: torch, threads, files. May import core.
"""

"""Offer the built-in nodes to packs as a library of Python classes that call the workers."""

"""Nodes that work on tiles of a picture."""

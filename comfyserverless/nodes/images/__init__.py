"""Nodes that change and combine images."""

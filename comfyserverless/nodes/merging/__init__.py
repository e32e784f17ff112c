"""Nodes that mix models."""

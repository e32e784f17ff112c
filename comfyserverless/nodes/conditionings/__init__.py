"""Nodes that change and limit conditionings."""

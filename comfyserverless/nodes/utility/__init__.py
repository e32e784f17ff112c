"""Nodes about plain values: choices, numbers, texts, lists, loops, and looking at any value."""

"""Carry out one prompt as ComfyUI does: lists, laziness, blocked values, expansion, and the order of events."""

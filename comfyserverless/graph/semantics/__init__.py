"""Decide how a node is called and what comes of it: lists, blocked values, laziness, expansion. Pure."""

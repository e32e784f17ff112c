"""Carry out the decisions: worker links, supervision, runs, files, event fan-out.

Never here: policy. May import nodes and below.
"""

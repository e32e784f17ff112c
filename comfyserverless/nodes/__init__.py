"""Declare the built-in nodes and lower them to handles or model functions.

Never here: torch, HTTP. May import graph, scheduling and below.
"""

"""Implement the model functions and host functions by name.

Never here: placement, HTTP. May import models and below.
"""

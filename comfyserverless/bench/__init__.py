"""Measure the product from outside: overhead of the whole path against a plain loop.

Runs both towers in separate processes. Nothing imports it but the command line.
"""

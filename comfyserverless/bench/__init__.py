"""Measure the product: the whole path against a plain loop, and how weights come and go.

Runs both towers in separate processes. Nothing imports it but the command line.
"""

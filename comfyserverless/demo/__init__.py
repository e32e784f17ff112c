"""Carry what a first run needs: a small checkpoint and LoRA of our own, and where the page's files lie.

Data and paths only. Never here: torch, HTTP, reading files at import. Imports nothing of the package.
"""

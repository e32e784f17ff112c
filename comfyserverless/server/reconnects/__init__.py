"""Bring clients that come back up to date: what they missed of ended runs, and where the running ones are."""

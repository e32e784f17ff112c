"""Serve the routes of packs, and send what they send."""

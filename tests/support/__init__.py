"""Build what tests share: tiny models, a real server process, a client for it."""

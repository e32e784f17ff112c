"""Know the tenants: their tokens, limits and folders.

Never here: HTTP. May import control's files, and core.
"""

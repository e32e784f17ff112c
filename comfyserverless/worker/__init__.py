"""Run invocations in a process of its own.

Never here: tenants' secrets, placement. May import functions and below.
"""

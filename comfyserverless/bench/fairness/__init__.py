"""Measure how two tenants with very uneven prompts share one worker, under every policy.

Never here: what ships in a request's path. May import sim and what it may import.
"""

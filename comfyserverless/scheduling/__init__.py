"""Decide which invocation runs next and where, fairly by vTime.

Events in, instructions out. Never here: clocks, sockets, asyncio. May import core, residency.
"""

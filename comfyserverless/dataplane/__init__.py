"""Move bytes between workers: arena, allocator, tensor store, one-sided fetch.

Never here: models, nodes. May import core, residency, sdk.
"""

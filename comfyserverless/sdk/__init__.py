"""Give users what they import: ModelFn, composition of workflows, a client.

Never here: server internals. May import core.
"""

"""Read prompts: validation, plan, execution order, cache signatures.

Never here: tensors, HTTP. May import core, sdk, residency.
"""

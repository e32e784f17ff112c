"""Walk the sigmas: schedules, parametrizations, samplers as explicit-state steps, guidance, noise.

Never here: loading, progress UI. May import core.
"""

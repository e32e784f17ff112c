"""Hold the samplers, one family per file, and the registry that names them.

A sampler is a pure function of (state, denoised); see `base`. Never here: models, schedules, guidance.
"""

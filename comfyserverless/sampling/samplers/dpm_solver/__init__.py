"""Samplers that walk with DPM-Solver, in steps of their own."""

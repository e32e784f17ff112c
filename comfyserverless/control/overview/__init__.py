"""Remember the last minutes, for people who look: shares of the GPU lanes, and what ran where.

Everything here is bounded, and costs next to nothing while nobody looks. It decides nothing.
"""

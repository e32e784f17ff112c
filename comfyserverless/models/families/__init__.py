"""Tell model families apart by tensor names and shapes: one file per family and a registry.

Never here: weights. May import the rest of models' small modules and below.
"""

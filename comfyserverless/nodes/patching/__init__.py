"""Nodes that patch models: they only write on the handle what workers are to do where the model is
evaluated."""

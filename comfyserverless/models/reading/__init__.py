"""Read model files: names, shapes and tensors, checked against the file before anything is built of them.

Never here: what the tensors mean. May import core.
"""

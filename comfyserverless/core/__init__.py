"""Name what rooms share: ids, errors, settings, the value tree, function declarations, link messages.

Never here: behaviour, I/O. Imports nothing of the package.
"""

"""Choose whose turn it is in a lane: one module per rule, behind one interface.

Never here: vTime accounts, placement. May import the modules of scheduling that it chooses from.
"""

"""Start, link, watch and clean up after the worker processes.

Never here: what runs on them (that is the dispatcher's). May import core and control's dispatcher and views.
"""

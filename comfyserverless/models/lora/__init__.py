"""Merge LoRA files into single layers: key names, merge formulas, files.

Never here: building of whole models. May import the rest of models' small modules and below.
"""

"""Run networks with patches: functions that ComfyUI calls at named points inside and around a network.

The dicts that patches know (`transformer_options`) and the order of calls are ComfyUI's. Never here: which
patches a handle has.
"""

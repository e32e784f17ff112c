"""Train the demo models from nothing, on pictures drawn on the spot, and judge what a server makes of them.

Scenes, captions, small networks, training stages, export under Stable Diffusion 1.x names, and the judge.
Never here: serving, scheduling, foreign data or weights. Imports core, demo and models; nobody imports it but
the command line.
"""
